"""A table in a folder, with a column of numbers, without Spark."""

from pathlib import Path

import deltalake
import pyarrow as pa

from tests.support import table_files
from timestone_pipeline import MAINTENANCE, PipelineConfig, TablesConfig, Warehouse, compact, open_tables
from timestone_pipeline.delta.snapshot import Snapshot
from timestone_pipeline.delta.tables import tables_of

TABLE = tables_of(PipelineConfig()).windows
SCHEMA = pa.schema([("messages", pa.int64()), ("minutes", pa.string())])


def opened(root: Path | str, keep_s: int = 600) -> Warehouse:
    warehouse = open_tables(PipelineConfig(tables=TablesConfig(path=str(root), keep_replaced_s=keep_s)))
    table_files.create(warehouse, {TABLE.name: SCHEMA})
    return warehouse


def snapshot(warehouse: Warehouse) -> Snapshot:
    return Snapshot(TABLE, warehouse.root.child(TABLE.name))


def add(warehouse: Warehouse, *values: int, replace: bool = False, number: int = 0, **marks: int) -> None:
    here = snapshot(warehouse)
    with warehouse.work() as work:
        table_files.write(work, TABLE, pa.table({"messages": values}), "1")
        work.commit(here, {**marks, **({"": number} if number else {})}, here.files() if replace else ())


def rows(root: Path, version: int | None = None) -> list[int]:
    """Return the rows as a reader of Delta sees them."""
    found = deltalake.DeltaTable(root / TABLE.name, version=version).to_pyarrow_table()
    return sorted(found["messages"].to_pylist())


def sweep(root: Path, keep_s: int) -> None:
    config = PipelineConfig(tables=TablesConfig(path=str(root), keep_replaced_s=keep_s))
    warehouse = open_tables(config)
    with warehouse.role(MAINTENANCE):
        compact(config, warehouse)
