import threading
from pathlib import Path

import timestone
from timestone.commit.committed_log import CommittedLog
from timestone.commit.log_thread import LogThread


def test_logs_are_served_in_order_by_one_thread_until_it_is_stopped(quick_directory: Path) -> None:
    served: list[tuple[str, str]] = []
    go = threading.Event()

    def serve(log: CommittedLog) -> None:
        assert go.wait(10)
        served.append((log.name, threading.current_thread().name))

    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        thread = LogThread("the-one", serve)
        for name in ("b", "a", "b"):
            thread.put(store.log(name))
        assert not served
        go.set()
        thread.stop()
    assert served == [("b", "the-one"), ("a", "the-one"), ("b", "the-one")]


def test_whoever_settles_has_waited_for_what_came_before(quick_directory: Path) -> None:
    served: list[str] = []
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        thread = LogThread("the-one", lambda log: served.append(log.name))
        for name in ("b", "a"):
            thread.put(store.log(name))
        thread.settle()
        assert served == ["b", "a"]
        thread.stop()
