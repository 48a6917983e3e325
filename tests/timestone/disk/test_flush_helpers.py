import threading

import pytest

from timestone.disk.flush_helpers import FlushHelpers


def test_a_file_is_flushed_in_another_thread() -> None:
    seen: list[tuple[int, int]] = []
    outcome = FlushHelpers().begin(lambda fd: seen.append((fd, threading.get_ident())), 7)
    assert outcome.get(timeout=20) is None
    ((fd, thread),) = seen
    assert fd == 7
    assert thread != threading.get_ident()


def test_flush_error_is_raised_in_the_caller() -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "no", f"file {fd}")

    outcome = FlushHelpers().begin(fail, 3)
    with pytest.raises(OSError, match="file 3"):
        raise outcome.get(timeout=20) or AssertionError


def test_concurrent_flushes_run_in_parallel_and_threads_are_reused() -> None:
    helpers = FlushHelpers()
    together = threading.Barrier(3, timeout=20)
    before = threading.active_count()

    def meet(fd: int) -> None:
        together.wait()

    for _ in range(4):
        outcomes = [helpers.begin(meet, fd) for fd in range(3)]
        assert [outcome.get(timeout=20) for outcome in outcomes] == [None] * 3
    assert threading.active_count() - before <= 8


def test_helper_threads_never_exceed_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that began while another was starting a thread started one more."""
    helpers = FlushHelpers()
    started: list[str] = []

    class InterruptedThread(threading.Thread):
        """While it is started, another caller comes."""

        def start(self) -> None:
            started.append(self.name)
            if len(started) < 20:
                helpers.begin(lambda fd: None, 0)

    monkeypatch.setattr(threading, "Thread", InterruptedThread)
    helpers.begin(lambda fd: None, 0)
    assert started == [f"timestone-flush-{number}" for number in range(8)]
