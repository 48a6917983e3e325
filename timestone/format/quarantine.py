"""Quarantine: files that are neither served nor deleted, with names that end in `.lost`, beside the others."""

from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names


class Quarantine:
    """Quarantine of one folder. Names are durable after `sync`; every method raises OSError."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder

    def keep(self, path: Path) -> None:
        """Rename a file that is not served."""
        self._files.rename(path, self._free_name(path))

    def copy(self, path: Path, start: int) -> None:
        """Copy the bytes of a file from a position on and flush the copy, so that they can be cut off. A partial
        copy is removed."""
        self._files.copy_file(path, self._free_name(path), start)

    def sync(self) -> None:
        """Make the names durable."""
        self._files.sync_directory(self._folder)

    def _free_name(self, path: Path) -> Path:
        return names.free_path(path, names.LOST_SUFFIX, set(self._files.names(self._folder)))
