"""The password file: `user:hash`, one a line; read by the server, changed by `timestone passwd`.

Lines that begin with `#` and empty ones are left alone. The format is mosquitto's, so that its files can be taken over
as they are; the hashes are described in `password_hash`.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from mqtt_front.security.password_hash import BadHash, PasswordHash, hash_password, parse_hash
from mqtt_front.security.scram_hash import hash_scram

_USER_BYTES_MAX = 65_535


class BadPasswordFile(ValueError):
    """A line that cannot be used. The text names file and line and never quotes what stands there."""


class UnknownUser(KeyError):
    """There is no such user in the file."""


def read_password_file(path: Path) -> Mapping[str, PasswordHash]:
    """The hash of each user. Raises OSError, BadPasswordFile and MissingExtra."""
    hashes: dict[str, PasswordHash] = {}
    for number, line in enumerate(_lines(path), 1):
        if _is_remark(line):
            continue
        user, colon, text = line.partition(":")
        if not colon or not user.strip():
            raise BadPasswordFile(f"{path}:{number}: a line goes user:hash")
        user = user.strip()
        if user in hashes:
            raise BadPasswordFile(f"{path}:{number}: user {user!r} for the second time")
        try:
            hashes[user] = parse_hash(text.strip())
        except BadHash as error:
            raise BadPasswordFile(f"{path}:{number}: the password of {user!r}: {error}") from None
    return hashes


def is_readable_by_others(path: Path) -> bool:
    """May users who are neither its owner nor in its group read the file?"""
    return bool(path.stat().st_mode & stat.S_IROTH)


def set_password(path: Path, user: str, password: bytes, *, scram: bool = False) -> bool:
    """Give `user` this password; True when the user is new. The file is made when it is missing.

    With `scram` it is kept as SCRAM-SHA-256 needs it. The file is replaced whole, so that whoever reads it sees either
    version; while another caller changes it, this waits. Raises OSError, MissingExtra, and ValueError for a name that
    cannot stand in the file.
    """
    validate_user(user)
    new = f"{user}:{hash_scram(password) if scram else hash_password(password)}"

    def edit(lines: list[str]) -> bool:
        at = _find(lines, user)
        if at is None:
            lines.append(new)
        else:
            lines[at] = new
        return at is None

    return _rewrite(path, edit)


def remove_user(path: Path, user: str) -> None:
    """Take `user` out. Raises UnknownUser, and OSError as `set_password` does."""

    def edit(lines: list[str]) -> bool:
        at = _find(lines, user)
        if at is None:
            raise UnknownUser(user)
        del lines[at]
        return False

    _rewrite(path, edit)


def validate_user(user: str) -> None:
    """Raise ValueError unless `user` can stand in a password file."""
    if not user or user != user.strip() or user.startswith("#") or ":" in user or not user.isprintable():
        raise ValueError(
            f"user {user!r}: a name is printable, has no colon, does not begin with # and has no blanks around it"
        )
    if len(user.encode()) > _USER_BYTES_MAX:
        raise ValueError(f"a user name has at most {_USER_BYTES_MAX} bytes")


def _lines(path: Path) -> list[str]:
    try:
        # Not splitlines(): a user name may hold what Unicode calls a line separator.
        return path.read_text("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise BadPasswordFile(f"{path}: not UTF-8 at byte {error.start}") from None


def _is_remark(line: str) -> bool:
    return not line.strip() or line.startswith("#")


def _find(lines: list[str], user: str) -> int | None:
    for number, line in enumerate(lines):
        if not _is_remark(line) and line.partition(":")[0].strip() == user:
            return number
    return None


def _rewrite(path: Path, edit: Callable[[list[str]], bool]) -> bool:
    """Let `edit` change the lines of the file, in place; returns what it returns.

    The new content gets the name of the file only when it is on the disk. Until then its file is also the lock between
    two that change passwords at the same time; the kernel frees it when its owner is killed.
    """
    path = path.resolve()  # replace the file that a link leads to, not the link
    temporary = path.with_name(path.name + ".new")
    with os.fdopen(_open_locked(temporary), "w", encoding="utf-8", newline="\n") as file:
        try:
            lines = _lines(path) if path.exists() else []
            while lines and not lines[-1]:
                del lines[-1]
            result = edit(lines)
            if path.exists():
                _take_over_owner(file.fileno(), path)
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    _sync_directory(path.parent)
    return result


def _open_locked(path: Path) -> int:
    """An empty file of this name that only its owner may read, and that nobody else has locked."""
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_named(fd, path):
                os.fchmod(fd, 0o600)
                os.ftruncate(fd, 0)
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # who had the lock has given the file its final name, or deleted it


def _is_named(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _take_over_owner(fd: int, path: Path) -> None:
    """A file that root changes stays readable for the server that it belongs to, and for nobody else."""
    before = path.stat()
    if before.st_uid != os.geteuid() or before.st_gid != os.getegid():
        try:
            os.fchown(fd, before.st_uid, before.st_gid)
        except PermissionError:
            return  # then it belongs to whoever changed it, with mode 0600
    os.fchmod(fd, stat.S_IMODE(before.st_mode) & 0o660 | 0o600)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
