"""Flush of one or two files in other threads, side by side.

Not an executor of the standard library: that takes locks in Python code, which KeyboardInterrupt in the caller can
leave locked, and every later flush of the process would wait forever. `put` and `get` of SimpleQueue are atomic."""

import _thread
import errno
import os
import queue
import sys
from contextlib import suppress


class Flush:
    """Call of fdatasync for one or two files side by side, which begins at once. Keep the files open until it has
    ended. Compiled, its threads are none of Python: its beginning and end wait for no interpreter lock."""

    def __init__(self, one: int, other: int = -1, wake_fd: int = -1) -> None:
        """wake_fd: gets eight bytes when both have ended, unless it would block: that of an eventfd, or of a pipe.
        Raises RuntimeError if no thread can be started, as while the interpreter is shutting down."""
        if sys.is_finalizing():
            raise RuntimeError("the interpreter is shutting down")
        self._wake_fd = wake_fd
        self._count = 1 if other < 0 else 2
        self._outcomes: list[tuple[int, int]] = []
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Has an item once both have ended."""
        for fd in (one, other)[: self._count]:
            _thread.start_new_thread(self._flush, (fd,))

    def _flush(self, fd: int) -> None:
        number = 0
        try:
            os.fdatasync(fd)
        except OSError as error:
            number = error.errno or errno.EIO
        self._outcomes.append((number, fd))
        if self.has_ended:  # perhaps seen by both threads, which does no harm
            self._ended.put(None)
            if self._wake_fd >= 0:
                with suppress(OSError):
                    os.write(self._wake_fd, (1).to_bytes(8, sys.byteorder))

    @property
    def has_ended(self) -> bool:
        """Return whether both files are flushed, or could not be."""
        return len(self._outcomes) == self._count

    def wait(self) -> tuple[int, int]:
        """Wait for the end. Return the error number of a file that could not be flushed and its descriptor; (0, …) if
        there was none. Any number of threads may wait."""
        self._ended.put(self._ended.get())  # for the next caller
        return max(self._outcomes)
