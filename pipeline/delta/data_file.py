"""Parquet file of a table: written by a task of Spark to its place in the table, and described to the driver, which
commits it. Also the facts of a file known without reading its rows."""

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from timestone.disk import access

from ..errors import DataFileFailed, InvalidConfig
from .location import Location

_ROWS = 131_072
_GROUP_BYTES = 64 << 20
"""Maximum size of a row group, which is held in memory."""
DESCRIBED = "table string, path string, day string, row_count bigint, size_bytes bigint, bounds string"
_DESCRIBED = pa.schema(
    {
        "table": "string",
        "path": "string",
        "day": "string",
        "row_count": "int64",
        "size_bytes": "int64",
        "bounds": "string",
    }
)
TABLE = "table of the row"
"""Column that names the table of a row, where rows of several tables are written together. Blanks: no field of a
message can have this name."""
RECORD = ("log", "partition", "offset")
"""Columns that name a record for good."""

Batches: TypeAlias = Iterator[pa.RecordBatch]
Read: TypeAlias = Callable[[Batches], Batches]
"""Function for the tasks of `mapInArrow`: it gets batches of paths and partition values."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """File of a table. `path` is relative to the table: `ingest_date=2026-01-31/000000000012-….parquet`."""

    table: str
    path: str
    rows: int
    bytes: int
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Lowest and highest value of a timestamp column, both included, in microseconds since 1970."""
    value: str | None = None
    """Value of the partition column."""

    @property
    def number(self) -> int:
        """Return the batch that has written it; 0 for a file of maintenance."""
        head, dash, _ = self.path.rpartition("/")[2].partition("-")
        return int(head) if dash and len(head) == 12 and head.isdigit() else 0

    def bounds_of(self, column: str) -> tuple[int, int]:
        """Return the bounds of `column`. Raises InvalidConfig if they were not stored: the file was written when the
        time of a message was another field."""
        if column not in self.bounds:
            raise InvalidConfig(
                f"message.time: {self.table}/{self.path} was written when it was another field than {column!r}; set"
                " tables.path to another folder to build the tables again from the log"
            )
        return self.bounds[column]

    def overlaps(self, column: str, low_us: int | None, high_us: int | None) -> bool:
        """Return whether it may have rows with `low_us` <= `column` < `high_us`; None: no limit."""
        if column not in self.bounds:
            return True
        lowest, highest = self.bounds[column]
        return (low_us is None or highest >= low_us) and (high_us is None or lowest < high_us)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Convert errors of the block to DataFileFailed with the data file `path`: Arrow does not name the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        number = error.errno if isinstance(error, OSError) else None
        raise DataFileFailed(f"{path}: {os.strerror(number) if number else error}") from error


@dataclass(frozen=True, slots=True)
class Target:
    """Place and form of the files of a table that a task writes."""

    table: str
    location: Location
    options: Mapping[str, str] = field(repr=False)
    prefix: str
    """Begin of the names: the number of the batch."""
    partition: str | None
    bounds: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    """Its columns with their names in the rows, where rows of several tables are written together."""
    whole: bool = False
    """Every row is one of this table, independent of its TABLE."""


def writer(*targets: Target) -> Read:
    """Return a function that writes rows as one file a table and partition, durably, and returns their descriptions.
    Rows with the column TABLE go to the target of that name, if there is one, rows without it to the only target."""

    def write(batches: Batches) -> Batches:
        files: dict[tuple[str, str | None], _OpenFile] = {}
        for batch in batches:
            for target in targets:
                for value, rows in _parts(_rows_of(batch, target), target.partition):
                    key = target.table, value
                    if key not in files:
                        files[key] = _OpenFile(target, value, rows.schema)
                    files[key].write(rows)
        yield pa.RecordBatch.from_pylist([one.close() for one in files.values()], schema=_DESCRIBED)

    return write


def described(row: Mapping[str, Any]) -> DataFile:
    """Return the file of a description."""
    bounds = {name: (low, high) for name, (low, high) in json.loads(row["bounds"]).items()}
    return DataFile(row["table"], row["path"], row["row_count"], row["size_bytes"], bounds, row["day"])


def reader(location: Location, options: Mapping[str, str], schema: pa.Schema, partition: str | None) -> Read:
    """Return a function from paths and partition values to rows, for what Spark's own reader cannot or need not do.
    Columns that a file lacks are null; those that the schema lacks are not fetched."""

    def read(batches: Batches) -> Batches:
        files = location.filesystem(options)
        for batch in batches:
            for one in batch.to_pylist():
                with (
                    naming(f"{location.uri}/{one['path']}"),
                    pq.ParquetFile(files.open_input_file(one["path"])) as source,
                ):
                    there = [name for name in schema.names if name in source.schema_arrow.names]
                    for rows in source.iter_batches(batch_size=_ROWS, columns=there):
                        yield _shaped(rows, schema, {partition: one["value"]} if partition else {})

    return read


def rewriter(target: Target, gone: pa.Table) -> Read:
    """Return a function from paths and partition values to descriptions: it writes each file again, without the rows
    that `gone` names as RECORD. A file of which no row is left is not written."""

    def write(batches: Batches) -> Batches:
        files = target.location.filesystem(target.options)
        written: list[_OpenFile] = []
        for one in (row for batch in batches for row in batch.to_pylist()):
            with (
                naming(f"{target.location.uri}/{one['path']}"),
                pq.ParquetFile(files.open_input_file(one["path"])) as source,
            ):
                new: _OpenFile | None = None
                for rows in source.iter_batches(batch_size=_ROWS):
                    there = np.ones(rows.num_rows, dtype=bool)
                    there[_matches(rows, gone)[0]] = False
                    if (left := rows.filter(pa.array(there))).num_rows:
                        new = new or _OpenFile(target, one["value"], left.schema)
                        new.write(left)
            written += [new] if new else []
        yield pa.RecordBatch.from_pylist([one.close() for one in written], schema=_DESCRIBED)

    return write


def picker(
    read: Read, named: pa.Table, schema: pa.Schema, given: Mapping[str, str], names: Mapping[str, str]
) -> Read:
    """Return a function from paths and partition values to rows of `schema`: those of `read` that `named` names as
    RECORD, with the other columns of `named` and the values `given`. names: those of columns that are called otherwise
    by `read`."""

    def pick(batches: Batches) -> Batches:
        for rows in read(batches):
            numbers, of_named = _matches(rows, named)
            both = (rows.take(numbers), named.take(of_named).combine_chunks())
            columns = {names.get(name, name): part[name] for part in both for name in part.schema.names}
            for one in pa.table(columns).to_batches():
                yield _shaped(one, schema, given)

    return pick


def _matches(rows: pa.RecordBatch, named: pa.Table) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """Return the numbers of the rows that are in `named` by their RECORD, ascending, and their numbers there."""
    here, there = (
        pa.table({**{name: one[name] for name in RECORD}, number: np.arange(one.num_rows)})
        for one, number in ((rows, "here"), (named, "there"))
    )
    found = here.join(there, list(RECORD), join_type="inner").sort_by("here")
    return found["here"].to_numpy(), found["there"].to_numpy()


class _OpenFile:
    """Parquet file that is being written."""

    def __init__(self, target: Target, value: str | None, schema: pa.Schema) -> None:
        self._target, self._value = target, value
        name = f"{target.prefix}{uuid.uuid4().hex}.parquet"
        self.path = f"{target.partition}={quote(value or '', safe='')}/{name}" if target.partition else name
        if (folder := target.location.folder) is not None:
            access.make_folders((folder / self.path).parent)
        self._sink = target.location.filesystem(target.options).open_output_stream(self.path)
        self._about: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="snappy", metadata_collector=self._about
        )
        self._gathered: list[pa.RecordBatch] = []
        self._row_count = self._size_bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._gathered.append(rows)
        self._row_count += rows.num_rows
        self._size_bytes += rows.nbytes
        if self._row_count >= _ROWS or self._size_bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> dict[str, Any]:
        self._flush()
        self._writer.close()
        size_bytes = self._sink.tell()
        self._sink.close()
        if (folder := self._target.location.folder) is not None:
            flush(folder / self.path)
            flush((folder / self.path).parent)
            flush(folder)
        return {
            "table": self._target.table,
            "path": self.path,
            "day": self._value,
            "row_count": self._about[0].num_rows,
            "size_bytes": size_bytes,
            "bounds": json.dumps(_bounds(self._about[0], self._target.bounds)),
        }

    def _flush(self) -> None:
        if self._gathered:
            self._writer.write_table(pa.Table.from_batches(self._gathered))
            self._gathered, self._row_count, self._size_bytes = [], 0, 0


def _rows_of(batch: pa.RecordBatch, target: Target) -> pa.RecordBatch:
    if TABLE not in batch.schema.names:
        return batch
    chosen = batch.select(target.columns.values()).rename_columns(list(target.columns))
    return chosen if target.whole else chosen.filter(pc.equal(batch.column(TABLE), target.table))


def _parts(batch: pa.RecordBatch, partition: str | None) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Yield the rows of each value of the partition column, without that column."""
    if not batch.num_rows:
        return
    if partition is None:
        yield None, batch
        return
    column = batch.column(partition)
    rest = batch.drop_columns([partition])
    values = pc.unique(column).to_pylist()
    for value in values:
        rows = rest if len(values) == 1 else rest.filter(pc.equal(column, pa.scalar(value, column.type)))
        yield str(value), rows


def _bounds(about: "pq.FileMetaData", columns: tuple[str, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for group in range(about.num_row_groups):
        for place in range(about.num_columns):
            chunk = about.row_group(group).column(place)
            name = chunk.path_in_schema
            if name in columns and chunk.statistics is not None and chunk.statistics.has_min_max:
                low, high = int(chunk.statistics.min_raw), int(chunk.statistics.max_raw)
                before = found.get(name, [low, high])
                found[name] = [min(low, before[0]), max(high, before[1])]
    return found


def _shaped(rows: pa.RecordBatch, schema: pa.Schema, given: Mapping[str, str]) -> pa.RecordBatch:
    columns = []
    for one in schema:
        if one.name in given:
            column = pa.repeat(pa.scalar(given[one.name]).cast(one.type), rows.num_rows)
        elif one.name in rows.schema.names:
            column = rows.column(one.name).cast(one.type)
        else:
            column = pa.nulls(rows.num_rows, one.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
