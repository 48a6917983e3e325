"""All file names of a store are made and parsed here."""

import os
import re
from collections.abc import Collection
from pathlib import Path

from timestone.errors import InvalidName

LOCK_NAME = "LOCK"
CATALOG_NAME = "catalog.db"
TOPICS_NAME = "topics"
DOUBT_NAME = "failed-flush"
INBOX_NAME = "inbox"
INBOX_SPACE = "postings"
"""The space of the catalogue in which a store notes which postings it has appended."""
DICTIONARY_SUFFIX = ".dictionary"
SEGMENT_SUFFIX = ".segment"
INDEX_SUFFIX = ".index"
TEMPORARY_SUFFIX = ".tmp"
LOST_SUFFIX = ".lost"
DELETED_SUFFIX = ".deleted"
MISSING_SUFFIX = ".missing"

PARTITION_MOST = 999_999_999
"""What a folder's name has room for."""
READER_NAME_MOST = 512
"""Characters of a reader's name: room for a service, a group and a client id."""

_LOG_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_FOLDER = re.compile(r"(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]{0,199})-(?P<partition>0|[1-9][0-9]{0,8})")
_BASE = re.compile(r"[0-9]{20}")
_SEGMENT = re.compile(r"(?P<base>[0-9]{20})(\.(?P<generation>[1-9][0-9]{0,8}))?\.segment")
_PAIR = re.compile(r"(?P<base>[0-9]{20})(\.index|(\.[1-9][0-9]{0,8})?\.segment)")
_REWRITTEN = re.compile(r"[0-9]{20}\.[1-9][0-9]{0,8}\.segment(\..+)?")
_MISSING = re.compile(r"(?P<first>[0-9]{20})-(?P<end>[0-9]{20})\.missing")
_DICTIONARY = re.compile(r"(?P<number>[1-9][0-9]{0,8})\.dictionary")
_DELETED_LOG = re.compile(rf"{_FOLDER.pattern}\.deleted(\.[1-9][0-9]*)?")
_ASIDE = re.compile(
    r"(?P<base>[0-9]{20})(\.[1-9][0-9]{0,8})?(?P<suffix>\.index|\.segment)(\.lost(\.[0-9]+)?|\.tmp)"
)


def validate_log_name(name: str) -> None:
    """Raise InvalidName unless `name` can be a folder on every system: 1 to 200 of A-Z a-z 0-9 . _ -, no
    leading dot. TypeError for what is no text."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a log is text, not {name!r}")
    if not _LOG_NAME.fullmatch(name):
        raise InvalidName(
            f"{name!r} cannot name a log: 1 to 200 letters, digits, '.', '_' or '-', no leading '.' or '-'"
        )


def validate_log(name: str, partition: int) -> None:
    """Raise InvalidName unless the folder of this partition of this log is found again under its name: a valid
    name, and a number from 0 to 999,999,999. TypeError for what is no text or no whole number."""
    validate_log_name(name)
    if type(partition) is not int:
        raise TypeError(f"a partition of log {name!r} is a whole number, not {partition!r}")
    if not 0 <= partition <= PARTITION_MOST:
        raise InvalidName(f"log {name!r} cannot have a partition {partition}: 0 to {PARTITION_MOST:,}")


def validate_reader_name(name: str) -> None:
    """Raise InvalidName unless `name` is 1 to 512 characters without control characters. TypeError for what is no
    text."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a reader is text, not {name!r}")
    if not 1 <= len(name) <= READER_NAME_MOST or not name.isprintable():
        raise InvalidName(
            f"{name!r} cannot name a reader: 1 to {READER_NAME_MOST} characters, no control characters"
        )


def store_directory(path: str | os.PathLike[str]) -> Path:
    """The directory of a store. Raises ValueError for an empty path, which would be the working directory: it comes
    from a variable that nobody has set."""
    if not os.fspath(path):
        raise ValueError("the path of the store is empty")
    return Path(path)


def log_folder(name: str, partition: int) -> str:
    """The folder of one partition: `telemetry-0`."""
    return f"{name}-{partition}"


def parse_log_folder(folder: str) -> tuple[str, int] | None:
    """The log and partition of a folder's name, or None for a stranger."""
    match = _FOLDER.fullmatch(folder)
    return (match["name"], int(match["partition"])) if match else None


def segment_path(folder: Path, base_offset: int, generation: int = 0) -> Path:
    """Where the records from a base offset on lie; the generation counts how often they were rewritten."""
    number = f".{generation}" if generation else ""
    return folder / f"{base_offset:020d}{number}{SEGMENT_SUFFIX}"


def index_path(folder: Path, base_offset: int) -> Path:
    """Where the index entries from a base offset on lie."""
    return folder / f"{base_offset:020d}{INDEX_SUFFIX}"


def dictionary_path(folder: Path, number: int) -> Path:
    """Where a compression dictionary of a log lies."""
    return folder / f"{number}{DICTIONARY_SUFFIX}"


def parse_dictionary(name: str) -> int | None:
    """The number in the name of a compression dictionary, or None when it is not one."""
    match = _DICTIONARY.fullmatch(name)
    return int(match["number"]) if match else None


def with_suffix(path: Path, suffix: str) -> Path:
    """The path with something behind its name."""
    return path.with_name(path.name + suffix)


def parse_index(name: str) -> int | None:
    """The base offset in the name of an index, or None when it is not one."""
    stem = name.removesuffix(INDEX_SUFFIX)
    return int(stem) if stem != name and _BASE.fullmatch(stem) else None


def parse_segment(name: str) -> tuple[int, int] | None:
    """The base offset and the generation in the name of a segment, or None when it is not one."""
    match = _SEGMENT.fullmatch(name)
    return (int(match["base"]), int(match["generation"] or 0)) if match else None


def is_rewritten_segment(name: str) -> bool:
    """Is this a segment file of a later generation, also one that was put aside?"""
    return _REWRITTEN.fullmatch(name) is not None


def parse_pair_base(name: str) -> int | None:
    """The base offset in the name of a segment or an index, or None."""
    match = _PAIR.fullmatch(name)
    return int(match["base"]) if match else None


def deleted_path(path: Path) -> Path:
    """The name under which a segment or index waits to be unlinked."""
    return with_suffix(path, DELETED_SUFFIX)


def parse_deleted(name: str) -> int | None:
    """The base offset in the name of a file that waits to be unlinked, or None."""
    stem = name.removesuffix(DELETED_SUFFIX)
    return parse_pair_base(stem) if stem != name else None


def parse_aside(name: str) -> tuple[str, int] | None:
    """For a file that a recovery has put aside, or that was never finished: the suffix of what it was or was to be,
    and its base offset."""
    match = _ASIDE.fullmatch(name)
    return (match["suffix"], int(match["base"])) if match else None


def missing_path(folder: Path, first: int, end: int) -> Path:
    """The empty file whose name says that the offsets [first, end) were lost to damage."""
    return folder / f"{first:020d}-{end:020d}{MISSING_SUFFIX}"


def parse_missing(name: str) -> tuple[int, int] | None:
    """The offsets [first, end) that a file's name says are lost, or None."""
    match = _MISSING.fullmatch(name)
    return (int(match["first"]), int(match["end"])) if match else None


def lost_path(path: Path, taken: Collection[str]) -> Path:
    """A name for what a recovery puts aside: `.lost`, with a number when there is one already."""
    return _free_path(path, LOST_SUFFIX, taken)


def deleted_log_path(folder: Path, taken: Collection[str]) -> Path:
    """The name under which the folder of a deleted log waits to be emptied."""
    return _free_path(folder, DELETED_SUFFIX, taken)


def is_deleted_log(name: str) -> bool:
    """Is this the folder of a log that was deleted?"""
    return _DELETED_LOG.fullmatch(name) is not None


def _free_path(path: Path, suffix: str, taken: Collection[str]) -> Path:
    name, number = path.name + suffix, 1
    while name in taken:
        number += 1
        name = f"{path.name}{suffix}.{number}"
    return path.with_name(name)
