"""Doorbell between processes: a named pipe in the folder of a store that wakes its owner.

No timer and no polling: the owner blocks in a read, and a process that rings learns at once whether one listens. The
pipe holds no data, so it does not go through `files.py`."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from timestone.disk import access


class Doorbell:
    """Listener of a named pipe, until `close`."""

    def __init__(self, path: Path, answer: Callable[[], None], *, name: str) -> None:
        """answer: called by a thread of this name, once at the start and after each ring. Raises OSError if the file
        system has no named pipes, or another file is in the place of this one."""
        access.make_fifo(path)
        self._path = path
        # Open for reading and writing: does not block, and gives no end of file after the last writer closes.
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._answer = answer
        self._closing = False
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the running call of `answer`, end the thread and remove the pipe, which a copy of the folder may fail
        on."""
        self._closing = True
        os.write(self._fd, b"0")
        self._thread.join()
        os.close(self._fd)
        self._path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close this copy of the descriptor, in a forked child that has no listening thread."""
        os.close(self._fd)

    def _listen(self) -> None:
        while not self._closing:
            self._answer()
            os.read(self._fd, 4096)


def ring(path: Path) -> bool:
    """Ring the doorbell. Return False if no process listens."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # no reader, or no pipe
        return False
    try:
        os.write(fd, b"1")
    except BlockingIOError:
        pass  # the pipe is full of rings that are not read yet
    except BrokenPipeError:
        return False
    finally:
        os.close(fd)
    return True
