"""The LOCK file: one process owns a store. An flock, so the kernel frees it when the owner dies, however it
dies."""

import json
import os
import platform
import time
from pathlib import Path

from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.disk.json_document import json_object
from timestone.errors import StoreLocked

# `inspect` asks the kernel by taking the lock for a moment, and so does a process of anybody's between fork and exec,
# which has the descriptors of its parent: neither may keep an owner from opening.
_TRIES = 10
_BETWEEN_TRIES_S = 0.01


class StoreLock:
    """Ownership of a store, from construction to `release`."""

    def __init__(self, files: Files, path: Path, boot_id: bytes) -> None:
        """Raises StoreLocked with the owner's pid, after a tenth of a second."""
        self._files = files
        self._fd = files.open_lock(path)
        try:
            taken = self._taken()
        except BaseException:
            self.abandon()
            raise
        if not taken:
            self.abandon()
            raise StoreLocked(path.parent, *read_owner(files, path))
        owner = json.dumps({"pid": os.getpid(), "host": platform.node(), "boot_id": boot_id.hex()})
        # One write of a fixed size: whoever reads the file sees one owner, never half of two.
        try:
            files.write_all(self._fd, owner.encode().ljust(512), 0)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the store up, whoever else still has the descriptor: a child forked a moment ago does. Releasing twice
        is fine."""
        if self._fd >= 0:
            self._files.unlock(self._fd)
        self.abandon()

    def abandon(self) -> None:
        """Close this copy of the descriptor only: the lock stays the process's that this one was forked from. Doing
        it twice is fine: the child may fork again, and by then the number of the descriptor is another file's."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)

    def _taken(self) -> bool:
        for _ in range(_TRIES - 1):
            if self._files.try_lock(self._fd):
                return True
            time.sleep(_BETWEEN_TRIES_S)
        return self._files.try_lock(self._fd)


def owner_elsewhere(files: Files, path: Path) -> int | None:
    """The owner that the file names, when it is alive on this machine though it does not hold this lock (which the
    caller has seen): it has released the store, or this is a copy of the store it has. None otherwise."""
    try:
        owner = json_object(files.read_file(path))
        pid, boot_id = int(owner["pid"]), bytes.fromhex(owner["boot_id"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return pid if _is_alive(pid) and any(boot_id) and boot_id == Clock().boot_id() else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # and of another owner
    except (OSError, OverflowError):
        return False
    return True


def is_owned(files: Files, path: Path) -> bool:
    """Does a process hold this lock, as far as the file can be opened? Asks the kernel, and lets go at once. Raises
    OSError."""
    try:
        fd = files.open(path)
    except OSError:
        return False
    try:
        return not files.try_lock(fd)
    finally:
        files.close(fd)


def read_owner(files: Files, path: Path) -> tuple[int | None, str | None]:
    """The pid and host written by the last owner, who may be gone; None for what is not known."""
    try:
        owner = json_object(files.read_file(path))
        return int(owner["pid"]), str(owner["host"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None, None
