"""Tables without Spark and Java: SQL with DuckDB, and a copy as plain Parquet. Both of one state of all tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from shutil import copyfileobj
from typing import Any

import pyarrow as pa

from timestone.disk import access

from ..errors import PipelineError
from .data_file import naming
from .warehouse import Warehouse


def duckdb_module() -> Any:
    """Return the module `duckdb`, imported at the first use: it is large, and other commands do without. Raises
    PipelineError if it is missing."""
    try:
        return import_module("duckdb")
    except ImportError:
        raise PipelineError("DuckDB is missing: pip install '.[pipeline]' in a clone") from None


@contextmanager
def query(warehouse: Warehouse, sql: str) -> Iterator[pa.RecordBatchReader]:
    """Give the rows of a query over the tables, each under its name. Raises PipelineError if DuckDB is missing or
    refuses the query, TableFailed."""
    duckdb = duckdb_module()
    tables = warehouse.state().tables
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, snapshot in tables.items():
            if snapshot.exists:
                connection.register(name, snapshot.dataset())
        try:
            found: Any = connection.sql(sql)
            yield (
                pa.RecordBatchReader.from_batches(pa.schema([]), [])
                if found is None
                else found.to_arrow_reader()
            )
        except duckdb.Error as error:
            raise PipelineError(f"the query failed: {str(error).partition(chr(10))[0]}") from None


def export(warehouse: Warehouse, folder: Path, names: tuple[str, ...] = ()) -> dict[str, int]:
    """Copy the current files of tables, all of them by default, to folders of plain Parquet with the partitions in the
    paths. Return the rows of each. Raises PipelineError if `folder` is not empty or a table is not known,
    DataFileFailed, OSError."""
    known = warehouse.tables.by_name()
    for name in names:
        if name not in known:
            raise PipelineError(f"invalid table: expected one of {', '.join(known)}, got {name!r}")
    if folder.exists() and any(folder.iterdir()):
        raise PipelineError(f"{folder}: not an empty folder")
    state = warehouse.state()
    rows: dict[str, int] = {}
    for name in names or known:
        snapshot = state.tables[name]
        files = snapshot.location.threaded_filesystem(snapshot.location.options())
        access.make_folders(folder / name)
        for one in snapshot.files():
            target = folder / name / one.path
            access.make_folders(target.parent)
            access.ensure_file(target)
            with (
                naming(f"{snapshot.location.uri}/{one.path}"),
                files.open_input_stream(one.path) as source,
                target.open("wb") as copy,
            ):
                copyfileobj(source, copy)
        rows[name] = snapshot.rows
    return rows
