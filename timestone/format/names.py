"""File names of a store, made and parsed here only."""

import os
import re
from collections.abc import Collection
from pathlib import Path

from timestone.errors import InvalidName

LOCK_NAME = "LOCK"
CONTROL_NAME = "CONTROL"
"""Socket of a running server; nothing on the disk depends on it."""
CATALOG_NAME = "catalog.db"
TOPICS_NAME = "topics"
DOUBT_NAME = "failed-flush"
INBOX_NAME = "inbox"
INBOX_SPACE = "postings"
"""Namespace in the catalogue for the progress of postings."""
DICTIONARY_SUFFIX = ".dictionary"
SEGMENT_SUFFIX = ".segment"
INDEX_SUFFIX = ".index"
TEMPORARY_SUFFIX = ".tmp"
LOST_SUFFIX = ".lost"
DELETED_SUFFIX = ".deleted"
MISSING_SUFFIX = ".missing"

SERVER_PREFIX = "timestone."
"""Of the names of logs to which only a server appends: its own figures and events."""
PARTITION_MOST = 999_999_999
"""Maximum partition number in a folder name."""
READER_NAME_MOST = 512
"""Maximum characters of the name of a reader: room for a service, a group and a client id."""

_LOG_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_FOLDER = re.compile(r"(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]{0,199})-(?P<partition>0|[1-9][0-9]{0,8})")
# Below 9 * 10^18: the end of such a segment and the ceiling above it fit into 63 bits. No log gets there.
_OFFSET = "0[0-8][0-9]{18}"
_SEGMENT = re.compile(rf"(?P<base>{_OFFSET})(\.(?P<generation>[1-9][0-9]{{0,8}}))?\.segment")
_PAIR = re.compile(rf"(?P<base>{_OFFSET})(\.index|(\.[1-9][0-9]{{0,8}})?\.segment)")
_REWRITTEN = re.compile(rf"{_OFFSET}\.[1-9][0-9]{{0,8}}\.segment(\..+)?")
_MISSING = re.compile(rf"(?P<first>{_OFFSET})-(?P<end>{_OFFSET})\.missing")
_DICTIONARY = re.compile(r"(?P<number>[1-9][0-9]{0,8})\.dictionary")
_DELETED_LOG = re.compile(rf"{_FOLDER.pattern}\.deleted(\.[1-9][0-9]*)?")
_ASIDE = re.compile(
    rf"(?P<base>{_OFFSET})(\.[1-9][0-9]{{0,8}})?(?P<suffix>\.index|\.segment)(\.lost(\.[0-9]+)?|\.tmp)"
)


def validate_log_name(name: str) -> None:
    """Raise InvalidName unless `name` is a valid folder name on every system: 1 to 200 of A-Z a-z 0-9 . _ -, without
    a leading dot. TypeError if it is not text."""
    if not isinstance(name, str):
        raise TypeError(f"invalid name of a log: expected text, got {name!r}")
    if not _LOG_NAME.fullmatch(name):
        raise InvalidName(
            f"{name!r} cannot name a log: 1 to 200 letters, digits, '.', '_' or '-', no leading '.' or '-'"
        )


def validate_log(name: str, partition: int) -> None:
    """Raise InvalidName for an invalid name of a log, or a partition outside 0 to 999,999,999. TypeError for wrong
    types."""
    validate_log_name(name)
    if type(partition) is not int:
        raise TypeError(f"invalid partition of log {name!r}: expected a whole number, got {partition!r}")
    if not 0 <= partition <= PARTITION_MOST:
        raise InvalidName(f"log {name!r} cannot have a partition {partition}: 0 to {PARTITION_MOST:,}")


def is_server_log(name: str) -> bool:
    """Return whether a log holds what a server records about itself. Such logs are not among "all logs"."""
    return name.startswith(SERVER_PREFIX)


def validate_target(name: str, partition: int = 0) -> None:
    """Raise InvalidName for a log that users cannot append to: one of an invalid name or of the server's own."""
    validate_log(name, partition)
    if is_server_log(name):
        raise InvalidName(
            f"invalid log {name!r}: names that begin with {SERVER_PREFIX!r} are the server's own"
        )


def validate_reader_name(name: str) -> None:
    """Raise InvalidName unless `name` has 1 to 512 characters without control characters. TypeError if it is not
    text."""
    if not isinstance(name, str):
        raise TypeError(f"invalid name of a reader: expected text, got {name!r}")
    if not 1 <= len(name) <= READER_NAME_MOST or not name.isprintable():
        raise InvalidName(
            f"{name!r} cannot name a reader: 1 to {READER_NAME_MOST} characters, no control characters"
        )


def store_directory(path: str | os.PathLike[str]) -> Path:
    """Return the directory of a store. Raises ValueError for an empty path, which would mean the working directory
    and is most likely an unset variable; TypeError if it is neither text nor a path."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"invalid path of a store: expected text or a path, got {path!r:.60}")
    if not os.fspath(path):
        raise ValueError("the path of the store is empty")
    if "\0" in str(path):
        raise ValueError(f"invalid path of a store: expected one without U+0000, got {path!r:.60}")
    return Path(path)


def log_folder(name: str, partition: int) -> str:
    """Return the folder name of a partition: `telemetry-0`."""
    return f"{name}-{partition}"


def parse_log_folder(folder: str) -> tuple[str, int] | None:
    """Return log and partition of a folder name; None for a foreign folder."""
    match = _FOLDER.fullmatch(folder)
    return (match["name"], int(match["partition"])) if match else None


def segment_path(folder: Path, base_offset: int, generation: int = 0) -> Path:
    """Return the path of a segment file; the generation counts its rewrites."""
    number = f".{generation}" if generation else ""
    return folder / f"{base_offset:020d}{number}{SEGMENT_SUFFIX}"


def index_path(folder: Path, base_offset: int) -> Path:
    """Return the path of an index file."""
    return folder / f"{base_offset:020d}{INDEX_SUFFIX}"


def dictionary_path(folder: Path, number: int) -> Path:
    """Return the path of a compression dictionary of a log."""
    return folder / f"{number}{DICTIONARY_SUFFIX}"


def parse_dictionary(name: str) -> int | None:
    """Return the number in the name of a compression dictionary; None for other names."""
    match = _DICTIONARY.fullmatch(name)
    return int(match["number"]) if match else None


def with_suffix(path: Path, suffix: str) -> Path:
    """Return the path with a suffix appended to its name."""
    return path.with_name(path.name + suffix)


def parse_segment(name: str) -> tuple[int, int] | None:
    """Return base offset and generation in the name of a segment; None for other names."""
    match = _SEGMENT.fullmatch(name)
    return (int(match["base"]), int(match["generation"] or 0)) if match else None


def is_rewritten_segment(name: str) -> bool:
    """Return whether this is a segment file of a later generation, or a quarantined one."""
    return _REWRITTEN.fullmatch(name) is not None


def parse_pair_base(name: str) -> int | None:
    """Return the base offset in the name of a segment or an index; None for other names."""
    match = _PAIR.fullmatch(name)
    return int(match["base"]) if match else None


def deleted_path(path: Path) -> Path:
    """Return the name of a segment or index that waits to be unlinked."""
    return with_suffix(path, DELETED_SUFFIX)


def parse_deleted(name: str) -> int | None:
    """Return the base offset in the name of a file that waits to be unlinked; None for other names."""
    stem = name.removesuffix(DELETED_SUFFIX)
    return parse_pair_base(stem) if stem != name else None


def parse_aside(name: str) -> tuple[str, int] | None:
    """Return suffix and base offset of the original of a quarantined or unfinished file; None for other names."""
    match = _ASIDE.fullmatch(name)
    return (match["suffix"], int(match["base"])) if match else None


def missing_path(folder: Path, first: int, end: int) -> Path:
    """Return the path of the empty file whose name records that the offsets [first, end) were lost to damage."""
    return folder / f"{first:020d}-{end:020d}{MISSING_SUFFIX}"


def parse_missing(name: str) -> tuple[int, int] | None:
    """Return the offsets [first, end) that a file name records as lost; None for other names."""
    match = _MISSING.fullmatch(name)
    return (int(match["first"]), int(match["end"])) if match else None


def is_deleted_log(name: str) -> bool:
    """Return whether this is the folder of a deleted log."""
    return _DELETED_LOG.fullmatch(name) is not None


def free_path(path: Path, suffix: str, taken: Collection[str]) -> Path:
    """Return a path with a suffix, and a number if that name is taken: `LOST_SUFFIX` for a quarantined file,
    `DELETED_SUFFIX` for the folder of a deleted log, which waits to be removed."""
    name, number = path.name + suffix, 1
    while name in taken:
        number += 1
        name = f"{path.name}{suffix}.{number}"
    return path.with_name(name)
