"""Threads that flush one file while the caller flushes another.

Not an executor of the standard library: that takes locks in Python code, which a Ctrl-C in the calling thread can leave
taken, and then every flush of the process waits without end. A SimpleQueue puts and gets in one step."""

import queue
import sys
import threading
from collections.abc import Callable

_MOST = 8
"""Waiting for a disk takes no processor, so there are enough for many logs."""

Outcome = queue.SimpleQueue[BaseException | None]
Job = tuple[Callable[[int], None], int, Outcome]


class FlushHelpers:
    """Up to eight threads, started when they are needed."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._unstarted: queue.SimpleQueue[int] = queue.SimpleQueue()
        """The numbers of the threads that there may be beside those that there are."""
        for number in range(_MOST):
            self._unstarted.put(number)
        self._idle: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One for each thread that waits for a job and has not been promised one."""

    def begin(self, flush: Callable[[int], None], fd: int) -> Outcome:
        """Flush a file in another thread; the outcome, an error or None, can be fetched when it is done. Raises
        RuntimeError when the interpreter is shutting down: it starts no threads, and those there were have stopped."""
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
        """One more thread, unless there are as many as there may be."""
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
            except BaseException as error:  # whatever it is, it is the caller's
                outcome.put(error)
            else:
                outcome.put(None)
            self._idle.put(None)
