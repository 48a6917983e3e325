"""Tables of a pipeline: names, columns, partition columns, time columns with statistics. Knows no file and no row."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..config import MessageConfig, PipelineConfig

RECORD = "log string, partition int, offset bigint, timestamp timestamp, topic string, value binary"
_ORIGIN = "log string, partition int, offset bigint, received_at timestamp, topic string"
_HEADERS = "headers array<struct<key: string, value: binary>>, flags int"
KEPT = {"headers": "headers of the record", "flags": "flags of the record"}
"""Columns of a record that its message lacks, and their names beside it. Blanks: no field can have these names."""
_RAW = {"timestamp": "received_at", **KEPT}


@dataclass(frozen=True, slots=True)
class Table:
    """Table of a pipeline. `bounds` are the timestamp columns whose lowest and highest value is stored for every file,
    so that a read by time opens only the relevant files."""

    name: str
    columns: str
    partition: str | None = None
    """Partition column with its type; it is in the paths and not in the files."""
    bounds: tuple[str, ...] = ()
    raw: Mapping[str, str] = field(default_factory=dict)
    """Only for records as in the log: the names of its columns in rows that are also parsed, where they differ."""

    @property
    def partition_column(self) -> str | None:
        """Return the name of that column."""
        return self.partition.split()[0] if self.partition else None

    @property
    def ddl(self) -> str:
        """Return all columns as a schema of Spark."""
        return f"{self.columns}, {self.partition}" if self.partition else self.columns


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of a configuration. bronze = clean + dead_letters + duplicates, record by record; late is a part of
    clean."""

    bronze: Table
    """Every record as in the log, never parsed."""
    clean: Table
    """Messages, each once."""
    dead_letters: Table
    """Records that are no message, with the reason."""
    duplicates: Table
    """Repeated messages."""
    late: Table
    """Messages of clean that arrived after one of their windows was closed, until a backfill has counted them."""
    windows: Table
    """One row for each device and window."""
    last: Table
    """Newest message of each device."""
    progress: Table
    """One row: what the stream has done. The last to be committed in a batch."""

    def all(self) -> tuple[Table, ...]:
        """Return the tables in the order in which a batch commits them."""
        return (
            self.bronze,
            self.clean,
            self.dead_letters,
            self.duplicates,
            self.late,
            self.windows,
            self.last,
            self.progress,
        )

    def by_name(self) -> Mapping[str, Table]:
        """Return the tables by name."""
        return {table.name: table for table in self.all()}


def tables_of(config: PipelineConfig) -> Tables:
    """Return the tables of a configuration."""
    message = config.message
    times = (message.time, "received_at")
    clean = f"{_ORIGIN}, {message.ddl}"
    rejected = f"{_ORIGIN}, value binary, problem string, {_identity(message)}"
    return Tables(
        bronze=Table("bronze", f"{RECORD}, {_HEADERS}", "ingest_date date", ("timestamp",), _RAW),
        clean=Table("clean", clean, "ingest_date date", times),
        dead_letters=Table("dead_letters", rejected, "ingest_date date", ("received_at",)),
        duplicates=Table("duplicates", rejected, "ingest_date date", ("received_at",)),
        late=Table("late", clean, "ingest_date date", times),
        windows=Table("windows", _window(message), "minutes int", ("start",)),
        last=Table("last", clean, None, (message.time,)),
        progress=Table("progress", "batch bigint, committed_at timestamp, progress string"),
    )


def _identity(message: MessageConfig) -> str:
    names = dict.fromkeys((message.device, message.sequence, message.time))
    return ", ".join(f"`{name}` {message.fields[name]}" for name in names)


def _window(message: MessageConfig) -> str:
    columns = [f"`{message.device}` {message.fields[message.device]}", "start timestamp", "messages bigint"]
    for name in message.measurements:
        kind = message.fields[name]
        columns += [f"`{name}_mean` double", f"`{name}_min` {kind}", f"`{name}_max` {kind}"]
    return ", ".join(columns)
