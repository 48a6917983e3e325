"""Threads that flush one file while the caller flushes another.

Not an executor of the standard library: that takes locks in Python code, which KeyboardInterrupt in the caller can
leave locked, and every later flush of the process would wait forever. `put` and `get` of SimpleQueue are atomic."""

import queue
import sys
import threading
from collections.abc import Callable

_MOST = 8
"""Waiting for a disk takes no processor time, so this is enough for many logs."""

Outcome = queue.SimpleQueue[BaseException | None]
Job = tuple[Callable[[int], None], int, Outcome]


class FlushHelpers:
    """Up to eight threads, started on demand."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._unstarted: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Numbers of the threads that may still be started."""
        for number in range(_MOST):
            self._unstarted.put(number)
        self._idle: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One item for each thread that waits for a job and is not reserved."""

    def begin(self, flush: Callable[[int], None], fd: int) -> Outcome:
        """Flush a file in another thread. Return a queue with the outcome, an error or None. Raises RuntimeError
        while the interpreter is shutting down, when no thread can be started."""
        if sys.is_finalizing():
            raise RuntimeError("the interpreter is shutting down")
        try:
            self._idle.get_nowait()
        except queue.Empty:
            self._start()
        outcome: Outcome = queue.SimpleQueue()
        self._jobs.put((flush, fd, outcome))
        return outcome

    def _start(self) -> None:
        """Start one more thread, unless the maximum runs."""
        try:
            number = self._unstarted.get_nowait()
        except queue.Empty:
            return
        try:
            threading.Thread(target=self._run, name=f"timestone-flush-{number}", daemon=True).start()
        except RuntimeError:
            self._unstarted.put(number)
            raise

    def _run(self) -> None:
        while True:
            flush, fd, outcome = self._jobs.get()
            try:
                flush(fd)
            except BaseException as error:  # passed to the caller
                outcome.put(error)
            else:
                outcome.put(None)
            self._idle.put(None)
