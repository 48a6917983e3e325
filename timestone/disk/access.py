"""Access to the files of a store: for its owner and, if the folder allows it, a group.

One rule (docs/decisions/0033-file-access.md), independent of the umask: a new file or folder is for its owner alone. In
a folder with the setgid bit, the group gets the permissions that it has on the folder. Other users never get access.
For libraries that open files by name (SQLite, Parquet writers), `ensure_file` creates the file first."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

_OWNER_FILE = 0o600
_OWNER_FOLDER = 0o700
_GROUP_FILE = 0o060
_GROUP_FOLDER = 0o070


def create_file(path: Path, *, exclusive: bool = True) -> int:
    """Return a descriptor of a new empty file. If there is one: FileExistsError, or a descriptor of that."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if exclusive else 0)
    fd = os.open(path, flags, _OWNER_FILE)
    if bits := _shared(path.parent) & _GROUP_FILE:
        with suppress(OSError):  # the file exists, and its owner can use it
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | bits)
    return fd


def check_regular(status: os.stat_result, path: Path) -> None:
    """Raise OSError unless a status is that of a regular file: to open or read another one could take endlessly."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "expected a regular file, got a folder, a pipe or a device", str(path))


def ensure_file(path: Path) -> None:
    """Create an empty file if it does not exist: for libraries that open files by name."""
    os.close(create_file(path, exclusive=False))


def make_folder(path: Path) -> None:
    """Create a folder. Raises FileExistsError if the name is taken."""
    bits = _shared(path.parent)
    os.mkdir(path, _OWNER_FOLDER | bits)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & bits != bits:  # the umask has removed some bits
        with suppress(OSError):
            os.chmod(path, mode | bits)


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents. No effect if it exists."""
    for one in reversed((path, *path.parents)):
        if not one.exists():
            with suppress(FileExistsError):
                make_folder(one)


def make_fifo(path: Path) -> None:
    """Create a named pipe, unless there is one. Raises OSError with the path, also for another file in its place."""
    try:
        os.mkfifo(path, _OWNER_FILE)
    except FileExistsError:
        if path.is_fifo():
            return
        raise FileExistsError(errno.EEXIST, "expected a named pipe, got another file", str(path)) from None
    except OSError as error:
        error.filename = str(path)  # the system call does not name it
        raise
    if bits := _shared(path.parent) & _GROUP_FILE:
        os.chmod(path, _OWNER_FILE | bits)


def is_open_to_all(path: Path) -> bool:
    """Return whether every user of this machine may read a file, as far as it and its folder say."""
    return bool(path.stat().st_mode & stat.S_IROTH and path.parent.stat().st_mode & stat.S_IXOTH)


def _shared(folder: Path) -> int:
    """Return the permission bits of the group that a folder is shared with; 0 for none, and for a missing folder."""
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return 0
    return mode & _GROUP_FOLDER if mode & stat.S_ISGID else 0
