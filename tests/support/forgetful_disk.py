"""A file system that forgets: what was written and not flushed is gone when its power is cut.

    python -m tests.support.forgetful_disk PLATTERS MOUNTPOINT

A FUSE file system in a process of its own. The directory PLATTERS is the disk; what was written since the last fsync of
a file is in this process's memory only, in sectors. `cut_power` has some of them reach the disk, in any order, whole or
torn, and then the process ends as by kill -9: everything that used the mount gets errors, and the rest is forgotten.
Names are on the disk at once; that they are not is what `power_loss.py` simulates.

Unlike a simulation of recorded operations this is met by whole processes: their mappings, their threads, and SQLite.
"""

import errno
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mfusepy  # type: ignore[import-untyped, unused-ignore]

SECTOR_BYTES = 512
CUT = "user.power.cut"
"""Setting this attribute of the mount point, to a seed, cuts the power."""
_ROOT = Path(__file__).resolve().parents[2]


class UnflushedFile:
    """What the page cache has of one file: all of it as programs see it, and which sectors the disk has not."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)
        self.dirty: set[int] = set()

    def write(self, data: bytes, position: int) -> None:
        """As pwrite."""
        self._grow(position)
        self.content[position : position + len(data)] = data
        self._touch(position, position + len(data))

    def truncate(self, size_bytes: int) -> None:
        """As ftruncate."""
        del self.content[size_bytes:]
        self._grow(size_bytes)

    def flush(self, path: Path) -> None:
        """All of it is on the disk."""
        with path.open("r+b", buffering=0) as file:
            for sector in self.dirty:
                os.pwrite(file.fileno(), self._sector(sector), sector * SECTOR_BYTES)
            file.truncate(len(self.content))
        self.dirty.clear()

    def lose(self, path: Path, rng: random.Random) -> None:
        """The power fails: some of what is dirty has made it, in whatever order."""
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


class ForgetfulDisk(mfusepy.Operations):  # type: ignore[misc, unused-ignore]
    """The operations of the file system. Paths are those of the mount, `/` its root."""

    use_ns = True

    def __init__(self, platters: Path) -> None:
        self._platters = platters
        self._unflushed: dict[str, UnflushedFile] = {}

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._on_disk(path))
        known = self._unflushed.get(path)
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
        return {
            name: getattr(found, name)
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
        os.close(os.open(self._on_disk(path), os.O_CREAT | os.O_WRONLY, mode))
        return 0

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_TRUNC:
            self._file(path).truncate(0)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._file(path).content[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._file(path).write(data, offset)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self._file(path).truncate(length)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._file(path).flush(self._on_disk(path))
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self._on_disk(old), self._on_disk(new))
        self._unflushed.pop(new, None)
        if old in self._unflushed:
            self._unflushed[new] = self._unflushed.pop(old)
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._on_disk(path))
        self._unflushed.pop(path, None)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._on_disk(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._on_disk(path))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._on_disk(path), stat.S_IMODE(mode))
        return 0

    def utimens(self, path: str, times: tuple[int, int]) -> int:
        os.utime(self._on_disk(path), ns=times)
        return 0

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        if (path, name) != ("/", CUT):
            raise mfusepy.FuseOSError(errno.ENOTSUP)
        rng = random.Random(int(value))
        for one, file in sorted(self._unflushed.items()):
            file.lose(self._on_disk(one), rng)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def _on_disk(self, path: str) -> Path:
        return self._platters / path.lstrip("/")

    def _file(self, path: str) -> UnflushedFile:
        if path not in self._unflushed:
            self._unflushed[path] = UnflushedFile(self._on_disk(path).read_bytes())
        return self._unflushed[path]


@contextmanager
def mounted(platters: Path, place: Path) -> Iterator[None]:
    """A forgetful disk with the files in `platters`, at the empty directory `place`. Leaving the block cuts the power
    if nobody has, and forgets all that was not flushed."""
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


def cut_power(place: Path, seed: int) -> None:
    """The power of the disk at `place` fails."""
    try:
        os.setxattr(place, CUT, b"%d" % seed)
    except OSError as error:
        assert error.errno in (errno.ENOTCONN, errno.ECONNABORTED), error  # noqa: PT017
    else:
        raise AssertionError("the disk is still there")


def reason_to_skip() -> str:
    """Why there can be no such disk here; empty when there can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse that this user may open"
    return "" if os.geteuid() == 0 else "only root may mount here"


if __name__ == "__main__":
    mfusepy.FUSE(ForgetfulDisk(Path(sys.argv[1])), sys.argv[2], foreground=True, nothreads=True)
