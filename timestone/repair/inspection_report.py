"""State of a store as values: the result of `inspect_store`, for tables, JSON and tests."""

from dataclasses import asdict, dataclass
from typing import Any

from timestone.format.damage_report import Damage
from timestone.format.names import is_server_log
from timestone.reading.retention_hold import Pin


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One segment. Offsets are [base_offset, next_offset); times in microseconds since 1970, 0 if unknown."""

    base_offset: int
    next_offset: int
    records: int
    bytes: int
    """Size of the records as appended."""
    stored_bytes: int
    """Size of the segment file: smaller if compressed."""
    index_bytes: int
    first_timestamp_us: int
    last_timestamp_us: int
    state: str
    checkpoint: int
    """Records below this ordinal are known to be durable."""
    topics: int | None
    """Number of distinct topics; None for an unsealed segment."""
    damaged_offsets: tuple[int, ...]
    lost_records: int
    lost_bytes: int
    reason: str
    missing_bytes: int = 0
    """Bytes that the index refers to and the segment file lacks."""
    removed: int = 0
    """Number of records removed by compaction."""

    @property
    def lost_durable(self) -> int:
        """Return the number of missing records that were known to be durable."""
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
    """Foreign files in the folder, which are ignored."""
    put_aside: tuple[str, ...]
    """`.lost` files: what a recovery cut off or could not serve."""
    error: str
    """Why the log could not be read; empty if it could."""
    removed: int = 0
    """Number of records removed by compaction."""
    unborn: bool = False
    """Set if the log is being created, or its creator ended before the first record."""
    topics_reason: str = ""
    """What is wrong with the topic dictionary; empty if it is intact."""
    missing: tuple[tuple[int, int], ...] = ()
    """Assigned offsets [first, end) that no segment holds. A gap between two epochs is intended, and records removed
    by compaction are still in the index."""
    local_start_offset: int | None = None
    """From there on records are on the disk; those from `start_offset` to there are in a bucket only. None if all are
    on the disk. Counts and segments are those of the disk."""
    age_unproven: int = 0
    """Number of sealed segments that are older than `retention_ms` by their timestamps, but not provably."""
    uploaded_offset: int | None = None
    """End of what the bucket of the store has, as far as the store has noted; None for a log that is not uploaded."""
    waiting_segments: int = 0
    """Sealed segments that the bucket does not have yet."""
    waiting_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ReaderReport:
    """Named reader of a log."""

    log: str
    partition: int
    name: str
    offset: int
    """Next offset to read."""
    committed_us: int
    lag: int | None
    """Offsets between it and the end of the log; None if the log was not inspected or is unreadable."""
    missed: int
    """Offsets that retention deleted before the reader read them."""
    pin: Pin | None = None
    """How far retention waits for the reader; None if it does not."""
    unread_bytes: int = 0
    """Size of the segments with records that it has not read, indexes included."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """A store. exit_code: 0 clean, 1 unclosed but consistent, 2 torn tail, 3 corruption, 4 unreadable."""

    path: str
    owner_pid: int | None
    """Process that owns the store now; None if there is none."""
    deep: bool
    logs: tuple[LogReport, ...]
    readers: tuple[ReaderReport, ...]
    notes: tuple[str, ...]
    exit_code: int
    damage: tuple[Damage, ...] = ()
    """Damage that the scrubber of the owner has recorded in existing segments; empty with `deep`, which checks
    itself."""
    copied_from_pid: int | None = None
    """Owner by the files that is alive here but owns another directory or none, while the files were not closed
    cleanly."""
    owner: str = ""
    """Who uploads to a bucket; empty for a store on the disk."""
    bucket: str = ""
    """Where the store uploads to; empty for nowhere."""
    bucket_error: str = ""
    """Why the last upload failed; empty if it did not."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`. The id of a log is sixteen hex digits, because readers of JSON may
        limit numbers to 53 bits. What a server writes about itself is apart, as `server_logs`."""
        found = asdict(self)
        logs = found.pop("logs")
        for log in logs:
            log["id"] = f"{log['id']:016x}"
        found["logs"] = [log for log in logs if not is_server_log(log["log"])]
        found["server_logs"] = [log for log in logs if is_server_log(log["log"])]
        return found
