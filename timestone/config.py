"""The engine's settings as frozen values. What belongs here: units, defaults, ranges and what each one costs.

The engine never reads a file or the environment for them; the command line does, in `cli/`.
"""

import difflib
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn, TypeVar

from timestone.declared import Declared, setting

KIB = 1024
MIB = 1024 * KIB
DAY_MS = 24 * 3600 * 1000

SEGMENT_BYTES_MAX = 4 * 1024 * MIB - 1
"""Positions in an index entry are u32."""
SEGMENT_ENTRIES_MAX = 2**27
"""4 GiB of index."""


class _Word(enum.StrEnum):
    """A setting that is one of a few words."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"{value!r} is none of {', '.join(cls)}")


class Ack(_Word):
    """What has happened to a record when its append is acknowledged."""

    MEMORY = "memory"
    """Accepted into the queue of the committer. Lost when the process dies."""
    WRITTEN = "written"
    """In the page cache and visible to readers. Survives kill -9, not power loss."""
    SYNCED = "synced"
    """Flushed by fdatasync. Survives power loss, as far as the disk is honest."""


class Recovery(_Word):
    """What `timestone.open` does with a log that was not closed."""

    REPAIR = "repair"
    """Cut a torn tail (the cut bytes are kept as `.lost`), quarantine damaged records, say so, continue."""
    STRICT = "strict"
    """Refuse to open, change nothing, name the file."""


class Compression(_Word):
    """What becomes of a log's sealed segments."""

    NONE = "none"
    """They stay as they were written."""
    ZSTD = "zstd"
    """They are compressed in the background; reads cost a frame of 256 KiB, decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig(Declared):
    """Settings of one log. Kept in the catalogue from the log's creation on.

    Raises ValueError when a value is out of its range.
    """

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
        "them without end",
        low=0,
    )
    retention_bytes: int = setting(
        0,
        "the oldest segments are deleted while the rest, indexes included, is at least this large; 0 keeps all",
        low=0,
    )
    compression: Compression = field(
        default=Compression.NONE, metadata={"help": "sealed segments are compressed in the background"}
    )
    compression_level: int = setting(
        3,
        "from fast to small; on telemetry 9 takes four times the processor of 3 and saves a seventh more",
        low=1,
        high=19,
    )
    compression_dictionary: bool = field(
        default=False,
        metadata={
            "help": "train dictionaries on the log and use them where they help: worth it for small segments"
        },
    )
    compact: bool = field(
        default=False,
        metadata={"help": "of each topic only the last record is kept, as far as segments are sealed"},
    )
    tombstone_ms: int = setting(
        DAY_MS,
        "a record with an empty payload, which deletes its topic in a log that is compacted, goes itself after this "
        "time, at the earliest",
        low=0,
    )
    record_bytes: int = setting(16 * MIB, "the largest record, header block included", low=1, high=1024 * MIB)
    topic_count: int = setting(
        1_000_000, "the most topics of a log; about 200 bytes of memory each", low=0, high=2**32 - 2
    )
    topic_bytes: int = setting(
        256 * MIB, "the most bytes of the names of a log's topics together; they are kept in memory", low=0
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "compression", Compression(self.compression))
        Declared.__post_init__(self)

    @property
    def roll_age_ms(self) -> int:
        """The age at which a segment is really sealed: with a retention shorter than `segment_age_ms`, records would
        else outlive it by far."""
        return min(self.segment_age_ms, self.retention_ms) if self.retention_ms else self.segment_age_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig(Declared):
    """Settings of a store for as long as it is open.

    Raises ValueError when a value is out of its range.
    """

    # What a caller can notice.
    ack: Ack = field(default=Ack.SYNCED, metadata={"help": "what `append` waits for when it is not told"})
    recovery: Recovery = field(
        default=Recovery.REPAIR, metadata={"help": "repair or refuse a log that was not closed"}
    )
    min_free_bytes: int = setting(64 * MIB, "appends are refused below this much free space", low=0)
    sync_interval_ms: int = setting(
        1000, "written data is synced at the latest after this time, regardless of the ack level", low=1
    )
    queue_bytes: int = setting(
        256 * MIB,
        "the most memory of what was submitted to a log and waits for the disk; more is refused, and an append waits "
        "when as much was written since the last flush began",
        low=1,
    )
    delete_delay_ms: int = setting(
        60_000,
        "the files of deleted and replaced segments are unlinked after this time, for readers in other processes",
        low=0,
    )
    # What only a clock can notice.
    tail_bytes: int = setting(
        64 * MIB,
        "memory for the newest records of all logs together; caught-up readers cost no system call",
        low=0,
    )
    sealed_at_open: int = setting(
        100,
        "so many logs whose owner died are sealed before the store is open; others are served meanwhile, and sealed in "
        "the background or in front of their first append",
        low=0,
    )
    sync_interval_bytes: int = setting(
        64 * MIB, "written data is synced when this much of it has gathered in a log", low=1
    )
    scrub_bytes_per_s: int = setting(
        MIB, "sealed segments are read and verified in the background at this rate; 0 for never", low=0
    )
    scrub_interval_ms: int = setting(7 * DAY_MS, "the pause between two such passes over the store", low=1)
    compact_bytes_per_s: int = setting(
        32 * MIB, "logs that are compacted are read and written in the background at this rate", low=1
    )
    open_segment_count: int = setting(256, "the most sealed segments held open for reading", low=1)
    log: LogConfig = field(default_factory=LogConfig, metadata={"help": "settings of logs that are created"})

    def __post_init__(self) -> None:
        # Strings are welcome where an enum is meant: `open("data", ack="written")`.
        object.__setattr__(self, "ack", Ack(self.ack))
        object.__setattr__(self, "recovery", Recovery(self.recovery))
        if not isinstance(self.log, LogConfig):
            raise TypeError(f"log is {self.log!r}; it has to be a LogConfig")
        Declared.__post_init__(self)


Config = TypeVar("Config", LogConfig, StoreConfig)


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """The same with other values for the fields that `settings` name. Raises TypeError for a name that is no field,
    and says which one is near or whose it is; TypeError or ValueError for a value that cannot be."""
    if not isinstance(config, LogConfig | StoreConfig):
        raise TypeError(f"config is {config!r}; it has to be a StoreConfig")
    for name in settings:
        if name not in _names(config):
            raise TypeError(f"{type(config).__name__} has no setting {name!r}{_where(name, _names(config))}")
    return replace(config, **settings)


def _names(config: LogConfig | StoreConfig | type[LogConfig | StoreConfig]) -> list[str]:
    return [one.name for one in fields(config)]


def _where(name: str, known: Sequence[str]) -> str:
    if name in _names(LogConfig):
        return f"; it is one of a log: LogConfig({name}=…)"
    if name in _names(StoreConfig):
        return f"; it is one of the store: timestone.open(…, {name}=…)"
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
