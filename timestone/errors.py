"""Every error the engine raises: one tree, a new leaf only where a caller would decide differently.

Messages carry the numbers and the file. `OSError` from the kernel passes through reads unchanged.
"""

import os
import platform
from pathlib import Path
from typing import Any


class TimestoneError(Exception):
    """The base of all errors of the engine; never raised itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is rebuilt from its message by default, and most of these are made from something else: an
        # error that cannot come back from another process takes the pool of processes down that met it.
        return _rebuilt, (type(self), self.args, self.__dict__)


class InvalidName(TimestoneError, ValueError):
    """A log name, partition, topic or topic filter that can never be right. The caller's mistake."""


class UnknownLog(TimestoneError, KeyError):
    """The store has no such log. Create it, or ask for another."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(name)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        known = f"; it has {', '.join(self.known)}" if self.known else "; it has no logs"
        return f"no log named {self.name!r} in this store{known}"


class OffsetOutOfRange(TimestoneError, IndexError):
    """The offset is not in the log: below `start` it was deleted, above `end` it was never written.

    Seek to `start` to continue after a loss, or wait for the log to reach the offset.
    """

    def __init__(self, requested: int, start: int, end: int) -> None:
        super().__init__(f"offset {requested} is out of range: the log holds [{start}, {end})")
        self.requested = requested
        self.start = start
        self.end = end


class RecordTooLarge(TimestoneError, ValueError):
    """One record (header block included) is over the limit of its log. Nothing of its batch was written."""

    def __init__(self, size: int, limit: int, what: str = "record") -> None:
        super().__init__(f"{what} of {size} bytes is over the limit of {limit} bytes")
        self.size = size
        self.limit = limit


class TopicLimit(TimestoneError):
    """The log has as many topics as it may, or as many bytes of their names. Known topics can still be appended
    to."""

    def __init__(self, log: str, limit: int, what: str = "topics (topic_count)") -> None:
        super().__init__(f"log {log!r} already has its limit of {limit} {what}")
        self.log = log
        self.limit = limit


class StoreLocked(TimestoneError):
    """Another process owns the store, or this one does already. Read it with `timestone.view`, or stop that process."""

    def __init__(self, path: Path, pid: int | None, host: str | None) -> None:
        owner = f"process {pid} on {host}" if pid is not None else "another process"
        if (pid, host) == (os.getpid(), platform.node()):
            owner += ", which is this one: it has the store open already"
        super().__init__(f"store {path} is owned by {owner}")
        self.path = path
        self.pid = pid
        self.host = host


class NotAStore(TimestoneError):
    """The directory holds no Timestone store, or does not exist."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is not a Timestone store: {reason}")
        self.path = path
        self.reason = reason


class ReaderInUse(TimestoneError):
    """This process has an open reader of that name on that log: two would overwrite each other's offset. Close
    the other one, or choose another name."""

    def __init__(self, log: str, name: str) -> None:
        super().__init__(f"log {log} already has an open reader named {name!r} in this process")
        self.log = log
        self.name = name


class PostingRefused(TimestoneError):
    """The owner of the store will never append this posting; nothing of it is in the log. The message says what is
    wrong with it."""


class PostingNotTaken(TimestoneError):
    """Nobody has appended the posting in the time that was given. Post it again under the same producer and number:
    it is appended once."""


class ReadOnlyStore(TimestoneError):
    """What a reader of this view commits cannot be kept. Have the owner of the store commit it, or keep it
    elsewhere."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is open as a view and nothing can be committed to it: {reason}")
        self.path = path
        self.reason = reason


class StoreClosed(TimestoneError):
    """The store, log or reader was closed before this call."""


class StorageFull(TimestoneError):
    """Free space is below `min_free_bytes`, so the append was refused before it began. Free space and
    retry."""

    def __init__(self, path: Path, free_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{path}: {free_bytes} bytes free, appends need at least {limit_bytes} (min_free_bytes)"
        )
        self.path = path
        self.free_bytes = free_bytes
        self.limit_bytes = limit_bytes


class QueueFull(TimestoneError):
    """More than `queue_bytes` of a log wait for the disk, so a submission was refused. Wait for an earlier one, or
    refuse your own clients."""

    def __init__(self, log: str, queued_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"log {log}: {queued_bytes} bytes wait for the disk, the limit is {limit_bytes} (queue_bytes)"
        )
        self.log = log
        self.queued_bytes = queued_bytes
        self.limit_bytes = limit_bytes


class LogFailed(TimestoneError):
    """A write or fsync failed in a way that leaves the disk's state unknown; the log refuses appends until
    reopened.

    Reads continue. `unsynced` has the offsets that were visible and never became durable; empty when every visible
    record was already synced."""

    def __init__(self, path: Path, cause: BaseException, unsynced: range = range(0)) -> None:
        lost = (
            f"; offsets {unsynced.start} to {unsynced.stop - 1} were never made durable" if unsynced else ""
        )
        super().__init__(f"{path}: {cause}{lost}; the log takes no appends until the store is reopened")
        self.path = path
        self.cause = cause
        self.unsynced = unsynced

    def again(self) -> "LogFailed":
        """The same failure for another caller: a raised exception grows a traceback, so each gets its own."""
        return LogFailed(self.path, self.cause, self.unsynced)


class CorruptRecord(TimestoneError):
    """The bytes of one record are not those that were appended. Its neighbours are readable: seek to
    `next_offset`."""

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        super().__init__(f"{path}: the record at offset {offset} is corrupt: {reason}")
        self.path = path
        self.offset = offset
        self.next_offset = offset + 1
        self.reason = reason


class OffsetsLost(CorruptRecord):
    """A segment that had the offsets from `offset` on is damaged as a whole or gone: its index is lost, or its file.
    What comes behind is readable: seek to `next_offset`. What is left of it may be found by `timestone salvage`.

    Not raised for offsets that a power loss has left out, that compaction has removed or that retention has deleted."""

    def __init__(self, path: Path, offset: int, next_offset: int) -> None:
        super().__init__(path, offset, "lost")
        self.args = (
            f"{path}: offsets {offset} to {next_offset - 1} are lost: no segment has them any more. Read on at offset "
            f"{next_offset}; `timestone inspect` and `timestone salvage` say what is left",
        )
        self.next_offset = next_offset


class CorruptLog(TimestoneError):
    """A file of a log contradicts itself. Raised at open by `recovery="strict"`, and for files that repair
    cannot serve."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class UnsupportedFormat(TimestoneError):
    """The file was written by a newer Timestone. Never reported as corruption; the file is left as it is."""

    def __init__(self, path: Path, found: int, supported: int) -> None:
        super().__init__(f"{path}: format version {found}; this Timestone reads up to version {supported}")
        self.path = path
        self.found = found
        self.supported = supported


def _rebuilt(kind: type[TimestoneError], args: tuple[Any, ...], facts: dict[str, Any]) -> TimestoneError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error
