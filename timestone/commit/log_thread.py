"""A thread that does one thing for one log after the other, in the order in which they were handed to it."""

import queue
import threading
from collections.abc import Callable

from timestone.commit.log_commit import LogCommit
from timestone.disk.signal_safe_event import Flag


class LogThread:
    """Runs until `stop`. A daemon: a program that does not close its store still comes to the exit, which closes it."""

    def __init__(self, name: str, serve: Callable[[LogCommit], None]) -> None:
        """`serve` is called by the thread, and deals with its errors itself: one that it raises ends the thread."""
        self._serve = serve
        self._logs: queue.SimpleQueue[LogCommit | Flag | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, log: LogCommit) -> None:
        """Serve this log when those before it are done."""
        self._logs.put(log)

    def settle(self) -> None:
        """Wait until all that was put before this call has been served."""
        served = Flag()  # not an Event, which a Ctrl-C here could leave locked for the thread that sets it
        self._logs.put(served)
        served.wait()

    def stop(self) -> None:
        """Serve what is waiting and end the thread."""
        self._logs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (log := self._logs.get()) is not None:
            if isinstance(log, Flag):
                log.set()
            else:
                self._serve(log)
