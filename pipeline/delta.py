"""Publication as Delta tables: a Delta log beside the files of each folder, written with delta-rs.

Derived from the ledger like the folders: the difference between Delta and the newest commit becomes one Delta commit,
which carries the commit's number as its application transaction. So a commit is in Delta once, and one left out by a
killed process is part of the next."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .data_file import DataFile
from .errors import PipelineError
from .ledger import COMPACTION, Commit, State
from .tables import Table

APP_ID = "timestone-pipeline"

try:
    import deltalake
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
except ImportError:
    deltalake = None  # type: ignore[assignment]


class DeltaLogs:
    """Publisher of each table as a Delta table in `<root>/<table>`. The files must exist: see `Folders`."""

    def __init__(self, root: Path, tables: Sequence[Table]) -> None:
        """Raises PipelineError if deltalake is not installed."""
        if deltalake is None:
            raise PipelineError(
                "tables.format is delta, which needs deltalake: pip install '.[delta]' in a clone"
            )
        self._root = root
        self._tables = tables

    def publish(self, state: State) -> None:
        """Publish a state. Raises PipelineError for an incompatible change of the schema, a damaged Delta log, and a
        concurrent writer of it. The next commit adds what is missing."""
        for table in self._tables:
            folder = self._root / table.name
            try:
                self._publish(table, folder, state)
            except deltalake.exceptions.DeltaError as error:
                # The following lines state the place in the source of delta-rs.
                reason = str(error).partition("\n")[0]
                raise PipelineError(
                    f"{folder / '_delta_log'}: commit {state.number} is in the ledger and not in Delta: {reason}"
                ) from error

    def _publish(self, table: Table, folder: Path, state: State) -> None:
        files = {one.path: one for one in state.of(table.name)}
        known = deltalake.DeltaTable(folder) if deltalake.DeltaTable.is_deltatable(str(folder)) else None
        if known is None:
            if files:
                self._create(table, folder, files, state.number)
        elif (known.transaction_version(APP_ID) or 0) < state.number:
            self._update(known, table, folder, files, state)

    def _create(self, table: Table, folder: Path, files: dict[str, DataFile], number: int) -> None:
        deltalake.transaction.create_table_with_add_actions(
            str(folder),
            deltalake.Schema.from_arrow(_schema(table, folder, files)),
            [_added(one, data_change=True) for one in files.values()],
            partition_by=[table.partition_column] if table.partition_column else [],
            commit_properties=_of_commit(number),
        )

    def _update(
        self,
        known: "deltalake.DeltaTable",
        table: Table,
        folder: Path,
        files: dict[str, DataFile],
        state: State,
    ) -> None:
        there = {path: size for path, size in _active(known)}
        new = [one for path, one in files.items() if path not in there]
        gone = [path for path in there if path not in files]
        if not new and not gone:
            return
        if new:
            self._widen(known, _schema(table, folder, {one.path: one for one in new}))
        # Readers that follow the Delta table must not get the rows of merged files again.
        changed = not _only_merged(state.newest, table, new, gone)
        now_ms = time.time_ns() // 1_000_000
        removed = [
            RemoveAction(
                path=path,
                deletion_timestamp=now_ms,
                data_change=changed,
                partition_values=_values(path),
                size=there[path],
            )
            for path in gone
        ]
        known.create_write_transaction(
            [*(_added(one, data_change=changed) for one in new), *removed],
            mode="append",
            schema=known.schema(),
            partition_by=known.metadata().partition_columns,
            commit_properties=_of_commit(state.number),
        )

    def _widen(self, known: "deltalake.DeltaTable", schema: pa.Schema) -> None:
        """Return the schema with the columns added to messages."""
        wanted = deltalake.Schema.from_arrow(schema)
        fields = {field.name: field for field in known.schema().fields}
        for field in wanted.fields:
            if field.name in fields and fields[field.name].type != field.type:
                raise PipelineError(
                    f"{known.table_uri}: column {field.name!r} is {fields[field.name].type} in the Delta table and"
                    f" {field.type} in new files; set tables.path to another folder"
                )
        missing = [field for field in wanted.fields if field.name not in fields]
        if missing:
            known.alter.add_columns(missing)
            known.update_incremental()


def _active(known: "deltalake.DeltaTable") -> list[tuple[str, int]]:
    actions = pa.table(known.get_add_actions(flatten=True))
    return list(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))


def _of_commit(number: int) -> "CommitProperties":
    return CommitProperties(app_transactions=[Transaction(APP_ID, number)])


def _schema(table: Table, folder: Path, files: dict[str, DataFile]) -> pa.Schema:
    """Return the columns of the newest file, which has all columns, and that of the partition."""
    newest = max(files)
    fields = [field.with_nullable(True) for field in pq.read_schema(folder / newest).remove_metadata()]
    if table.partition is not None:
        name, kind = table.partition.split()
        fields.append(pa.field(name, pa.date32() if kind == "date" else pa.int32()))
    return pa.schema(fields)


def _only_merged(commit: Commit | None, table: Table, new: Sequence[DataFile], gone: Sequence[str]) -> bool:
    """Return whether these files are all that a compaction has changed, without changes of others in between."""
    if commit is None or commit.action != COMPACTION:
        return False
    added = {one.path for one in commit.added if one.table == table.name}
    removed = {path for name, path in commit.removed if name == table.name}
    return added == {one.path for one in new} and removed == set(gone)


def _added(one: DataFile, *, data_change: bool) -> "AddAction":
    return AddAction(
        path=one.path,
        size=one.bytes,
        partition_values=_values(one.path),
        modification_time=time.time_ns() // 1_000_000,
        data_change=data_change,
        stats=json.dumps({"numRecords": one.rows}),
    )


def _values(path: str) -> dict[str, str | None]:
    parts = path.split("/")[:-1]
    return {name: value for name, _, value in (part.partition("=") for part in parts)}
