"""Lock files: one process of a kind at a time on one machine."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timestone.disk.files import Files

from ..errors import Busy


@contextmanager
def exclusively(path: Path, *, busy: str) -> Iterator[None]:
    """Hold a lock file, whose folder is created durably; the kernel releases it when this process ends for any reason.
    Raises Busy with the text `busy` if another process holds it."""
    Files().make_directories(path.parent)
    with open(Files().open_lock(path), "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(busy) from None
        yield
