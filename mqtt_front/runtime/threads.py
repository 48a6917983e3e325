"""Threads of a front while it serves."""

from concurrent.futures import ThreadPoolExecutor

_READ_THREADS = 2
_LOGIN_THREADS = 2
"""Concurrent password checks: each takes a processor and 19 MiB for some tens of milliseconds."""


class Threads:
    """Executors, each for one kind of work."""

    def __init__(self) -> None:
        self.save = ThreadPoolExecutor(1, "mqtt-sessions")
        self.login = ThreadPoolExecutor(_LOGIN_THREADS, "mqtt-logins")
        self.read = ThreadPoolExecutor(_READ_THREADS, "mqtt-catch-up")
        # A bucket that does not answer holds up nothing that is read from the disk.
        self.remote = ThreadPoolExecutor(_READ_THREADS, "mqtt-bucket")

    def end(self) -> None:
        """End them once they have done what they do now; writes that have begun are finished."""
        self.read.shutdown(wait=False, cancel_futures=True)
        self.remote.shutdown(wait=False, cancel_futures=True)
        self.save.shutdown(wait=False)
        self.login.shutdown(wait=False, cancel_futures=True)
