"""Settings of the engine as frozen values: units, defaults, ranges and what each one costs. The engine reads no file
and no environment for them; the command line does, in `cli/`."""

import difflib
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn, TypeVar

from timestone.settings_schema import Declared, setting

KIB = 1024
MIB = 1024 * KIB
DAY_MS = 24 * 3600 * 1000

SEGMENT_BYTES_MAX = 4 * 1024 * MIB - 1
"""Positions in an index entry are u32."""
SEGMENT_ENTRIES_MAX = 2**27
"""4 GiB of index."""


class _Word(enum.StrEnum):
    """Setting with a fixed set of words."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"expected one of {', '.join(cls)}, got {value!r}")


class Ack(_Word):
    """Guarantee that an acknowledged append has."""

    MEMORY = "memory"
    """Accepted into the queue of the committer. Lost when the process dies."""
    WRITTEN = "written"
    """In the page cache and visible to readers. Survives kill -9, not power loss."""
    SYNCED = "synced"
    """Flushed by fdatasync. Survives power loss, if the disk honours the flush."""


class Recovery(_Word):
    """Treatment of a log that was not closed, by `timestone.open`."""

    REPAIR = "repair"
    """Cut a torn tail (the cut bytes are kept as `.lost`), quarantine damaged records, report it, and continue."""
    STRICT = "strict"
    """Refuse to open, change nothing, name the file."""


class Compression(_Word):
    """Compression of sealed segments."""

    NONE = "none"
    """None."""
    ZSTD = "zstd"
    """zstandard, in the background; a read decodes a frame of 256 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig(Declared):
    """Settings of one log, stored in the catalogue from its creation on. Raises ValueError for a value out of range."""

    segment_bytes: int = setting(
        256 * MIB, "a segment is sealed when it reaches this size", low=1, high=SEGMENT_BYTES_MAX
    )
    segment_entries: int = setting(
        4 * MIB,
        "a segment is sealed when it holds this many records (32 index bytes each)",
        low=1,
        high=SEGMENT_ENTRIES_MAX,
    )
    segment_age_ms: int = setting(
        7 * DAY_MS,
        "a segment is sealed by the first append after this age; retention works on sealed segments",
        low=1,
    )
    retention_ms: int = setting(
        0,
        "records are deleted when they are older than this by their append time, a segment at a time; 0 keeps "
        "them permanently",
        low=0,
    )
    retention_bytes: int = setting(
        0,
        "the oldest segments are deleted while the rest, indexes included, is at least this large; 0 keeps all",
        low=0,
    )
    local_retention_ms: int = setting(
        0,
        "with a tier, segments older than this are deleted from the local disk once the bucket has them; 0 leaves that "
        "to retention_ms",
        low=0,
    )
    local_retention_bytes: int = setting(
        0,
        "with a tier, the oldest segments that the bucket has are deleted from the local disk while the rest there is "
        "at least this large; 0 leaves that to retention_bytes",
        low=0,
    )
    compression: Compression = field(
        default=Compression.NONE, metadata={"help": "sealed segments are compressed in the background"}
    )
    compression_level: int = setting(
        3,
        "from fast to small; on telemetry, 9 takes four times the processor time of 3 and saves a seventh more",
        low=1,
        high=19,
    )
    compression_dictionary: bool = field(
        default=False,
        metadata={
            "help": "train dictionaries on the log and use them where they help; useful for small segments"
        },
    )
    compact: bool = field(
        default=False,
        metadata={"help": "keep only the last record of each topic in sealed segments"},
    )
    tombstone_ms: int = setting(
        DAY_MS,
        "minimum age at which compaction removes a tombstone: a record with an empty payload, which deletes its topic",
        low=0,
    )
    record_bytes: int = setting(
        16 * MIB, "maximum size of a record, header block included", low=1, high=1024 * MIB
    )
    topic_count: int = setting(
        1_000_000, "maximum number of topics of a log; about 200 bytes of memory each", low=0, high=2**32 - 2
    )
    topic_bytes: int = setting(
        256 * MIB, "maximum size of the names of a log's topics together; they are kept in memory", low=0
    )

    @property
    def roll_age_ms(self) -> int:
        """Return the effective age at which a segment is sealed: with a retention shorter than `segment_age_ms`,
        records would outlive it by far otherwise."""
        limits = (self.segment_age_ms, self.retention_ms, self.local_retention_ms)
        return min(limit for limit in limits if limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig(Declared):
    """Settings of a store while it is open. Raises ValueError for a value out of range."""

    # Settings with a visible effect.
    ack: Ack = field(default=Ack.SYNCED, metadata={"help": "default level that `append` waits for"})
    recovery: Recovery = field(
        default=Recovery.REPAIR, metadata={"help": "repair or refuse a log that was not closed"}
    )
    min_free_bytes: int = setting(64 * MIB, "appends are refused below this much free space", low=0)
    sync_interval_ms: int = setting(
        1000, "maximum time until written data is synced, regardless of the ack level", low=1
    )
    queue_bytes: int = setting(
        256 * MIB,
        "maximum memory of submissions to a log that wait for the disk; more are refused, and an append waits "
        "when as much was written since the last flush began",
        low=1,
    )
    delete_delay_ms: int = setting(
        60_000,
        "the files of deleted and replaced segments are unlinked after this time, for readers in other processes",
        low=0,
    )
    # Settings that affect speed only.
    tail_bytes: int = setting(
        64 * MIB,
        "memory for the newest records of all logs together; readers at the end need no system call",
        low=0,
    )
    sealed_at_open: int = setting(
        100,
        "number of logs of a crashed owner that are sealed before the store is open; others are served at once, and "
        "sealed in the background or before their first append",
        low=0,
    )
    sync_interval_bytes: int = setting(64 * MIB, "a log is synced when this much of it is unsynced", low=1)
    scrub_bytes_per_s: int = setting(
        MIB, "rate of reading and verifying sealed segments in the background; 0: never", low=0
    )
    scrub_interval_ms: int = setting(7 * DAY_MS, "pause between two such passes over the store", low=1)
    compact_bytes_per_s: int = setting(
        32 * MIB, "rate of reading and writing compacted logs in the background", low=1
    )
    open_segment_count: int = setting(256, "maximum number of sealed segments held open for reading", low=1)
    log: LogConfig = field(default_factory=LogConfig, metadata={"help": "settings of logs that are created"})

    def __post_init__(self) -> None:
        if not isinstance(self.log, LogConfig):
            raise TypeError(f"invalid log: expected a LogConfig, got {self.log!r}")
        Declared.__post_init__(self)


Config = TypeVar("Config", LogConfig, StoreConfig)


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return a copy with other values for the fields that `settings` names. Raises TypeError for an unknown name,
    with a suggestion; TypeError or ValueError for an invalid value."""
    if not isinstance(config, LogConfig | StoreConfig):
        raise TypeError(f"invalid config: expected a StoreConfig, got {config!r}")
    for name in settings:
        if name not in _names(config):
            raise TypeError(f"{type(config).__name__} has no setting {name!r}{_where(name, _names(config))}")
    return replace(config, **settings)


def _names(config: LogConfig | StoreConfig | type[LogConfig | StoreConfig]) -> list[str]:
    return [one.name for one in fields(config)]


def _where(name: str, known: Sequence[str]) -> str:
    if name in _names(LogConfig):
        return f"; it is a setting of a log: LogConfig({name}=…)"
    if name in _names(StoreConfig):
        return f"; it is a setting of the store: timestone.open(…, {name}=…)"
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
