"""One table at one version: its files, and the application transactions in its Delta log.

A commit succeeds if the version is still the newest, or if what was committed since does not concern it: delta-rs
tries an append again behind another, and refuses to remove a file twice or to repeat an application transaction."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from ..errors import Conflict, TableFailed
from .data_file import DataFile, flush
from .location import Location
from .tables import Table

if TYPE_CHECKING:
    import pyarrow.dataset as pa_dataset

APP_ID = "timestone-pipeline"
"""Application transaction with the number of the newest batch; others begin with this name and a slash."""
ROWS, TOOK_S = "timestone.rows", "timestone.took_s"
"""In the history of a table: rows that a commit added, and seconds that its work took."""
_TRUNCATED_US = 999
"""Delta's statistics of times are cut to milliseconds."""


class Snapshot:
    """Version of a table; no files if it does not exist."""

    def __init__(self, table: Table, location: Location) -> None:
        """Load the newest version. Raises TableFailed."""
        self.table = table
        self.location = location
        self._delta = _opened(location)

    @property
    def delta(self) -> DeltaTable:
        """Return the table of delta-rs. Raises TableFailed if it does not exist."""
        if self._delta is None:
            raise TableFailed(f"{self.location.uri}: no Delta table")
        return self._delta

    @property
    def exists(self) -> bool:
        """Return whether the table has been created."""
        return self._delta is not None

    def mark(self, name: str = "") -> int | None:
        """Return the number of an application transaction, None if there is none."""
        return None if self._delta is None else self._delta.transaction_version(_app(name))

    @property
    def number(self) -> int:
        """Return the newest batch that has rows in this table."""
        return self.mark() or 0

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(pc.sum(self._actions["num_records"]).as_py() or 0)

    @property
    def file_count(self) -> int:
        """Return the number of files."""
        return int(self._actions.num_rows)

    @property
    def file_bytes(self) -> int:
        """Return the size of all files."""
        return int(pc.sum(self._actions["size_bytes"]).as_py() or 0)

    def files(
        self, column: str = "", low_us: int | None = None, high_us: int | None = None
    ) -> list[DataFile]:
        """Return the files that may have rows with `low_us` <= `column` < `high_us`, all of them by default."""
        chosen = self._actions
        lowest, highest = f"min.{column}", f"max.{column}"
        for name, limit, compare in ((highest, low_us, pc.greater_equal), (lowest, high_us, pc.less)):
            if limit is not None and name in chosen.column_names:
                moment = chosen[name].cast(pa.int64())
                slack = _TRUNCATED_US if name == highest else 0
                # A file without statistics may have any row.
                chosen = chosen.filter(pc.fill_null(compare(pc.add(moment, slack), limit), True))
        return [self._file(one) for one in chosen.to_pylist()]

    def dataset(self) -> "pa_dataset.Dataset":
        """Return the rows, for DuckDB and other readers of datasets. Unlike with `DeltaTable.to_pyarrow_dataset`, a
        program may end before it has read all of them. Raises TableFailed if the table does not exist."""
        files = self.location.threaded_filesystem(self.location.options())
        return self.delta.to_pyarrow_dataset(filesystem=files)

    def _file(self, one: Mapping[str, Any]) -> DataFile:
        bounds = {}
        for column in self.table.bounds:
            low, high = one.get(f"min.{column}"), one.get(f"max.{column}")
            if low is not None and high is not None:
                bounds[column] = (_us(low), _us(high) + _TRUNCATED_US)
        value = one.get(f"partition.{self.table.partition_column}")
        text = None if value is None else str(value)
        return DataFile(self.table.name, one["path"], one["num_records"], one["size_bytes"], bounds, text)

    @cached_property
    def _actions(self) -> pa.Table:
        if self._delta is None:
            return pa.table({"num_records": pa.array([], pa.int64()), "size_bytes": pa.array([], pa.int64())})
        return pa.table(self._delta.get_add_actions(flatten=True))

    def commit(
        self,
        added: Sequence[DataFile] = (),
        removed: Iterable[DataFile] = (),
        marks: Mapping[str, int] | None = None,
        schema: Schema | None = None,
        took_s: float | None = None,
    ) -> None:
        """Commit files, durably, with the application transactions `marks`. With `schema`, which becomes that of the
        table, they replace all files. Raises Conflict if another process has
        removed one of `removed`, or has committed one of `marks`, since this version; then nothing has changed.
        took_s: time that the work has taken so far, for the history of the table."""
        now_ms = time.time_ns() // 1_000_000
        gone = [
            RemoveAction(
                path=one.path,
                deletion_timestamp=now_ms,
                data_change=True,
                partition_values=self._values(one),
                size=one.bytes,
            )
            for one in removed
        ]
        new = [
            AddAction(one.path, one.bytes, self._values(one), now_ms, True, self._statistics(one))
            for one in added
        ]
        delta = self.delta
        try:
            delta.create_write_transaction(
                [*new, *gone],
                mode="append" if schema is None else "overwrite",
                schema=schema or delta.schema(),
                partition_by=delta.metadata().partition_columns,
                commit_properties=CommitProperties(
                    custom_metadata={
                        ROWS: str(sum(one.rows for one in added)),
                        **({} if took_s is None else {TOOK_S: f"{took_s:.3f}"}),
                    },
                    app_transactions=[
                        Transaction(_app(name), number) for name, number in (marks or {}).items()
                    ],
                ),
            )
        except CommitFailedError as error:
            raise Conflict(
                f"{self.location.uri}: another process has changed the table: {_line(error)}"
            ) from error
        except (DeltaError, OSError) as error:
            raise failed(self.location, error) from error
        make_durable(self.location)

    def _values(self, one: DataFile) -> dict[str, str | None]:
        column = self.table.partition_column
        return {column: one.value} if column else {}

    def _statistics(self, one: DataFile) -> str:
        low = {name: _text(low) for name, (low, _) in one.bounds.items()}
        high = {name: _text(high) for name, (_, high) in one.bounds.items()}
        return json.dumps({"numRecords": one.rows, "minValues": low, "maxValues": high, "nullCount": {}})


def make_durable(location: Location) -> None:
    """Flush what the newest commit has written: delta-rs leaves that to the system. Object storage needs none."""
    if location.folder is None:
        return
    log = location.folder / "_delta_log"
    newest = max(log.glob("[0-9]*.json"))
    for path in (newest, log / f"{newest.stem}.checkpoint.parquet", log / "_last_checkpoint", log):
        if path.exists():
            flush(path)


def _opened(location: Location) -> DeltaTable | None:
    if location.folder is not None and not (location.folder / "_delta_log").exists():
        return None
    try:
        return DeltaTable(location.uri, storage_options=location.options())
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise failed(location, error) from error


def failed(location: Location, error: Exception) -> TableFailed:
    """Return an error of delta-rs or of the storage in one line."""
    return TableFailed(f"{location.uri}: {_line(error)}")


def _line(error: Exception) -> str:
    # The following lines state the place in the source of delta-rs, and the answer of the storage.
    return str(error).partition("\n")[0]


def _app(name: str) -> str:
    return f"{APP_ID}/{name}" if name else APP_ID


def _us(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def _text(moment_us: int) -> str:
    seconds, rest = divmod(moment_us, 1_000_000)
    # No arithmetic with floats, and none that ends in 9999.
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:03}Z"
