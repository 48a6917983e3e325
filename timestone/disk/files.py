"""The one door to the disk. Every system call of the engine on a file goes through a `Files`.

Tests replace it: one twin records the operations and builds what a power loss could leave, another fails
them. So nothing here knows any format, and nothing elsewhere calls `os` on a file of the store (the SQLite
catalogue is the exception: it brings its own tested storage layer and is never on the data path).

All methods raise OSError that names the file, also where the kernel knows only a descriptor.
"""

import ctypes
import errno
import fcntl
import functools
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias, cast

from timestone.disk.flush_helpers import FlushHelpers
from timestone.kernel import loops

Data: TypeAlias = bytes | bytearray | memoryview

_PIECES_MOST = os.sysconf("SC_IOV_MAX")
"""How many pieces one pwritev takes."""
_COPY_BYTES = 4 << 20
_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE of <linux/falloc.h>: Python has no name for it, and no function that takes it."""


def _named(error: OSError, fd: int) -> OSError:
    """The error with the path of its file, as the system tells it for a descriptor. Costs nothing until something
    fails."""
    if error.filename is None:
        try:
            error.filename = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            pass  # a system without /proc, or a descriptor that is closed
    return error


@functools.cache
def _helpers() -> FlushHelpers:
    """Of this process, for all stores."""
    return FlushHelpers()


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """The call of Linux, or None: Python offers it for files that grow only."""
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (AttributeError, OSError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return cast(Callable[[int, int, int, int], int], function)


os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads do not survive a fork


class Files:
    """The real file system."""

    def create(self, path: Path) -> int:
        """A new empty file, opened for reading and writing; FileExistsError if there is one."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def open(self, path: Path, *, write: bool = False) -> int:
        """A descriptor of an existing file."""
        return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)

    def open_lock(self, path: Path) -> int:
        """A descriptor of the lock file, created when missing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwrite(self, fd: int, data: Data, position: int) -> int:
        """Write some of `data`; returns how many bytes. May be short, like the system call."""
        try:
            return os.pwrite(fd, data, position)
        except OSError as error:
            raise _named(error, fd) from None

    def pwritev(self, fd: int, pieces: tuple[bytes, ...], position: int) -> int:
        """Like `pwrite` of the pieces back to back, without copying them together. As many pieces as the
        kernel takes in one call."""
        try:
            return loops.pwritev(fd, pieces, position)
        except OSError as error:
            raise _named(error, fd) from None

    def pread(self, fd: int, length_bytes: int, position: int) -> bytes:
        """Read up to `length_bytes`. May be short, like the system call: at the end of the file, after a signal, or
        when more than 2 GiB are wanted."""
        try:
            return os.pread(fd, length_bytes, position)
        except OSError as error:
            raise _named(error, fd) from None

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def inode(self, fd: int) -> int:
        return os.fstat(fd).st_ino

    def stat(self, path: Path) -> os.stat_result:
        return os.stat(path)

    def reserve(self, fd: int, start: int, end: int) -> None:
        """Allocate the blocks of [start, end) as zeros and grow the file to `end`: a later pwrite there
        cannot meet ENOSPC, and a mapping of it cannot meet SIGBUS."""
        try:
            os.posix_fallocate(fd, start, end - start)
        except OSError as error:
            raise _named(error, fd) from None

    def allocate_ahead(self, fd: int, start: int, end: int) -> None:
        """Allocate the blocks of [start, end), which lie behind the end of the file, and leave its size as it is:
        pwrites there find their blocks. What stays unused goes with `truncate`. Raises OSError also where the system
        or the file system cannot do it, which takes nothing from what a pwrite may do."""
        allocate = _fallocate()
        if allocate is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if allocate(fd, _KEEP_SIZE, start, end - start) != 0:
            number = ctypes.get_errno()
            raise _named(OSError(number, os.strerror(number)), fd)

    def truncate(self, fd: int, size: int) -> None:
        """Nobody may look behind `size` in a mapping of the file. Gives back blocks behind it, also when the file has
        that size."""
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise _named(error, fd) from None

    def fdatasync(self, fd: int) -> None:
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise _named(error, fd) from None

    def fdatasync_both(self, one: int, other: int) -> None:
        """Like `fdatasync` of two files, side by side: they wait for the device together, so both take little
        longer than one. Raises once both are done."""
        try:
            pending = _helpers().begin(self.fdatasync, other)
        except RuntimeError:  # the interpreter is ending and starts no more threads
            self.fdatasync(one)
            self.fdatasync(other)
            return
        try:
            self.fdatasync(one)
        finally:
            failure = pending.get()
        if failure is not None:
            raise failure

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and removals in the directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise _named(error, fd) from None
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        os.mkdir(path)

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError if something has that name."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        """Only an empty one goes."""
        os.rmdir(path)

    def free_bytes(self, path: Path) -> int:
        """What an unprivileged writer may still use on the file system of `path`."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def try_lock(self, fd: int) -> bool:
        """Take the flock of an open file; False when another process has it. Freed by the kernel when the
        owner dies."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise _named(error, fd) from None
        return True

    def unlock(self, fd: int) -> None:
        """Release the flock, for every descriptor that shares it with this one: forked children have one."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def map(self, fd: int, length_bytes: int) -> mmap.mmap:
        """A read-only shared mapping of the first bytes of a file. Read-only because a store through a
        mapping on a full disk is SIGBUS, which no Python program survives. Raises ValueError for a file that is
        shorter."""
        try:
            return mmap.mmap(fd, length_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        except OSError as error:
            raise _named(error, fd) from None

    # Written once on top of the above, so that a twin sees each system call.

    def write_all(self, fd: int, data: Data, position: int) -> None:
        """Write all of `data`; on an error some of it may be in the file and the caller must not publish
        any."""
        done = self.pwrite(fd, data, position)
        if type(data) is bytes and done == len(data):
            return  # a view costs a third of a short write
        view = memoryview(data).cast("B")
        while done < len(view):
            count = self.pwrite(fd, view[done:], position + done)
            if count == 0:
                raise _named(OSError(errno.EIO, "pwrite wrote nothing"), fd)
            done += count

    def read_all(self, fd: int, length_bytes: int, position: int) -> bytes:
        """Read `length_bytes`; short only at the end of the file."""
        if length_bytes == 0:
            return b""
        data = self.pread(fd, length_bytes, position)
        while len(data) < length_bytes:
            more = self.pread(fd, length_bytes - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def write_pieces(self, fd: int, pieces: tuple[bytes, ...], size_bytes: int, position: int) -> None:
        """Like `write_all` of the pieces back to back; `size_bytes` is their sum."""
        if len(pieces) == 1:
            self.write_all(fd, pieces[0], position)
            return
        for first in range(0, len(pieces), _PIECES_MOST):
            group = pieces[first : first + _PIECES_MOST]
            wanted = size_bytes if len(group) == len(pieces) else sum(map(len, group))
            done = self.pwritev(fd, group, position)
            if done < wanted:  # the disk is full, or nearly: rare, and soon over
                self.write_all(fd, b"".join(group)[done:], position + done)
            position += wanted

    def read_file(self, path: Path) -> bytes:
        fd = self.open(path)
        try:
            return self.read_all(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def make_directories(self, path: Path) -> None:
        """A directory, with those above it that are missing, durably. Fine when it is there."""
        missing = [one for one in (path, *path.parents) if not one.exists()]
        there = missing[-1].parent if missing else path
        # Whoever made that one may not have come to it: another process, just now, one that was killed, or `mkdir`.
        with suppress(OSError):  # it may be a mount point, in what nobody may read or sync
            self.sync_directory(there.parent)
        for one in reversed(missing):
            with suppress(FileExistsError):  # another caller wants it, too
                self.make_directory(one)
            self.sync_directory(one.parent)

    def write_file(self, path: Path, data: Data) -> None:
        """A new file with this content, flushed; on an error there is none. The caller syncs the directory."""
        with self.new_file(path) as fd:
            self.write_all(fd, data, 0)

    def copy_file(self, source: Path, target: Path, start: int = 0, end: int | None = None) -> None:
        """A new file with the bytes [start, end) of another, flushed; on an error there is none. The caller syncs the
        directory."""
        fd = self.open(source)
        try:
            with self.new_file(target) as copy:
                self.copy_bytes(fd, copy, start, self.size(fd) if end is None else end)
        finally:
            self.close(fd)

    def copy_bytes(self, source: int, target: int, start: int, end: int) -> None:
        """Copy the bytes [start, end) of an open file, or as many of them as it has, to the front of another."""
        at = start
        while at < end and (piece := self.pread(source, min(_COPY_BYTES, end - at), at)):
            self.write_all(target, piece, at - start)
            at += len(piece)

    @contextmanager
    def new_file(self, path: Path) -> Iterator[int]:
        """A new file for the block to write to, flushed behind it; on an error there is none. The caller syncs the
        directory."""
        fd = self.create(path)
        try:
            yield fd
            self.fdatasync(fd)
        except BaseException:
            with suppress(OSError):  # what was wrong first is what the caller has to know
                self.unlink(path)
            raise
        finally:
            self.close(fd)
