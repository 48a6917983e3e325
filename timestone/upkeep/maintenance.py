"""Maintenance thread of a store: runs retention, compression, compaction and scrubbing when they are due. Sleeps
without a timer while nothing is due, and is not started in a store without such work."""

import logging
import threading
import time
from collections.abc import Callable

Task = Callable[[], float | None]
"""Does what is due now. Returns the seconds until the next call; None for none."""

_LOGGER = logging.getLogger("timestone")
_RETRY_S = 60.0


class Maintenance:
    """Runs tasks when they are due, one at a time. Equal tasks are one task."""

    def __init__(self) -> None:
        # Callers use the lock directly: KeyboardInterrupt inside Condition.__enter__ could leave it locked.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._due: dict[Task, float] = {}
        self._thread: threading.Thread | None = None
        self._stopping = False

    def expect(self, task: Task, after_s: float = 0.0) -> None:
        """Schedule a task after so many seconds, or at its earlier due time."""
        due = time.monotonic() + after_s
        with self._lock:
            if self._stopping:
                return
            self._due[task] = min(due, self._due.get(task, due))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="timestone-maintenance", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Finish the running task and end the thread."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    @property
    def stopping(self) -> bool:
        """Return whether `stop` was called: a long task then ends early."""
        return self._stopping

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                again_s = task()
            except Exception as error:
                # The disk may have failed; the other tasks of the store continue.
                bug = not isinstance(error, OSError)  # errors of the disk deserve no traceback
                _LOGGER.error("maintenance: %s; again in %d s", error, _RETRY_S, exc_info=bug)
                again_s = _RETRY_S
            if again_s is not None:
                self.expect(task, again_s)

    def _next(self) -> Task | None:
        """Wait for the next due task; None to end."""
        with self._lock:
            while not self._stopping:
                task = min(self._due, key=self._due.__getitem__, default=None)
                if task is None:
                    self._changed.wait()
                    continue
                wait_s = self._due[task] - time.monotonic()
                if wait_s <= 0:
                    del self._due[task]
                    return task
                self._changed.wait(min(wait_s, threading.TIMEOUT_MAX))
            return None
