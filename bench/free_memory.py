"""Free memory that was used a moment before."""

import os
from pathlib import Path

_TOUCH_BYTES = 1 << 20


def touch_free_memory(directory: Path, size_bytes: int) -> None:
    """Write a file of this size and remove it, so that the following run finds memory that was used a moment before.

    On a virtual machine the first use of a page that the host has not backed yet, or has taken back while it was free,
    costs ten times the write itself. Without this, the row that happens to meet such pages would lose.
    """
    path, block = directory / "touched", bytes(_TOUCH_BYTES)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        for position in range(0, size_bytes, _TOUCH_BYTES):
            os.pwrite(fd, block, position)
    finally:
        os.close(fd)
        path.unlink()
