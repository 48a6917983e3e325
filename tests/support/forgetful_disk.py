"""A file system that loses unflushed data when its power is cut.

    python -m tests.support.forgetful_disk PLATTERS MOUNTPOINT

A FUSE file system in a separate process. The directory PLATTERS is the disk; data written since the last fsync of a
file is in this process's memory only, in sectors. `cut_power` lets some of the sectors reach the disk, in any order,
whole or torn, and then the process ends as by kill -9: every user of the mount gets errors, and the rest is lost. Names
behave the same: a creation, rename or removal in a directory that was not flushed since has happened or not,
independently of the others. Removed files stay in a directory beside PLATTERS until their removal is on the disk.

Unlike a simulation of recorded operations it works under whole processes: their mappings, their threads, and SQLite.
"""

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import mfusepy  # type: ignore[import-untyped, unused-ignore]

SECTOR_BYTES = 512
CUT = "user.power.cut"
"""Setting this attribute of the mount point, to a seed or to nothing, cuts the power."""
FAULT = "user.disk.fault"
"""Setting this one to a `Fault` breaks the disk, until it is set to `Fault.NONE`."""
_ROOT = Path(__file__).resolve().parents[2]


class Fault(StrEnum):
    """What is wrong with a disk."""

    NONE = "none"
    FULL = "full"
    """Nothing can be written, and no space is free."""
    FLUSHES = "flushes"
    """A flush fails with EIO, and the data is still not on the disk."""


class UnflushedFile:
    """The page cache of one file: all of it as programs see it, and the sectors that are not on the disk."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)
        self.dirty: set[int] = set()

    def write(self, data: bytes, position: int) -> None:
        """Like pwrite."""
        self._grow(position)
        self.content[position : position + len(data)] = data
        self._touch(position, position + len(data))

    def truncate(self, size_bytes: int) -> None:
        """Like ftruncate."""
        del self.content[size_bytes:]
        self._grow(size_bytes)

    def flush(self, path: Path) -> None:
        """Put all of it on the disk."""
        with path.open("r+b", buffering=0) as file:
            for sector in self.dirty:
                os.pwrite(file.fileno(), self._sector(sector), sector * SECTOR_BYTES)
            file.truncate(len(self.content))
        self.dirty.clear()

    def lose(self, path: Path, rng: random.Random) -> None:
        """Lose power: some of the dirty sectors have reached the disk, in any order."""
        with path.open("r+b", buffering=0) as file:
            if rng.random() < 0.5:
                file.truncate(len(self.content))
            part = rng.choice((0.0, 0.3, 0.7, 1.0))
            for sector in self.dirty:
                if rng.random() < part:
                    data = self._sector(sector)
                    torn = rng.random() < 0.1
                    os.pwrite(
                        file.fileno(),
                        data[: rng.randrange(len(data))] if torn else data,
                        sector * SECTOR_BYTES,
                    )

    def _grow(self, size_bytes: int) -> None:
        before = len(self.content)
        if size_bytes > before:
            self.content.extend(bytes(size_bytes - before))
            self._touch(before, size_bytes)

    def _touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)))

    def _sector(self, sector: int) -> bytes:
        return bytes(self.content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])


Change = dict[str, int | None]
"""Names in a directory, and the inodes they have from now on; None for a name that is gone. A rename is two names."""


class UnflushedNames:
    """The page cache of the directories: names on the disk, and the changes since. Inodes are those of the platters."""

    def __init__(self, platters: Path) -> None:
        self._root = platters
        self._removed = platters.with_name(f"{platters.name}.removed")
        shutil.rmtree(self._removed, ignore_errors=True)
        self._removed.mkdir()
        self._durable: dict[int, dict[str, int]] = {}
        self._changes: dict[int, list[Change]] = {}

    def change(self, directory: Path, names: Change) -> None:
        """Note changes of names, before they happen."""
        inode = directory.stat().st_ino
        if inode not in self._durable:
            self._durable[inode] = {entry.name: entry.inode() for entry in os.scandir(directory)}
        self._changes.setdefault(inode, []).append(names)

    def made(self, path: Path, make: Callable[[], None]) -> None:
        """Create a file or a directory."""
        names: Change = {path.name: None}
        self.change(path.parent, names)
        make()
        names[path.name] = path.lstat().st_ino

    def renamed(self, old: Path, new: Path) -> None:
        """Rename within a directory."""
        self.change(old.parent, {old.name: None, new.name: old.lstat().st_ino})
        if new.exists():
            self._keep(new)
        old.rename(new)

    def removed(self, path: Path) -> None:
        """Remove a file or an empty directory."""
        self.change(path.parent, {path.name: None})
        self._keep(path)

    def flush(self, directory: Path) -> list[int]:
        """Put all names of the directory on the disk. Return the inodes that are free now."""
        inode = directory.stat().st_ino
        self._durable.pop(inode, None)
        self._changes.pop(inode, None)
        needed = {one for names in self._durable.values() for one in names.values()}
        needed |= {
            one for changes in self._changes.values() for names in changes for one in names.values() if one
        }
        freed = []
        for path in self._removed.iterdir():
            if int(path.name) not in needed:
                path.rmdir() if path.is_dir() else path.unlink()
                freed.append(int(path.name))
        for one in freed:
            self._durable.pop(one, None)
            self._changes.pop(one, None)
        return freed

    def find(self) -> dict[int, Path]:
        """Return the place of each file and directory, including removed ones."""
        found = {self._root.stat().st_ino: self._root}
        for top in (self._removed, self._root):
            for path in sorted(top.rglob("*")):
                found[path.lstat().st_ino] = path
        return found

    def lose(self, rng: random.Random | None) -> None:
        """Lose power: some of the changes have reached the disk, or without `rng` none."""
        for inode, durable in sorted(self._durable.items()):
            names = dict(durable)
            likely = rng.choice((0.0, 0.3, 0.7, 1.0)) if rng else 0.0
            for change in self._changes.get(inode, ()):
                if rng and rng.random() < likely:
                    names |= {name: one for name, one in change.items() if one is not None}
                    names = {name: one for name, one in names.items() if change.get(name, one) is not None}
            self._rearrange(inode, names)

    def _rearrange(self, inode: int, names: dict[str, int]) -> None:
        directory = self.find()[inode]
        for entry in list(os.scandir(directory)):
            if names.get(entry.name) != entry.inode():
                self._keep(Path(entry.path))
        found = self.find()
        for name, one in names.items():
            path = directory / name
            if path.exists():
                continue
            if found[one].is_relative_to(self._removed):
                found[one] = found[one].rename(path)
            else:
                path.hardlink_to(found[one])

    def _keep(self, path: Path) -> None:
        path.rename(self._removed / str(path.lstat().st_ino))


class ForgetfulDisk(mfusepy.Operations):  # type: ignore[misc, unused-ignore]
    """The operations of the file system. Paths are those of the mount, `/` its root."""

    use_ns = True

    def __init__(self, platters: Path) -> None:
        self._platters = platters
        self._unflushed: dict[int, UnflushedFile] = {}
        """By inode."""
        self._names = UnflushedNames(platters)
        self._fault = Fault.NONE

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._on_disk(path))
        known = self._unflushed.get(found.st_ino)
        size_bytes = found.st_size if known is None else len(known.content)
        return {
            "st_mode": found.st_mode,
            "st_nlink": found.st_nlink,
            "st_ino": found.st_ino,
            "st_uid": found.st_uid,
            "st_gid": found.st_gid,
            "st_size": size_bytes,
            "st_blocks": -(-size_bytes // SECTOR_BYTES),
            "st_atime": found.st_atime_ns,
            "st_mtime": found.st_mtime_ns,
            "st_ctime": found.st_ctime_ns,
        }

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._on_disk(path))]

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._platters)
        is_full = self._fault is Fault.FULL
        return {
            name: 0 if is_full and name in ("f_bfree", "f_bavail") else getattr(found, name)
            for name in (
                "f_bsize",
                "f_frsize",
                "f_blocks",
                "f_bfree",
                "f_bavail",
                "f_files",
                "f_ffree",
                "f_namemax",
            )
        }

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        on_disk = self._on_disk(path)
        self._names.made(on_disk, lambda: os.close(os.open(on_disk, os.O_CREAT | os.O_WRONLY, mode)))
        self._unflushed[on_disk.lstat().st_ino] = UnflushedFile(b"")
        return 0

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_TRUNC:
            self._file(path).truncate(0)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._file(path).content[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if self._fault is Fault.FULL:
            raise mfusepy.FuseOSError(errno.ENOSPC)
        self._file(path).write(data, offset)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self._file(path).truncate(length)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        if self._fault is Fault.FLUSHES:
            raise mfusepy.FuseOSError(errno.EIO)
        self._file(path).flush(self._on_disk(path))
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        for inode in self._names.flush(self._on_disk(path)):
            self._unflushed.pop(inode, None)
        return 0

    def rename(self, old: str, new: str) -> int:
        source, target = self._on_disk(old), self._on_disk(new)
        if source.parent != target.parent:
            raise mfusepy.FuseOSError(errno.EXDEV)
        self._names.renamed(source, target)
        return 0

    def unlink(self, path: str) -> int:
        self._names.removed(self._on_disk(path))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        on_disk = self._on_disk(path)
        self._names.made(on_disk, lambda: os.mkdir(on_disk, mode))
        return 0

    def rmdir(self, path: str) -> int:
        if os.listdir(self._on_disk(path)):
            raise mfusepy.FuseOSError(errno.ENOTEMPTY)
        self._names.removed(self._on_disk(path))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._on_disk(path), stat.S_IMODE(mode))
        return 0

    def utimens(self, path: str, times: tuple[int, int]) -> int:
        os.utime(self._on_disk(path), ns=times)
        return 0

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        if (path, name) == ("/", FAULT):
            self._fault = Fault(value.decode())
            return 0
        if (path, name) != ("/", CUT):
            raise mfusepy.FuseOSError(errno.ENOTSUP)
        rng = random.Random(int(value)) if value else None
        found = self._names.find()
        for inode, file in sorted(self._unflushed.items()):
            if inode in found and rng:
                file.lose(found[inode], rng)
        self._names.lose(rng)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def _on_disk(self, path: str) -> Path:
        return self._platters / path.lstrip("/")

    def _file(self, path: str) -> UnflushedFile:
        on_disk = self._on_disk(path)
        inode = on_disk.lstat().st_ino
        if inode not in self._unflushed:
            self._unflushed[inode] = UnflushedFile(on_disk.read_bytes())
        return self._unflushed[inode]


@contextmanager
def mounted(platters: Path, place: Path) -> Iterator[None]:
    """Mount a forgetful disk with the files in `platters`, at the empty directory `place`. Leaving the block ends it
    like a kill: unflushed data is lost, names are kept."""
    disk = subprocess.Popen([sys.executable, "-m", __name__, str(platters), str(place)], cwd=_ROOT)
    try:
        while not place.is_mount():
            assert disk.poll() is None, f"the disk could not be mounted: exit code {disk.returncode}"
            time.sleep(0.01)
        yield
    finally:
        disk.kill()
        disk.wait()
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def set_fault(place: Path, fault: Fault) -> None:
    """Break the disk at `place`, or mend it."""
    os.setxattr(place, FAULT, fault.encode())


def cut_power(place: Path, seed: int | None) -> None:
    """Cut the power of the disk at `place`. Without a seed it loses all unflushed data."""
    try:
        os.setxattr(place, CUT, b"" if seed is None else b"%d" % seed)
    except OSError as error:
        assert error.errno in (errno.ENOTCONN, errno.ECONNABORTED), error  # noqa: PT017
    else:
        raise AssertionError("the disk is still there")


def reason_to_skip() -> str:
    """Return why this system cannot run such a disk; empty when it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse that this user may open"
    return "" if os.geteuid() == 0 else "only root may mount here"


if __name__ == "__main__":
    mfusepy.FUSE(ForgetfulDisk(Path(sys.argv[1])), sys.argv[2], foreground=True, nothreads=True)
