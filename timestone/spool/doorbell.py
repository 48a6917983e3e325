"""A bell between processes: a named pipe in the store's folder, on which others knock and one listens.

No timer and no polling: the listener sleeps in a read, and whoever rings learns at once whether anybody listens.
Holds no data, so it is not one of the files that `files.py` guards."""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path


class Bell:
    """Listens until it is closed."""

    def __init__(self, path: Path, answer: Callable[[], None], *, name: str) -> None:
        """`answer` is called by a thread of this name: once at the beginning, and after that when somebody has rung.
        Raises OSError where there are no named pipes."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o666)
        self._path = path
        # For reading and writing: it opens at once, and does not end when the last one who rang has gone.
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._answer = answer
        self._closing = False
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the answer that is being given, listen no more, and take the pipe away: a folder without one is
        easier to copy."""
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
    """Ring a bell; false when nobody listens."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # no reader, or no bell
        return False
    try:
        os.write(fd, b"1")
    except BlockingIOError:
        pass  # it has been rung 65,536 times and will be heard
    except BrokenPipeError:
        return False
    finally:
        os.close(fd)
    return True
