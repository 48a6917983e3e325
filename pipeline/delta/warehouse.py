"""Tables of a pipeline at one location: a Delta table each.

    tables/clean/            a table: data files, and its Delta log in _delta_log
    tables/progress/         a table of one row: how far the stream has come. The last that a batch commits
    tables/_checkpoint/      Spark's
    tables/_locks/           only in a folder

A batch commits one table after the other, in the order of `Tables.all`. Each commit carries the number of the batch and
the end of its range of offsets as application transactions, so that a batch that was interrupted finds each table
done or not done (`batches`)."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from timestone.disk import access

from ..config import PipelineConfig, TablesConfig
from ..errors import OldTables, TableFailed
from .data_file import DataFile, Target, described, naming, writer
from .location import Location
from .locks import exclusively
from .progress import Progress
from .schema_evolution import evolve
from .snapshot import Snapshot, failed, make_durable
from .tables import Table, Tables, tables_of

STREAM = "stream"
MAINTENANCE = "maintenance"
"""Roles in which one process each may work on the tables at the same time."""
_LOG_RETENTION = "interval 1 days"
"""A commit reads what was committed since its work began, which may be hours. Days of small files slow down each."""
_CHECKPOINT_COMMITS = 20


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of the tables."""

    action: str
    """Its cause: batch, backfill, reprocess or compaction."""
    number: int
    """Number of the newest batch of the stream."""
    added: tuple[DataFile, ...] = ()
    removed: int = 0
    """Number of files that were replaced."""


@dataclass(frozen=True, slots=True)
class State:
    """All tables. Every table has at least the rows of batch `number`, and possibly more: those of a batch that is
    being committed, or was interrupted."""

    number: int
    """Newest batch that is in all tables; 0 before the first."""
    time_us: int
    """Time of its commit."""
    progress: Progress
    tables: Mapping[str, Snapshot]

    def of(self, table: Table) -> Snapshot:
        """Return one table."""
        return self.tables[table.name]

    @property
    def newest(self) -> int:
        """Return the newest batch that is in some table."""
        return max(one.number for one in self.tables.values())


class Warehouse:
    """Tables of a pipeline. One process may commit as the stream and one as maintenance at the same time."""

    def __init__(self, config: TablesConfig, tables: Tables) -> None:
        """Open a location. Touches no file. Raises InvalidConfig."""
        self.config = config
        self.tables = tables
        self.root = Location.of(config.path)

    @property
    def checkpoint(self) -> Path:
        """Return the folder of Spark's checkpoint."""
        # Absolute: Java may have another current folder.
        return (self.config.checkpoint or self.root.checkpoint).absolute()

    def exists(self) -> bool:
        """Return whether there are tables. Raises OldTables, TableFailed."""
        self._refuse_old()
        return Snapshot(self.tables.progress, self.root.child(self.tables.progress.name)).exists

    def create(self, schemas: Mapping[str, Schema]) -> None:
        """Create missing tables; add columns that the schemas have and the tables lack, and widen those that are wider
        in the schemas. Raises OldTables, TableFailed, Conflict."""
        self._refuse_old()
        for table in self.tables.all():
            location = self.root.child(table.name)
            snapshot = Snapshot(table, location)
            try:
                if snapshot.exists:
                    with self.work() as work:
                        evolve(snapshot, schemas[table.name], work)
                else:
                    self._create(table, location, schemas[table.name])
            except (DeltaError, OSError) as error:
                raise failed(location, error) from error

    @contextmanager
    def role(self, name: str) -> Iterator[None]:
        """Take the role `stream` or `maintenance` of the tables in a folder. Raises Busy, OldTables. In object storage
        two processes of a role are noticed by the second's commit, which fails."""
        self._refuse_old()
        if (folder := self.root.folder) is None:
            yield
            return
        busy = f"another process is the {name} of the tables in {folder}; wait for it, or stop it"
        with exclusively(folder / "_locks" / f"{name.upper()}.lock", busy=busy):
            yield

    def state(self) -> State:
        """Return the current state. The last table of a batch is read first, so that the others have all of it. Raises
        TableFailed, DataFileFailed."""
        found: dict[str, Snapshot] = {}
        number, time_us, progress = 0, 0, Progress()
        for table in reversed(self.tables.all()):
            found[table.name] = Snapshot(table, self.root.child(table.name))
            if table is self.tables.progress:
                number, time_us, progress = self._progress(found[table.name])
        return State(number, time_us, progress, found)

    @contextmanager
    def work(self, number: int = 0) -> Iterator["Work"]:
        """Collect files that belong to batch `number`; those that are not committed at the end are deleted."""
        work = Work(self, f"{number:012}-" if number else "")
        try:
            yield work
        finally:
            work.close()

    def uris(self, files: Sequence[DataFile]) -> list[str]:
        """Return where files can be read, also for some time after they were replaced."""
        return [f"{self.root.child(one.table).uri}/{one.path}" for one in files]

    def _create(self, table: Table, location: Location, schema: Schema) -> None:
        if location.folder is not None:
            access.make_folders(location.folder / "_delta_log")  # delta-rs would let every user read it
        DeltaTable.create(
            location.uri,
            schema,
            mode="ignore",
            partition_by=[table.partition_column] if table.partition_column else None,
            configuration={
                "delta.checkpointInterval": str(_CHECKPOINT_COMMITS),
                "delta.logRetentionDuration": _LOG_RETENTION,
                "delta.enableChangeDataFeed": "true",
                # Each checkpoint repeats the names of replaced files for this long.
                "delta.deletedFileRetentionDuration": f"interval {max(1, self.config.keep_replaced_h)} hours",
                # Those of merged files: delta-rs would make them of the first 32 columns only.
                **({"delta.dataSkippingStatsColumns": ",".join(table.bounds)} if table.bounds else {}),
            },
            storage_options=location.options(),
        )
        make_durable(location)

    def _refuse_old(self) -> None:
        folder = self.root.folder
        if folder is not None and (folder / "_ledger").exists():
            raise OldTables(
                f"{folder}: tables of the first version (_ledger), which this one does not continue: set tables.path"
                " to a new folder, and `timestone pipeline run` makes the tables again from the log"
            )

    def _progress(self, snapshot: Snapshot) -> tuple[int, int, Progress]:
        files = snapshot.files()
        if not files:
            return 0, 0, Progress()
        if len(files) > 1:
            raise TableFailed(f"{snapshot.location.uri}: expected one file, got {len(files)}")
        (path,) = (one.path for one in files)
        with naming(f"{snapshot.location.uri}/{path}"):
            source = snapshot.location.threaded_filesystem(snapshot.location.options()).open_input_file(path)
            with pq.ParquetFile(source) as file:
                (row,) = file.read().to_pylist()
        try:
            progress = Progress.from_json(json.loads(row["progress"]))
        except (KeyError, TypeError, ValueError) as error:
            raise TableFailed(f"{snapshot.location.uri}: not a progress of this version: {error}") from None
        return row["batch"], round(row["committed_at"].timestamp() * 1_000_000), progress


class Work:
    """Files that one operation has written, and not committed yet."""

    def __init__(self, warehouse: Warehouse, prefix: str) -> None:
        self._warehouse = warehouse
        self._prefix = prefix
        self._began_s = time.monotonic()
        self._pending: list[DataFile] = []
        self.added: list[DataFile] = []
        """Files that were committed."""
        self.removed = 0

    def target(self, table: Table) -> Target:
        """Return what a task has to know to write files of `table`."""
        location = self._warehouse.root.child(table.name)
        return Target(
            table.name, location, location.options(), self._prefix, table.partition_column, table.bounds
        )

    def collect(self, files: list[DataFile]) -> list[DataFile]:
        """Note files that were written."""
        self._pending += files
        return files

    def of(self, table: Table) -> list[DataFile]:
        """Return the files of a table that are not committed yet."""
        return [one for one in self._pending if one.table == table.name]

    def commit(
        self,
        snapshot: Snapshot,
        marks: Mapping[str, int],
        removed: Sequence[DataFile] = (),
        *,
        empty: bool = False,
    ) -> None:
        """Commit the files of a table with application transactions; with `empty`, also if there are none. Raises
        Conflict."""
        added = self.of(snapshot.table)
        if not added and not removed and not empty:
            return
        snapshot.commit(added, removed, marks, took_s=time.monotonic() - self._began_s)
        self._pending = [one for one in self._pending if one not in added]
        if snapshot.table is not self._warehouse.tables.progress:
            self.added += added
            self.removed += len(removed)

    def replace_all(self, snapshot: Snapshot, schema: Schema) -> None:
        """Commit the files of a table in place of all that it has, with another schema. Raises Conflict."""
        added = self.of(snapshot.table)
        snapshot.commit(added, schema=schema)
        self._pending = [one for one in self._pending if one not in added]

    def commit_progress(
        self, state: State, number: int, progress: Progress, marks: Mapping[str, int]
    ) -> None:
        """Commit the progress after batch `number`, which is then done."""
        table = self._warehouse.tables.progress
        row = {"batch": number, "committed_at": datetime.now(UTC), "progress": json.dumps(progress.to_json())}
        schema = pa.schema(
            [("batch", pa.int64()), ("committed_at", pa.timestamp("us", "UTC")), ("progress", pa.string())]
        )
        (written,) = writer(self.target(table))(iter([pa.RecordBatch.from_pylist([row], schema=schema)]))
        self.collect([described(one) for one in written.to_pylist()])
        self.commit(state.of(table), marks, state.of(table).files())

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete files that are not needed after all."""
        self._pending = [one for one in self._pending if one not in files]
        for one in files:
            location = self._warehouse.root.child(one.table)
            with suppress(OSError):  # left to a compaction
                location.filesystem(location.options()).delete_file(one.path)

    def close(self) -> None:
        """Delete all files that were not committed."""
        self.discard(self._pending)


def open_tables(config: PipelineConfig) -> Warehouse:
    """Return the tables of a configuration. Touches no file. Raises InvalidConfig."""
    return Warehouse(config.tables, tables_of(config))
