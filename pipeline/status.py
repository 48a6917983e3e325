"""Status of a pipeline, from its ledger and the log. Needs no Spark and takes no lock."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

import timestone
from pyspark_timestone.offsets import LogPartition

from .config import PipelineConfig
from .data_file import DataFile, naming
from .ledger import now_us
from .progress import Progress
from .tables import tables_of
from .warehouse import Warehouse


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
    commits: int
    last_commit_us: int | None
    age_s: float | None
    """Time since then."""
    newest_us: int | None
    """Newest event time."""
    closed_us: dict[int, int]
    """Length of a window in minutes -> end of the last closed windows."""
    exact: bool
    """bronze = clean + dead letters + duplicates, counted in rows."""

    def to_json(self) -> dict[str, Any]:
        """Return the object for `--json`."""
        return asdict(self)


def status(config: PipelineConfig, warehouse: Warehouse) -> PipelineStatus:
    """Return the current status. Raises DamagedLedger, DataFileFailed, OSError."""
    tables = tables_of(config)
    state = warehouse.ledger.state()
    sizes = {table.name: _size(table.name, state.of(table.name)) for table in tables.all()}
    parts = (tables.clean.name, tables.dead_letters.name, tables.duplicates.name)
    letters = warehouse.paths(state.of(tables.dead_letters.name))
    return PipelineStatus(
        tables=tuple(sizes.values()),
        logs=tuple(_positions(config, state.progress)),
        problems=_reasons(letters),
        late=sizes[tables.late.name].rows,
        commits=state.number,
        last_commit_us=state.time_us or None,
        age_s=(now_us() - state.time_us) / 1_000_000 if state.time_us else None,
        newest_us=state.progress.newest_us,
        closed_us=dict(sorted(state.progress.closed_us.items())),
        exact=sizes[tables.bronze.name].rows == sum(sizes[name].rows for name in parts),
    )


def _size(table: str, files: list[DataFile]) -> TableStatus:
    return TableStatus(table, sum(one.rows for one in files), len(files), sum(one.bytes for one in files))


def _reasons(paths: list[str]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for path in paths:
        with naming(path), pq.ParquetFile(path) as letters:
            problems = letters.read(columns=["problem"])["problem"]
        for one in pc.value_counts(problems):
            counted[one["values"].as_py()] += one["counts"].as_py()
    return dict(counted.most_common())


def _positions(config: PipelineConfig, progress: Progress) -> list[PartitionStatus]:
    ends: dict[LogPartition, int] = {}
    try:
        with timestone.view(config.source.path) as store:
            for key in map(LogPartition._make, store.log_names()):
                if not config.source.logs or key.log in config.source.logs:
                    ends[key] = store.log(*key).synced_offset
    except (OSError, timestone.TimestoneError):
        pass  # the tables can be examined without the store they came from
    keys = sorted({*progress.offset.positions, *ends})
    return [_position(key, progress.offset.positions.get(key, 0), ends.get(key)) for key in keys]


def _position(key: LogPartition, position: int, end: int | None) -> PartitionStatus:
    return PartitionStatus(*key, position, end, None if end is None else max(0, end - position))
