"""Status of a pipeline, from its tables and the log. Needs no Spark and takes no lock."""

import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

import timestone
from pyspark_timestone.offsets import LogPartition

from .config import PipelineConfig
from .delta.data_file import naming
from .delta.progress import Progress
from .delta.snapshot import Snapshot
from .delta.warehouse import State, Warehouse
from .jobs.reprocess import is_interrupted


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Status of a table."""

    table: str
    rows: int
    files: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Status of a partition of a log. `synced_offset` is None if the log cannot be read."""

    log: str
    partition: int
    offset: int
    """Next offset that the tables lack."""
    synced_offset: int | None
    lag: int | None
    """Records that are durable in the log and not in the tables."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Status of a pipeline. Times are microseconds since 1970; None is never."""

    tables: tuple[TableStatus, ...]
    logs: tuple[PartitionStatus, ...]
    problems: dict[str, int]
    """Dead letters by reason."""
    late: int
    """Messages that wait for a backfill."""
    batches: int
    last_commit_us: int | None
    age_s: float | None
    """Time since the last batch."""
    newest_us: int | None
    """Newest event time."""
    closed_us: dict[int, int]
    """Length of a window in minutes -> end of the last closed windows."""
    exact: bool
    """bronze = clean + dead letters + duplicates, counted in rows."""
    reprocess_interrupted: bool = False
    """Whether a reprocess was killed between two tables; the next one completes it."""

    def to_json(self) -> dict[str, Any]:
        """Return the object for `--json`."""
        return asdict(self)


def status(config: PipelineConfig, warehouse: Warehouse) -> PipelineStatus:
    """Return the current status. Raises TableFailed, DataFileFailed, OSError."""
    state = warehouse.state()
    tables = warehouse.tables
    rows = {table.name: _rows(state, state.of(table)) for table in tables.all()}
    parts = (tables.clean.name, tables.dead_letters.name, tables.duplicates.name)
    shown = [table for table in tables.all() if table is not tables.progress]
    return PipelineStatus(
        tables=tuple(_size(state.of(table), rows[table.name]) for table in shown),
        logs=tuple(_positions(config, state.progress)),
        problems=_reasons(state, state.of(tables.dead_letters)),
        late=rows[tables.late.name],
        batches=state.number,
        last_commit_us=state.time_us or None,
        age_s=(time.time_ns() // 1000 - state.time_us) / 1_000_000 if state.time_us else None,
        newest_us=state.progress.newest_us,
        closed_us=dict(sorted(state.progress.closed_us.items())),
        exact=rows[tables.bronze.name] == sum(rows[name] for name in parts),
        reprocess_interrupted=is_interrupted(state, tables),
    )


def _size(snapshot: Snapshot, rows: int) -> TableStatus:
    return TableStatus(snapshot.table.name, rows, snapshot.file_count, snapshot.file_bytes)


def _rows(state: State, snapshot: Snapshot) -> int:
    """Return the rows without those of a batch that is in some tables only."""
    if snapshot.number <= state.number:
        return snapshot.rows
    return sum(one.rows for one in snapshot.files() if one.number <= state.number)


def _reasons(state: State, snapshot: Snapshot) -> dict[str, int]:
    counted: Counter[str] = Counter()
    files = snapshot.location.threaded_filesystem(snapshot.location.options())
    for one in snapshot.files():
        if one.number > state.number:
            continue
        with (
            naming(f"{snapshot.location.uri}/{one.path}"),
            pq.ParquetFile(files.open_input_file(one.path)) as letters,
        ):
            problems = letters.read(columns=["problem"])["problem"]
        for value in pc.value_counts(problems):
            counted[value["values"].as_py()] += value["counts"].as_py()
    return dict(counted.most_common())


def _positions(config: PipelineConfig, progress: Progress) -> list[PartitionStatus]:
    ends: dict[LogPartition, int] = {}
    try:
        with config.source.view() as store:
            for key in map(LogPartition._make, store.log_names(server=bool(config.source.logs))):
                if not config.source.logs or key.log in config.source.logs:
                    ends[key] = store.log(*key).synced_offset
    except (OSError, timestone.TimestoneError):
        pass  # the tables can be examined without the store they came from
    keys = sorted({*progress.offset.positions, *ends})
    return [_position(key, progress.offset.positions.get(key, 0), ends.get(key)) for key in keys]


def _position(key: LogPartition, position: int, end: int | None) -> PartitionStatus:
    return PartitionStatus(*key, position, end, None if end is None else max(0, end - position))
