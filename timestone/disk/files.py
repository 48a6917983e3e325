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
from types import TracebackType
from typing import TypeAlias, cast

from timestone.disk import access
from timestone.kernel import loops

Data: TypeAlias = bytes | bytearray | memoryview

_PIECES_MOST = os.sysconf("SC_IOV_MAX")
"""Maximum pieces of one pwritev."""
_COPY_BYTES = 4 << 20
_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE of <linux/falloc.h>; Python has no name and no function for it."""


def _named(error: OSError, fd: int) -> OSError:
    """Return the error with the path of its file, as the system knows it for the descriptor. No cost without an
    error."""
    if error.filename is None:
        try:
            error.filename = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            pass  # no /proc on this system, or a closed descriptor
    return error


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return fallocate of Linux; None elsewhere. Python offers only the form that grows the file."""
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (AttributeError, OSError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return cast(Callable[[int, int, int, int], int], function)


class Files:
    """The real file system."""

    def create(self, path: Path) -> int:
        """Create an empty file and open it for reading and writing. Raises FileExistsError."""
        return access.create_file(path)

    def open(self, path: Path, *, write: bool = False) -> int:
        """Open an existing file and return its descriptor. Refuses a pipe or a device, which could wait endlessly."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(path, flags)
        try:
            access.check_regular(os.fstat(fd), path)
        except OSError:
            os.close(fd)
            raise
        return fd

    def open_lock(self, path: Path) -> int:
        """Open the lock file, creating it if missing."""
        return access.create_file(path, exclusive=False)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwrite(self, fd: int, data: Data, position: int) -> int:
        """Write some of `data` and return the number of bytes, which may be short as with the system call."""
        try:
            return os.pwrite(fd, data, position)
        except OSError as error:
            raise _named(error, fd) from None

    def pwritev(self, fd: int, pieces: tuple[bytes, ...], position: int) -> int:
        """Write pieces back to back as `pwrite`, without copying them together; as many as the kernel takes in one
        call."""
        try:
            return loops.pwritev(fd, pieces, position)
        except OSError as error:
            raise _named(error, fd) from None

    def pread(self, fd: int, length_bytes: int, position: int) -> bytes:
        """Read up to `length_bytes`. May be short as with the system call: at the end of the file, after a signal,
        or above 2 GiB."""
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
        """Allocate zeroed blocks for [start, end) and grow the file to `end`. A later pwrite there cannot fail with
        ENOSPC, and a mapping cannot raise SIGBUS."""
        try:
            os.posix_fallocate(fd, start, end - start)
        except OSError as error:
            raise _named(error, fd) from None

    def allocate_ahead(self, fd: int, start: int, end: int) -> None:
        """Allocate blocks for [start, end) after the end of the file without changing its size. Unused blocks are
        freed by `truncate`. Raises OSError also if the system or the file system cannot do it; pwrite works all the
        same."""
        allocate = _fallocate()
        if allocate is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if allocate(fd, _KEEP_SIZE, start, end - start) != 0:
            number = ctypes.get_errno()
            raise _named(OSError(number, os.strerror(number)), fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size`; no process may access a mapping beyond it. Frees blocks after it, also if the file
        has that size."""
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
        """Flush two files concurrently: both take little longer than one. Raises after both have ended."""
        try:
            flush = loops.Flush(other)
        except RuntimeError:  # the interpreter is shutting down and starts no threads
            self.fdatasync(one)
            self.fdatasync(other)
            return
        try:
            self.fdatasync(one)
        finally:
            self.end_flush(flush)

    def begin_flush(self, one: int, other: int, wake_fd: int) -> loops.Flush | None:
        """Begin to flush two files concurrently, and have eight bytes written to `wake_fd` when both have ended. None
        if that cannot be done: call `fdatasync_both` instead."""
        try:
            return loops.Flush(one, other, wake_fd)
        except RuntimeError:  # no thread can be started
            return None

    def end_flush(self, flush: loops.Flush) -> None:
        """Wait for the end of a flush. Raises the error of a file."""
        number, fd = flush.wait()
        if number:
            raise _named(OSError(number, os.strerror(number)), fd)

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and removals in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise _named(error, fd) from None
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        access.make_folder(path)

    def names(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. Raises FileExistsError."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def free_bytes(self, path: Path) -> int:
        """Return the bytes available to an unprivileged writer on the file system of `path`."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def try_lock(self, fd: int) -> bool:
        """Take the flock of an open file. Return False if another process holds it. The kernel releases it when the
        owner dies."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise _named(error, fd) from None
        return True

    def unlock(self, fd: int) -> None:
        """Release the flock for every descriptor that shares it, as those of forked children do."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def map(self, fd: int, length_bytes: int) -> mmap.mmap:
        """Map the first bytes of a file, shared and read-only: a store through a mapping on a full disk raises
        SIGBUS, which ends a Python program. Raises ValueError for a shorter file."""
        try:
            return mmap.mmap(fd, length_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        except OSError as error:
            raise _named(error, fd) from None

    # Built on the methods above, so that a test double sees each system call.

    def write_all(self, fd: int, data: Data, position: int) -> None:
        """Write all of `data`. On an error some of it may be in the file, and the caller must publish none."""
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
        """Write all pieces back to back; size_bytes is their sum."""
        if len(pieces) == 1:
            self.write_all(fd, pieces[0], position)
            return
        for first in range(0, len(pieces), _PIECES_MOST):
            group = pieces[first : first + _PIECES_MOST]
            wanted = size_bytes if len(group) == len(pieces) else sum(map(len, group))
            done = self.pwritev(fd, group, position)
            if done < wanted:  # rare: the disk is nearly full
                self.write_all(fd, b"".join(group)[done:], position + done)
            position += wanted

    def discard(self, path: Path) -> None:
        """Unlink a file if there is one, such as that of an earlier try."""
        with suppress(FileNotFoundError):
            self.unlink(path)

    def reader(self, fd: int) -> Callable[[int, int], bytes]:
        """Return a function that reads an open file by position and length, as `pread` does."""
        return lambda position, length_bytes: self.pread(fd, length_bytes, position)

    @contextmanager
    def opened(self, path: Path, *, write: bool = False) -> Iterator[int]:
        """Open an existing file for the block, which gets its descriptor, and close it behind."""
        fd = self.open(path, write=write)
        try:
            yield fd
        finally:
            self.close(fd)

    def read_file(self, path: Path) -> bytes:
        with self.opened(path) as fd:
            return self.read_all(fd, self.size(fd), 0)

    def read_part(self, path: Path, length_bytes: int, position: int = 0) -> bytes:
        """Read a part of a file as `pread` does."""
        with self.opened(path) as fd:
            return self.pread(fd, length_bytes, position)

    def make_directories(self, path: Path) -> None:
        """Create a directory and its missing parents, durably. No effect if it exists."""
        missing = [one for one in (path, *path.parents) if not one.exists()]
        there = missing[-1].parent if missing else path
        # Its creator may not have synced it: a concurrent process, one that was killed, or `mkdir`.
        with suppress(OSError):  # the parent may be a mount point without permission to read or sync it
            self.sync_directory(there.parent)
        for one in reversed(missing):
            with suppress(FileExistsError):  # another caller creates it too
                self.make_directory(one)
            self.sync_directory(one.parent)

    def write_file(self, path: Path, data: Data) -> None:
        """Create a flushed file with this content; none is left on an error. The caller syncs the directory."""
        with self.new_file(path) as fd:
            self.write_all(fd, data, 0)

    def copy_file(self, source: Path, target: Path, start: int = 0, end: int | None = None) -> None:
        """Create a flushed file with the bytes [start, end) of another; none is left on an error. The caller syncs
        the directory."""
        with self.opened(source) as fd, self.new_file(target) as copy:
            self.copy_bytes(fd, copy, start, self.size(fd) if end is None else end)

    def copy_bytes(self, source: int, target: int, start: int, end: int) -> None:
        """Copy the bytes [start, end) of an open file, or as many as exist, to the front of another."""
        at = start
        while at < end and (piece := self.pread(source, min(_COPY_BYTES, end - at), at)):
            self.write_all(target, piece, at - start)
            at += len(piece)

    def new_file(self, path: Path) -> "NewFile":
        """Create a file for the block to write to, flushed at its end; none is left on an error. The caller syncs
        the directory."""
        return NewFile(self, path)


class NewFile:
    """The context of `Files.new_file`.

    Not a generator: an interrupt on entering would leave it suspended, and it would remove the file when the exception
    is forgotten, by which time another writer may have the name. Here such an interrupt leaves the file."""

    __slots__ = ("_fd", "_files", "_path")

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    def __enter__(self) -> int:
        self._fd = self._files.create(self._path)
        return self._fd

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._files.fdatasync(self._fd)
        except BaseException as failed:
            error = failed
            raise
        finally:
            if error is not None:
                with suppress(OSError):  # the first error is the one to report
                    self._files.unlink(self._path)
            self._files.close(self._fd)
