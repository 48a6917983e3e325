"""Temporary folders for what is fetched from buckets. Each is locked by the process that uses it, so what a killed one
has left is removed by the next process of the same user that makes one."""

import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from timestone.disk.files import Files

PREFIX = "timestone-bucket-"
_LOCK = "lock"
_NEW_S = 60.0
"""A folder that is younger may be about to be locked."""


class TemporaryFolder:
    """A folder until `close`. `path` is where it is."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._files = Files()
        _remove_left(self._files)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._fd: int | None = self._files.open_lock(self.path / _LOCK)
        self._files.try_lock(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove it. What cannot be removed is left to the next process."""
        if self._fd is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self._files.close(self._fd)
            self._fd = None


def _remove_left(files: Files) -> None:
    """Remove the folders of processes that have ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # of another user, or removed in between
            lock = path / _LOCK
            if files.stat(lock).st_mtime > time.time() - _NEW_S:
                continue
            with files.opened(lock, write=True) as fd:
                if files.try_lock(fd):
                    shutil.rmtree(path, ignore_errors=True)
