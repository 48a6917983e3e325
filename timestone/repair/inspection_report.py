"""The state of a store as values: what `inspect_store` returns, for tables, JSON and tests."""

from dataclasses import asdict, dataclass
from typing import Any

from timestone.format.damage_report import Damage
from timestone.reading.retention_hold import Pin


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One segment. Offsets are [base_offset, next_offset); times in microseconds since 1970, 0 when
    unknown."""

    base_offset: int
    next_offset: int
    records: int
    bytes: int
    """Of the records as they were appended."""
    stored_bytes: int
    """Of the segment file: fewer if it is compressed."""
    index_bytes: int
    first_timestamp_us: int
    last_timestamp_us: int
    state: str
    checkpoint: int
    """Records below this ordinal are known to be durable."""
    topics: int | None
    """Distinct topics; None for a segment that is not sealed."""
    damaged_offsets: tuple[int, ...]
    lost_records: int
    lost_bytes: int
    reason: str
    missing_bytes: int = 0
    """Bytes that the index knows and the segment file does not have."""
    removed: int = 0
    """Records that compaction has removed: offsets of which nothing is shown."""

    @property
    def lost_durable(self) -> int:
        """Records that were known to be durable and are not there."""
        return max(0, self.base_offset + self.checkpoint - self.next_offset)


@dataclass(frozen=True, slots=True)
class LogReport:
    """One partition of a log."""

    log: str
    partition: int
    id: int
    epoch: int
    start_offset: int
    end_offset: int
    synced_offset: int
    records: int
    bytes: int
    stored_bytes: int
    topics: int
    topic_names_lost: int
    segments: tuple[SegmentReport, ...]
    strangers: tuple[str, ...]
    """Files in the folder that are not Timestone's: left alone."""
    put_aside: tuple[str, ...]
    """`.lost` files: what a recovery has cut off or could not serve."""
    error: str
    """Why the log could not be read; empty when it could."""
    removed: int = 0
    """Records that compaction has removed."""
    unborn: bool = False
    """It is just being made, or the process that made it ended before: it never held a record."""
    topics_reason: str = ""
    """What is wrong with the topic dictionary; empty when it is whole."""
    missing: tuple[tuple[int, int], ...] = ()
    """Offsets [first, end) that were given out and that no segment holds. (Between two epochs a gap is meant to be, and
    what compaction has removed is still in the index.)"""
    age_unproven: int = 0
    """Sealed segments that are older than `retention_ms` by their timestamps, and that retention keeps because so much
    time has not provably passed."""


@dataclass(frozen=True, slots=True)
class ReaderReport:
    """One named reader of a log."""

    log: str
    partition: int
    name: str
    offset: int
    """The next offset it will read."""
    committed_us: int
    lag: int | None
    """Offsets between it and the log's end; None when the log was not looked at or is unreadable."""
    missed: int
    """Offsets that retention deleted before it read them."""
    pin: Pin | None = None
    """How far retention waits for it; None when it does not."""
    unread_bytes: int = 0
    """What the segments take that hold records it has not read, indexes included."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """A store. `exit_code` is 0 clean, 1 unclosed but consistent, 2 torn tail, 3 corruption, 4 unreadable."""

    path: str
    owner_pid: int | None
    """The process that owns the store now; None when nobody does."""
    deep: bool
    logs: tuple[LogReport, ...]
    readers: tuple[ReaderReport, ...]
    notes: tuple[str, ...]
    exit_code: int
    damage: tuple[Damage, ...] = ()
    """What the owner's scrubber has found in segments that are still there; empty when `deep`, which looks for
    itself."""
    copied_from_pid: int | None = None
    """The owner that the files name, when it is alive here but holds another directory or none, and the files are not
    as a stop leaves them."""

    def to_json(self) -> dict[str, Any]:
        """The report in plain values, ready for `json.dumps`. A log's id is sixteen hex digits: as a number it would
        not survive readers of JSON that know 53 bits."""
        found = asdict(self)
        for log in found["logs"]:
            log["id"] = f"{log['id']:016x}"
        return found
