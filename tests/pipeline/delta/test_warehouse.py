"""All tables: created, opened and given a role; old files stay for readers."""

import json
import os
import time
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_timestone.offsets import LogPartition, SourceOffset
from tests.support import table_files
from tests.support.windows_table import TABLE, add, opened, rows, snapshot, sweep
from timestone_pipeline import MAINTENANCE, PipelineConfig, TablesConfig, open_tables
from timestone_pipeline.delta.progress import Progress
from timestone_pipeline.delta.warehouse import STREAM
from timestone_pipeline.errors import Busy, OldTables


def test_folders_are_private_to_the_owner(tmp_path: Path) -> None:
    warehouse = opened(tmp_path / "tables")
    with warehouse.role(STREAM):
        add(warehouse, 1)
    for path in [warehouse.root.folder, *(tmp_path / "tables").iterdir()]:
        assert path is not None and path.stat().st_mode & 0o077 == 0, path


def test_replaced_file_stays_for_readers_with_an_older_list(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1, 2)
    (path,) = warehouse.uris(snapshot(warehouse).files())
    add(warehouse, 12, replace=True)
    sweep(tmp_path, 600)
    assert pq.read_metadata(path).num_rows == 2, "not long enough ago"
    sweep(tmp_path, 0)
    assert not Path(path).exists()
    assert rows(tmp_path) == [12]


def test_uncommitted_files_are_removed_and_those_of_a_killed_process_after_a_day(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1)
    with warehouse.work() as work:
        table_files.write(work, TABLE, pa.table({"messages": [2]}), "1")
    (kept,) = (tmp_path / TABLE.name / "minutes=1").iterdir()
    orphans = [kept.with_name(f"{name}.parquet") for name in ("new", "old")]
    for one in orphans:
        pq.write_table(pa.table({"messages": [99]}), one)
    yesterday = time.time() - 25 * 3600
    os.utime(orphans[1], (yesterday, yesterday))
    sweep(tmp_path, 0)
    assert [one.exists() for one in (kept, *orphans)] == [True, True, False]
    assert rows(tmp_path) == [1]


def test_stream_and_maintenance_may_have_one_process_each(tmp_path: Path) -> None:
    with opened(tmp_path).role(STREAM), opened(tmp_path).role(MAINTENANCE):
        for role in (STREAM, MAINTENANCE):
            with (
                pytest.raises(Busy, match=f"another process is the {role} of the tables"),
                opened(tmp_path).role(role),
            ):
                pass


def test_progress_is_one_row_and_is_read_back(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    for number in (1, 2):
        state = warehouse.state()
        progress = Progress(SourceOffset({LogPartition("mqtt", 0): number}), 5, {1: 3})
        with warehouse.work(number) as work:
            work.commit_progress(state, number, progress, {"": number})
        assert (warehouse.state().number, warehouse.state().progress) == (number, progress)
    assert deltalake.DeltaTable(tmp_path / "progress").to_pyarrow_table().num_rows == 1


def test_compaction_repeats_no_row_for_a_stream_on_the_delta_table(tmp_path: Path) -> None:
    warehouse = opened(tmp_path)
    add(warehouse, 1)
    add(warehouse, 2)
    sweep(tmp_path, 600)
    newest = max((tmp_path / TABLE.name / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text("utf-8").splitlines()]
    changes = [one[kind]["dataChange"] for one in actions for kind in ("add", "remove") if kind in one]
    assert changes == [False, False, False]
    assert rows(tmp_path) == [1, 2]


def test_tables_of_the_first_version_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "_ledger").mkdir()
    warehouse = open_tables(PipelineConfig(tables=TablesConfig(path=str(tmp_path))))
    told = r"tables of the first version \(_ledger\).* tables.path to a new folder, .*`timestone pipeline run`[^\n]*$"
    for act in (warehouse.exists, lambda: warehouse.create({}), lambda: warehouse.role(STREAM).__enter__()):
        with pytest.raises(OldTables, match=told):
            act()


def test_opening_tables_changes_no_file(tmp_path: Path) -> None:
    warehouse = open_tables(PipelineConfig(tables=TablesConfig(path=str(tmp_path / "tables"))))
    assert not warehouse.exists()
    assert warehouse.state().number == 0
    assert not (tmp_path / "tables").exists()
