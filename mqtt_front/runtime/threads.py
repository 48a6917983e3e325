"""Threads of a front while it serves."""

from concurrent.futures import Executor, ThreadPoolExecutor

_READ_THREADS = 2
_LOGIN_THREADS = 2
"""Concurrent password checks: each takes a processor and 19 MiB for some tens of milliseconds."""


class Threads:
    """Executors, each for one kind of work."""

    def __init__(self, all_work: Executor | None = None) -> None:
        """all_work: an executor of the caller, for work of every kind."""
        self.save = all_work or ThreadPoolExecutor(1, "mqtt-sessions")
        self.login = all_work or ThreadPoolExecutor(_LOGIN_THREADS, "mqtt-logins")
        self.read = all_work or ThreadPoolExecutor(_READ_THREADS, "mqtt-catch-up")
        # A bucket that does not answer holds up nothing that is read from the disk.
        self.remote = all_work or ThreadPoolExecutor(_READ_THREADS, "mqtt-bucket")

    def end(self) -> None:
        """End them once they have done what they do now; writes that have begun are finished."""
        self.read.shutdown(wait=False, cancel_futures=True)
        self.remote.shutdown(wait=False, cancel_futures=True)
        self.save.shutdown(wait=False)
        self.login.shutdown(wait=False, cancel_futures=True)
