"""The LOCK file: one process owns a store. An flock, so the kernel frees it when the owner dies, however it
dies."""

import json
import os
import platform
from pathlib import Path

from timestone.clock import Clock
from timestone.errors import StoreLocked
from timestone.files import Files


class StoreLock:
    """Ownership of a store, from construction to `release`."""

    def __init__(self, files: Files, path: Path, boot_id: bytes) -> None:
        """Raises StoreLocked with the owner's pid."""
        self._files = files
        self._fd = files.open_lock(path)
        if not files.try_lock(self._fd):
            pid, host = read_owner(files, path)
            files.close(self._fd)
            raise StoreLocked(path.parent, pid, host)
        owner = json.dumps({"pid": os.getpid(), "host": platform.node(), "boot_id": boot_id.hex()})
        # One write of a fixed size: whoever reads the file sees one owner, never half of two.
        try:
            files.write_all(self._fd, owner.encode().ljust(512), 0)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the store up. Releasing twice is fine: a child that was forked may fork again, and by then the number
        of the descriptor is another file's."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)


def owner_elsewhere(files: Files, path: Path) -> int | None:
    """The owner that the file names, when it is alive on this machine though it does not hold this lock (which the
    caller has seen): it has let go of the store, or this is a copy of the store it has. None otherwise."""
    try:
        owner = json.loads(files.read_file(path))
        pid, boot_id = int(owner["pid"]), bytes.fromhex(owner["boot_id"])
        os.kill(pid, 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if any(boot_id) and boot_id == Clock().boot_id() else None


def read_owner(files: Files, path: Path) -> tuple[int | None, str | None]:
    """The pid and host written by the last owner, who may be gone; None for what is not known."""
    try:
        owner = json.loads(files.read_file(path))
        return int(owner["pid"]), str(owner["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None
