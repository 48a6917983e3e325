"""Errors of the engine: one tree, with a new leaf only where a caller would decide differently. Messages contain the
numbers and the file. OSError of the kernel passes through reads unchanged."""

import copyreg
from pathlib import Path
from typing import Any, NoReturn


class TimestoneError(Exception):
    """Base class of all errors of the engine; never raised itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is unpickled by calling it with its message, but most of these take other
        # arguments: one that failed to unpickle would break the process pool that received it.
        return _rebuilt, (type(self), self.args, self.__dict__)


def not_pickled(*kinds: type) -> None:
    """Have pickling and copying raise a TypeError for classes whose objects belong to one process."""

    def refuse(value: object) -> NoReturn:
        raise TypeError(
            f"cannot pickle a {type(value).__name__}: send records, or open a timestone.view there"
        )

    for kind in kinds:
        copyreg.pickle(kind, refuse)


class InvalidName(TimestoneError, ValueError):
    """A log name, partition, topic or topic filter that is never valid. An error of the caller."""


class UnknownLog(TimestoneError, KeyError):
    """The store has no such log. Create it or use another."""

    def __init__(self, name: str, known: tuple[str, ...] = (), where: str = "this store") -> None:
        super().__init__(name)
        self.name = name
        self.known = known
        self.where = where

    def __str__(self) -> str:
        known = f"; it has {', '.join(self.known)}" if self.known else "; it has no logs"
        return f"no log named {self.name!r} in {self.where}{known}"


class OffsetOutOfRange(TimestoneError, IndexError):
    """The offset is not in the log: below `start` it was deleted, at or above `end` it is not written. Seek to
    `start` to continue after a loss, or wait for the log to reach the offset."""

    def __init__(self, requested: int, start: int, end: int) -> None:
        super().__init__(f"offset {requested} is out of range: the log holds [{start}, {end})")
        self.requested = requested
        self.start = start
        self.end = end


class RecordTooLarge(TimestoneError, ValueError):
    """A record, header block included, exceeds the limit of its log. Nothing of its batch was written."""

    def __init__(self, size: int, limit: int, what: str = "record") -> None:
        super().__init__(f"{what} of {size} bytes is over the limit of {limit} bytes")
        self.size = size
        self.limit = limit


class NotLeader(TimestoneError):
    """This replica of a log takes no appends, because another one leads. An append that had begun may be in the log or
    not. Append through the leader."""


class TopicLimit(TimestoneError):
    """The log has its maximum number of topics, or of bytes of their names. Known topics can still be appended to."""

    def __init__(self, log: str, limit: int, what: str = "topics (topic_count)") -> None:
        super().__init__(f"log {log!r} already has its limit of {limit} {what}")
        self.log = log
        self.limit = limit


class StoreLocked(TimestoneError):
    """Another process owns the store, or this one has it open. Read it with `timestone.view`, or stop that process."""

    def __init__(self, path: Path, pid: int | None, host: str | None, *, is_here: bool = False) -> None:
        owner = f"process {pid} on {host}" if pid is not None else "another process"
        if is_here:
            owner += ", which is this one: it has the store open already"
        super().__init__(f"store {path} is owned by {owner}")
        self.path = path
        self.pid = pid
        self.host = host


class NotAStore(TimestoneError):
    """The directory is not a Timestone store or does not exist."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is not a Timestone store: {reason}")
        self.path = path
        self.reason = reason


class ReaderInUse(TimestoneError):
    """Another reader of that name is open on that log in this process; two would overwrite each other's offset. Close
    it one or use another name."""

    def __init__(self, log: str, name: str) -> None:
        super().__init__(f"log {log} already has an open reader named {name!r} in this process")
        self.log = log
        self.name = name


class PostingRefused(TimestoneError):
    """The owner of the store has refused this posting; nothing of it is in the log. The message states the reason."""


class PostingNotTaken(TimestoneError):
    """The posting was not appended within the timeout. Post it again under the same producer and number: it is
    appended once."""


class ReadOnlyStore(TimestoneError):
    """A reader of this view cannot commit. Commit through the owner of the store, or keep the offset elsewhere."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is open as a view and nothing can be committed to it: {reason}")
        self.path = path
        self.reason = reason


class MissingExtra(TimestoneError, ImportError):
    """A package is needed that a plain install does not bring. The message names the extra to install."""

    def __init__(self, what: str, module: str, extra: str) -> None:
        super().__init__(f"{what} need {module}, which is not installed: pip install '.[{extra}]' in a clone")
        self.name = module
        self.extra = extra


class StoreClosed(TimestoneError):
    """The store, log or reader was closed before this call."""


class StorageFull(TimestoneError):
    """Free space is below `min_free_bytes`, so the append was refused before it began. Free space and retry."""

    def __init__(self, path: Path, free_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{path}: {free_bytes} bytes free, of which an append has to leave {limit_bytes} (min_free_bytes)"
        )
        self.path = path
        self.free_bytes = free_bytes
        self.limit_bytes = limit_bytes


class QueueFull(TimestoneError):
    """More than `queue_bytes` of a log wait for the disk, so the submission was refused. Wait for an earlier one, or
    refuse your own clients."""

    def __init__(self, log: str, queued_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"log {log}: {queued_bytes} bytes wait for the disk, the limit is {limit_bytes} (queue_bytes)"
        )
        self.log = log
        self.queued_bytes = queued_bytes
        self.limit_bytes = limit_bytes


class LogFailed(TimestoneError):
    """A write or fsync failed and the state of the disk is unknown; the log refuses appends until the store is
    reopened. Reads continue. `unsynced`: offsets that were visible and never became durable; empty if every visible
    record was synced."""

    def __init__(self, path: Path, cause: BaseException, unsynced: range = range(0)) -> None:
        lost = (
            f"; offsets {unsynced.start} to {unsynced.stop - 1} were never made durable" if unsynced else ""
        )
        super().__init__(f"{path}: {cause}{lost}; the log takes no appends until the store is reopened")
        self.path = path
        self.cause = cause
        self.unsynced = unsynced

    def again(self) -> "LogFailed":
        """Return the same failure for another caller: each raise adds a traceback, so each needs its own object."""
        return LogFailed(self.path, self.cause, self.unsynced)


class CorruptRecord(TimestoneError):
    """The bytes of one record are not those that were appended. Its neighbours are readable: seek to `next_offset`."""

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        super().__init__(f"{path}: the record at offset {offset} is corrupt: {reason}")
        self.path = path
        self.offset = offset
        self.next_offset = offset + 1
        self.reason = reason


class OffsetsLost(CorruptRecord):
    """The segment with the offsets from `offset` on is damaged as a whole or missing: its index or its file is lost.
    Later records are readable: seek to `next_offset`. `timestone salvage` may recover parts of it.

    Not raised for offsets that were skipped after a power loss, removed by compaction, or deleted by retention."""

    def __init__(self, path: Path, offset: int, next_offset: int, reason: str = "") -> None:
        reason = reason or "no segment has them any more"
        super().__init__(path, offset, reason)
        self.args = (
            f"{path}: offsets {offset} to {next_offset - 1} are lost: {reason}. Read on at offset {next_offset}; "
            "`timestone inspect` and `timestone salvage` say what is left",
        )
        self.next_offset = next_offset


class HistoryUnavailable(TimestoneError):
    """The records from offset `first` up to `end` are in a bucket that does not give them now. Read again later;
    everything that is on the local disk can be read, and appends continue. The message states the reason."""

    def __init__(self, first: int, end: int, reason: str) -> None:
        super().__init__(f"offsets {first} to {end - 1} are in a bucket and cannot be read now: {reason}")
        self.first = first
        self.end = end
        self.reason = reason


class CorruptLog(TimestoneError):
    """A file of a log is inconsistent. Raised at open by `recovery="strict"`, and for files that repair cannot
    serve."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class UnsupportedFormat(TimestoneError):
    """The file was written by a newer Timestone. Not corruption; the file is left as it is."""

    def __init__(self, path: Path, found: int, supported: int) -> None:
        super().__init__(f"{path}: format version {found}; this Timestone reads up to version {supported}")
        self.path = path
        self.found = found
        self.supported = supported


def _rebuilt(kind: type[TimestoneError], args: tuple[Any, ...], facts: dict[str, Any]) -> TimestoneError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error
