"""LOCK file of a store: one process owns a store. The flock is released by the kernel when the owner dies."""

import json
import os
import platform
import time
from pathlib import Path

from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.disk.json_document import json_object
from timestone.errors import StoreLocked

# `inspect` takes the lock for a moment to ask the kernel, and a child between fork and exec has the
# descriptors of its parent: neither may prevent an open.
_TRIES = 10
_BETWEEN_TRIES_S = 0.01

_HELD: set[tuple[int, Path]] = set()
"""Process and file of each lock held here. The pid in the file does not tell: each container has a process 1."""


class StoreLock:
    """Ownership of a store, from construction to `release`."""

    def __init__(self, files: Files, path: Path, boot_id: bytes) -> None:
        """Take the lock. Raises StoreLocked with the pid of the owner, after a tenth of a second."""
        self._files = files
        self._key = (os.getpid(), path.resolve())
        self._is_held = False
        self._fd = files.open_lock(path)
        try:
            taken = self._taken()
        except BaseException:
            self.abandon()
            raise
        if not taken:
            self.abandon()
            raise StoreLocked(path.parent, *read_owner(files, path), is_here=self._key in _HELD)
        owner = json.dumps({"pid": os.getpid(), "host": platform.node(), "boot_id": boot_id.hex()})
        # One write of a fixed size, so that a reader sees one owner.
        try:
            files.write_all(self._fd, owner.encode().ljust(512), 0)
        except BaseException:
            self.release()
            raise
        self._is_held = True
        _HELD.add(self._key)

    def release(self) -> None:
        """Release the lock, also while a forked child has the descriptor. Idempotent."""
        if self._fd >= 0:
            self._files.unlock(self._fd)
        self.abandon()

    def abandon(self) -> None:
        """Close this copy of the descriptor in a forked child, without releasing the lock of its parent. Idempotent:
        a number closed twice could be another file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._is_held:
                _HELD.discard(self._key)
            self._files.close(fd)

    def _taken(self) -> bool:
        for _ in range(_TRIES - 1):
            if self._files.try_lock(self._fd):
                return True
            time.sleep(_BETWEEN_TRIES_S)
        return self._files.try_lock(self._fd)


def owner_elsewhere(files: Files, path: Path) -> int | None:
    """Return the pid in the file if that process lives on this machine without holding this lock, as the caller has
    checked: it has released the store, or this is a copy of its store. None otherwise."""
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
        return True  # and belongs to another owner
    except (OSError, OverflowError):
        return False
    return True


def is_owned(files: Files, path: Path) -> bool:
    """Return whether a process holds this lock. Takes and releases it to ask the kernel. Raises OSError."""
    try:
        fd = files.open(path)
    except OSError:
        return False
    try:
        return not files.try_lock(fd)
    finally:
        files.close(fd)


def read_owner(files: Files, path: Path) -> tuple[int | None, str | None]:
    """Return pid and host that the last owner wrote, alive or not; None for what is unknown."""
    try:
        owner = json_object(files.read_file(path))
        return int(owner["pid"]), str(owner["host"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None, None
