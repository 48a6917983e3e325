"""Settings of a pipeline as frozen values: names, units, defaults, ranges and meaning. The pipeline reads no file for
them; the command line does, in `cli/`. Sections are tables of the TOML file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import lcm
from pathlib import Path
from typing import Literal

import timestone
from timestone import StoreView
from timestone.settings_schema import Declared, setting

from .errors import InvalidConfig

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_TYPE = re.compile(
    r"(string|boolean|date|timestamp|binary|variant|decimal(\(\d+(, *\d+)?\))?|(array|map|struct)<.+>|"
    + "|".join(NUMBERS)
    + ")"
)
RESERVED = (
    "log", "partition", "offset", "received_at", "topic", "value", "problem", "ingest_date",
    "minutes", "start", "end", "messages",
)  # fmt: skip
"""Columns added by the pipeline; fields of messages cannot have these names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig(Declared):
    """Input of the pipeline. Raises InvalidConfig."""

    path: str = setting("timestone-data", "the folder of the store, or the bucket it uploads to: s3://…")
    tail: Path | None = field(
        default=None,
        metadata={
            "help": "with a bucket: the folder of the store, for the records that are not uploaded yet"
        },
    )
    logs: tuple[str, ...] = setting((), "names of logs; none: all of them")
    topics: tuple[str, ...] = setting((), "MQTT topic filters; none: every record")
    starting: Literal["earliest", "latest"] = setting("earliest", "where the very first run begins")
    records_per_batch: int = setting(500_000, "the most records of one batch", low=1)
    fail_on_data_loss: bool = setting(
        True, "stop when records that come next are gone; else warn and continue"
    )

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        if self.tail is not None and "://" not in self.path:
            raise InvalidConfig(f"invalid source.tail: expected a bucket in source.path, got {self.path!r}")

    def view(self) -> StoreView:
        """Return a view of the store. Raises TimestoneError, OSError."""
        return timestone.view(self.path, tail=self.tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesConfig(Declared):
    """Location of the tables."""

    path: str = setting(
        "tables", "the folder of the tables, created when missing, or s3://BUCKET/PREFIX, gs://…, az://…"
    )
    checkpoint: Path | None = field(
        default=None,
        metadata={
            "help": "the folder of Spark's checkpoint; none: in the folder of the tables, or in the current one"
        },
    )
    keep_replaced_s: int = setting(
        600, "replaced files stay this long for readers that have them in their list", low=0
    )
    file_bytes: int = setting(128 * 1024 * 1024, "compaction makes files of about this size", low=1)

    @property
    def keep_replaced_h(self) -> int:
        """Return `keep_replaced_s` in whole hours, rounded up."""
        return -(-self.keep_replaced_s // 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageConfig(Declared):
    """Schema of a message. Raises InvalidConfig."""

    fields: Mapping[str, str] = field(
        default_factory=lambda: {
            "device": "string",
            "seq": "bigint",
            "ts": "timestamp",
            "temperature": "double",
            "humidity": "double",
        },
        metadata={"help": "the fields of the JSON object and their types, as Spark writes them"},
    )
    device: str = setting("device", "the field that names the device; a message without it is a dead letter")
    time: str = setting("ts", "the field with the time of the event, a timestamp; needed as well")
    sequence: str = setting("seq", "the field that tells messages of a device apart; may be missing")
    future_s: int = setting(
        300, "a message that claims to be later than its arrival by more than this is a dead letter", low=0
    )

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        named: dict[str, str] = {}
        for name, kind in self.fields.items():
            # Spark ignores the case of names.
            if name.lower() in RESERVED:
                raise InvalidConfig(
                    f"invalid message.fields: expected names that the tables do not use themselves, got {name!r}"
                )
            if (other := named.setdefault(name.lower(), name)) != name:
                raise InvalidConfig(
                    f"invalid message.fields: expected names that differ in more than case, got {other} and {name}"
                )
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise InvalidConfig(
                    f"invalid message.fields: expected names of letters, digits and _, got {name!r}"
                )
            if not _TYPE.fullmatch(kind.lower()):
                raise InvalidConfig(f"invalid message.fields.{name}: expected a type of Spark, got {kind!r}")
        for role in ("device", "time", "sequence"):
            name = getattr(self, role)
            if name not in self.fields:
                raise InvalidConfig(
                    f"invalid message.{role}: expected one of message.fields ({', '.join(self.fields)}), got {name!r}"
                )
        made = {
            f"{name}_{suffix}".lower(): name
            for name in self.measurements
            for suffix in ("mean", "min", "max")
        }
        if (measured := made.get(self.device.lower())) is not None:
            raise InvalidConfig(
                f"invalid message.device: expected a name that no column of windows has, got {self.device!r}, which is"
                f" made of {measured!r}; rename one of them"
            )
        if self.fields[self.time].lower() != "timestamp":
            raise InvalidConfig(
                f"invalid message.time: expected a timestamp, got {self.time!r}, a {self.fields[self.time]}"
            )

    @property
    def ddl(self) -> str:
        """Return the fields as a schema of Spark."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.fields.items())

    @property
    def keys(self) -> tuple[str, str]:
        """Return the fields that are equal in a message and its repetition."""
        return (self.device, self.sequence)

    @property
    def measurements(self) -> tuple[str, ...]:
        """Return the fields that windows average: all numbers but the sequence."""
        return tuple(
            name
            for name, kind in self.fields.items()
            if kind.lower() in NUMBERS and name not in (self.device, self.sequence)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateConfig(Declared):
    """Definition of a repeated message."""

    within_s: int = setting(
        600,
        "a message arriving this long after one with the same device and sequence is a repetition; 0: never",
        low=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsConfig(Declared):
    """Windows of event time. Raises InvalidConfig."""

    minutes: tuple[int, ...] = setting((1, 5, 15), "the lengths of the windows; none: no windows")
    lateness_s: int = setting(
        600, "a window is closed when a message this much newer than its end has arrived", low=0
    )

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        if len(set(self.minutes)) != len(self.minutes):
            raise InvalidConfig(f"invalid windows.minutes: expected each length once, got {[*self.minutes]}")
        if any(not 1 <= length <= 1440 for length in self.minutes) or 1440 % lcm(*self.minutes):
            raise InvalidConfig(
                "invalid windows.minutes: expected lengths that fit into a day together, such as 1, 5, 15, got"
                f" {[*self.minutes]}"
            )

    @property
    def block_minutes(self) -> int:
        """Return the shortest time that begins and ends with windows of every length."""
        return lcm(*self.minutes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig(Declared):
    """Settings of Spark; ignored under `spark-submit`."""

    master: str = setting("local[*,4]", "where the tasks run; the 4 is how often one is tried")
    trigger_s: int = setting(10, "the time between the beginnings of two batches", low=0)
    conf: Mapping[str, str] = field(
        default_factory=dict, metadata={"help": "settings of Spark itself, such as spark.driver.memory"}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Settings of a pipeline."""

    source: SourceConfig = field(default_factory=SourceConfig)
    tables: TablesConfig = field(default_factory=TablesConfig)
    message: MessageConfig = field(default_factory=MessageConfig)
    deduplicate: DeduplicateConfig = field(default_factory=DeduplicateConfig)
    windows: WindowsConfig = field(default_factory=WindowsConfig)
    spark: SparkConfig = field(default_factory=SparkConfig)
