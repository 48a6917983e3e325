"""The same files as Delta tables: each commit once, after a kill at any point."""

import json
import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from timestone_pipeline import (
    PipelineConfig,
    PipelineError,
    TablesConfig,
    Warehouse,
    compact,
    delta,
    open_tables,
)
from timestone_pipeline.delta import APP_ID
from timestone_pipeline.tables import tables_of
from timestone_pipeline.warehouse import MAINTENANCE, STREAM

TABLE = tables_of(PipelineConfig()).windows


def opened(root: Path, format: str = "delta") -> Warehouse:
    return open_tables(PipelineConfig(tables=TablesConfig(path=root, format=format)))  # type: ignore[arg-type]


def add(warehouse: Warehouse, table: pa.Table, *, minutes: int = 1, replace: bool = False) -> None:
    state = warehouse.ledger.state()
    with warehouse.work(STREAM) as work:
        folder = work.folder_of(TABLE) / f"minutes={minutes}"
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "x.parquet")
        work.collect(TABLE)
        warehouse.commit("batch", [work], removed=list(state.files) if replace else [])


def rows(root: Path, version: int | None = None) -> list[tuple[int, int]]:
    table = deltalake.DeltaTable(root / TABLE.name, version=version).to_pyarrow_table()
    return sorted(zip(table["messages"].to_pylist(), table["minutes"].to_pylist(), strict=True))


def test_committed_rows_are_in_delta_once(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, pa.table({"messages": [1, 2]}))
    add(warehouse, pa.table({"messages": [3]}), minutes=5)
    assert rows(tmp_path) == [(1, 1), (2, 1), (3, 5)]
    for _ in range(2):
        with opened(tmp_path).role(STREAM):
            pass
    known = deltalake.DeltaTable(tmp_path / TABLE.name)
    known.create_checkpoint()
    with opened(tmp_path).role(STREAM):
        assert list((tmp_path / TABLE.name / "_delta_log").glob("*.checkpoint.parquet"))
    assert (known.version(), known.transaction_version(APP_ID)) == (1, 2)


def test_replaced_file_stays_for_readers_of_the_previous_version(
    tmp_path: Path,
) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, pa.table({"messages": [1]}))
    add(warehouse, pa.table({"messages": [2]}))
    add(warehouse, pa.table({"messages": [12]}), replace=True)
    assert rows(tmp_path) == [(12, 1)]
    assert rows(tmp_path, version=1) == [(1, 1), (2, 1)]
    add(warehouse, pa.table({"messages": [3]}))
    assert rows(tmp_path) == [(3, 1), (12, 1)]


def changes(root: Path) -> list[bool]:
    """Return whether the files in the newest Delta commit change the table's data."""
    newest = max((root / TABLE.name / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text("utf-8").splitlines()]
    return [one[kind]["dataChange"] for one in actions for kind in ("add", "remove") if kind in one]


def test_compaction_repeats_no_row_for_a_stream_on_the_delta_table(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    for number in range(2):
        add(warehouse, pa.table({"messages": [number]}))
    assert changes(tmp_path) == [True]
    with warehouse.role(MAINTENANCE):
        compact(PipelineConfig(), warehouse)
    assert changes(tmp_path) == [False, False, False]
    # A commit published together with earlier ones does, because Delta gets both as one change.
    plain = opened(tmp_path, "parquet")
    add(plain, pa.table({"messages": [2]}))
    with plain.role(MAINTENANCE):
        compact(PipelineConfig(), plain)
    with opened(tmp_path).role(STREAM):
        assert changes(tmp_path) == [True, True]
    assert rows(tmp_path) == [(0, 1), (1, 1), (2, 1)]


def test_commits_missing_after_a_kill_are_added_by_the_next(tmp_path: Path) -> None:
    add(opened(tmp_path), pa.table({"messages": [1]}))
    plain = opened(tmp_path, "parquet")
    add(plain, pa.table({"messages": [2]}), minutes=5)
    add(plain, pa.table({"messages": [3]}), minutes=5, replace=True)
    with opened(tmp_path).role(STREAM):
        assert rows(tmp_path) == [(3, 5)]
    # And a deleted Delta log is created again.
    shutil.rmtree(tmp_path / TABLE.name / "_delta_log")
    with opened(tmp_path).role(STREAM):
        assert rows(tmp_path) == [(3, 5)]


def test_added_column_is_null_in_older_rows_and_a_changed_type_is_refused(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, pa.table({"messages": [1]}))
    add(warehouse, pa.table({"messages": [2], "mean": [0.5]}))
    found = deltalake.DeltaTable(tmp_path / TABLE.name).to_pyarrow_table().sort_by("messages")
    assert found["mean"].to_pylist() == [None, 0.5]
    with pytest.raises(PipelineError, match=r"column 'mean' is .*double.* set tables.path to another folder"):
        add(warehouse, pa.table({"messages": [2], "mean": ["half"]}))


def test_missing_library_is_reported_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "deltalake", None)
    with pytest.raises(PipelineError, match=r"pip install '.\[delta\]'"):
        opened(tmp_path)
    opened(tmp_path, "parquet")


def test_damaged_delta_log_is_reported_and_completed_after_a_repair(
    tmp_path: Path,
) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, pa.table({"messages": [1]}))
    (path,) = (tmp_path / TABLE.name / "_delta_log").glob("*.json")
    whole = path.read_bytes()
    path.write_bytes(b"garbage")
    with pytest.raises(
        PipelineError, match=r"_delta_log: commit 2 is in the ledger and not in Delta: .*Json error[^\n]*$"
    ):
        add(warehouse, pa.table({"messages": [2]}))
    path.write_bytes(whole)
    add(opened(tmp_path), pa.table({"messages": [3]}))
    assert rows(tmp_path) == [(1, 1), (2, 1), (3, 1)]


def test_changes_of_another_writer_are_reverted(tmp_path: Path) -> None:
    """The ledger is the only source of truth."""
    warehouse = opened(tmp_path)
    add(warehouse, pa.table({"messages": [1]}))
    deltalake.DeltaTable(tmp_path / TABLE.name).delete("messages = 1")
    assert rows(tmp_path) == []
    add(warehouse, pa.table({"messages": [2]}))
    assert rows(tmp_path) == [(1, 1), (2, 1)]
