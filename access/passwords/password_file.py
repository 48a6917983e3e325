"""Password file: `user:hash`, one a line; read by the server, changed by `timestone passwd`.

Empty lines and those that begin with `#` are ignored. The format is mosquitto's, so that its files work unchanged; the
hashes are described in `password_hash`."""

import fcntl
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from timestone_access.passwords.password_hash import BadHash, PasswordHash, hash_password, parse_hash
from timestone_access.passwords.scram_hash import hash_scram

_USER_BYTES_MAX = 65_535


class BadPasswordFile(ValueError):
    """Invalid line. The text names file and line and never quotes the content."""


class UnknownUser(KeyError):
    """The file has no such user."""


def read_password_file(path: Path) -> Mapping[str, PasswordHash]:
    """Return the hash of each user. Raises OSError, BadPasswordFile and MissingExtra."""
    hashes: dict[str, PasswordHash] = {}
    for number, line in enumerate(_lines(path), 1):
        if _is_remark(line):
            continue
        user, colon, text = line.partition(":")
        if not colon or not user.strip():
            raise BadPasswordFile(f"{path}:{number}: invalid line: expected user:hash")
        user = user.strip()
        if user in hashes:
            raise BadPasswordFile(f"{path}:{number}: duplicate user {user!r}")
        try:
            hashes[user] = parse_hash(text.strip())
        except BadHash as error:
            raise BadPasswordFile(f"{path}:{number}: the password of {user!r}: {error}") from None
    return hashes


def is_readable_by_others(path: Path) -> bool:
    """Return whether users other than its owner and its group can read the file."""
    return bool(path.stat().st_mode & stat.S_IROTH)


def set_password(path: Path, user: str, password: bytes, *, scram: bool = False) -> bool:
    """Set the password of `user`; return True for a new user.

    A missing file is created. With `scram` the hash is one for SCRAM-SHA-256. The file is replaced as a whole, so that
    readers see either version; waits while another caller changes it. Raises OSError, MissingExtra, and ValueError for
    an invalid name."""
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
    """Remove `user`. Raises UnknownUser, and OSError as `set_password` does."""

    def edit(lines: list[str]) -> bool:
        at = _find(lines, user)
        if at is None:
            raise UnknownUser(user)
        del lines[at]
        return False

    _rewrite(path, edit)


def validate_user(user: str) -> None:
    """Raise ValueError unless `user` is valid in a password file."""
    if not user or user != user.strip() or user.startswith("#") or ":" in user or not user.isprintable():
        raise ValueError(
            f"invalid user {user!r}: expected printable characters, no colon, no leading # and no blanks around it"
        )
    if len(user.encode()) > _USER_BYTES_MAX:
        raise ValueError(f"invalid user: expected at most {_USER_BYTES_MAX} bytes")


def _lines(path: Path) -> list[str]:
    try:
        # Not splitlines(): a user name may contain line separators of Unicode.
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
    """Let `edit` change the lines of the file in place, and return its result.

    The new content gets the name of the file once it is on the disk. Until then its temporary file is also the lock
    between concurrent changes; the kernel releases it when its owner is killed."""
    path = path.resolve()  # replace the target of a link, not the link
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
    """Open an empty, locked file of this name that only its owner can read."""
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
        os.close(fd)  # the owner of the lock has renamed or deleted it


def _is_named(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _take_over_owner(fd: int, path: Path) -> None:
    """Keep the owner of a file that root changes, so that the server can read it."""
    before = path.stat()
    if before.st_uid != os.geteuid() or before.st_gid != os.getegid():
        try:
            os.fchown(fd, before.st_uid, before.st_gid)
        except PermissionError:
            return  # otherwise it belongs to the user who changed it, with mode 0600
    os.fchmod(fd, stat.S_IMODE(before.st_mode) & 0o660 | 0o600)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
