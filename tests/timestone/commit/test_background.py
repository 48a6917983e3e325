import threading
from pathlib import Path

import timestone
from timestone.commit.background import LogThread
from timestone.commit.log_commit import LogCommit


def test_logs_are_served_in_order_by_one_thread_until_it_is_stopped(quick_directory: Path) -> None:
    served: list[tuple[str, str]] = []
    go = threading.Event()

    def serve(log: LogCommit) -> None:
        assert go.wait(10)
        served.append((log.log, threading.current_thread().name))

    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        thread = LogThread("the-one", serve)
        for name in ("b", "a", "b"):
            thread.put(store.log(name)._commit)
        assert not served
        go.set()
        thread.stop()
    assert served == [("b-0", "the-one"), ("a-0", "the-one"), ("b-0", "the-one")]


def test_settle_waits_for_all_earlier_work(quick_directory: Path) -> None:
    served: list[str] = []
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        thread = LogThread("the-one", lambda log: served.append(log.log))
        for name in ("b", "a"):
            thread.put(store.log(name)._commit)
        thread.settle()
        assert served == ["b-0", "a-0"]
        thread.stop()
