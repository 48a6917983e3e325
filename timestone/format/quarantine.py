"""What is not served any more and not deleted either: files beside the others whose names end in `.lost`."""

from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names


class LostFiles:
    """Those of one folder. Nothing has its name for good before `sync`; everything raises OSError."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder

    def keep(self, path: Path) -> None:
        """Rename a file that is not served."""
        self._files.rename(path, self._free_name(path))

    def copy(self, path: Path, start: int) -> None:
        """Copy what a file has from a position on, durably: afterwards it may be cut off. Half a copy is removed."""
        self._files.copy_file(path, self._free_name(path), start)

    def sync(self) -> None:
        """Make the names durable."""
        self._files.sync_directory(self._folder)

    def _free_name(self, path: Path) -> Path:
        return names.lost_path(path, set(self._files.names(self._folder)))
