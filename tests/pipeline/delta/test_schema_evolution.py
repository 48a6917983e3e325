"""A table that exists gets added and widened columns, and no other type."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import table_files
from tests.support.windows_table import SCHEMA, TABLE, add, opened, snapshot
from timestone_pipeline.errors import TableFailed


def test_added_column_is_null_in_older_rows_and_a_changed_type_is_refused(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1)
    table_files.create(warehouse, {TABLE.name: SCHEMA.append(pa.field("mean", pa.float64()))})
    with warehouse.work() as work:
        table_files.write(work, TABLE, pa.table({"messages": [2], "mean": [0.5]}), "1")
        work.commit(snapshot(warehouse), {})
    found = deltalake.DeltaTable(tmp_path / TABLE.name).to_pyarrow_table().sort_by("messages")
    assert found["mean"].to_pylist() == [None, 0.5]
    told = r"table windows: column 'messages' is long in its files and string .* set tables.path to another folder"
    with pytest.raises(TableFailed, match=told):
        table_files.create(warehouse, {TABLE.name: pa.schema([("messages", pa.string())])})


def test_widened_column_is_wide_in_all_files_and_nothing_else_changes(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    narrow = SCHEMA.append(pa.field("low", pa.float32())).append(pa.field("n", pa.int32()))
    wide = SCHEMA.append(pa.field("low", pa.float64())).append(pa.field("n", pa.int64()))
    add(warehouse, 1, number=4)
    table_files.create(warehouse, {TABLE.name: narrow})
    for number, schema, n in ((5, narrow, 7), (6, wide, 1 << 40)):
        table_files.create(warehouse, {TABLE.name: schema})
        with warehouse.work(number) as work:
            found = pa.table({"messages": [number], "low": [0.5], "n": [n]}, schema=schema.remove(1))
            table_files.write(work, TABLE, found, "1")
            work.commit(snapshot(warehouse), {"": number})
    delta = deltalake.DeltaTable(tmp_path / TABLE.name)
    assert pa.schema(delta.schema()).field("n").type == pa.int64()
    found = delta.to_pyarrow_table().sort_by("messages").select(["messages", "low", "n"])
    assert found.to_pylist() == [
        {"messages": 1, "low": None, "n": None},
        {"messages": 5, "low": 0.5, "n": 7},
        {"messages": 6, "low": 0.5, "n": 1 << 40},
    ]
    for path in delta.file_uris():
        assert pq.read_schema(path).field("n").type == pa.int64()
    assert sorted(one.number for one in snapshot(warehouse).files()) == [0, 5, 6]
    assert snapshot(warehouse).number == 6
    with pytest.raises(TableFailed, match="column 'low' is double in its files and float in the settings"):
        table_files.create(warehouse, {TABLE.name: narrow})
