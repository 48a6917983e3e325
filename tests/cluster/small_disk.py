"""A disk of its own for a folder, which fills up and has room again: a tmpfs whose size is changed, so that a full one
takes no memory."""

import os
import shutil
import subprocess
from pathlib import Path

_SIZE_BYTES = 4 << 30
_ATTEMPTS = 20


class SmallDisk:
    """A file system in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def mount(self) -> None:
        """Mount it. Raises CalledProcessError where that is not allowed."""
        self.folder.mkdir(exist_ok=True)
        self._mount("-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "disk")

    def unmount(self) -> None:
        """Unmount it, also while it is in use."""
        subprocess.run(["umount", "--lazy", self.folder], check=False, capture_output=True, timeout=30)

    def fill(self, free_bytes: int) -> None:
        """Leave so much free space, and no more."""
        for attempt in range(1, _ATTEMPTS + 1):
            found = os.statvfs(self.folder)
            used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
            try:
                return self._mount("-o", f"remount,size={used_bytes + free_bytes}")
            except subprocess.CalledProcessError:  # a node has written since
                if attempt == _ATTEMPTS:
                    raise
        return None

    def empty(self) -> None:
        """Have much free space again."""
        self._mount("-o", f"remount,size={_SIZE_BYTES}")

    def _mount(self, *words: str) -> None:
        subprocess.run(["mount", *words, self.folder], check=True, capture_output=True, timeout=30)


def remove_all(folder: Path) -> None:
    """Remove what is in a folder, which may be where a disk is mounted."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
