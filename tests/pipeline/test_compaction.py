"""Small files become large ones; no row changes, is repeated or missing, for concurrent readers too."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.plant import LOG, Plant, message
from timestone_pipeline import (
    MAINTENANCE,
    MessageConfig,
    PipelineConfig,
    PipelineError,
    SourceConfig,
    TablesConfig,
    compact,
    open_tables,
)
from timestone_pipeline.tables import Table, tables_of
from timestone_pipeline.warehouse import STREAM, Warehouse

pytestmark = pytest.mark.spark

COLUMNS = ("log", "partition", "offset", "received_at", "topic", "device", "seq", "ts", "temperature")

FILE_ROWS = 65_536
"""The number of rows that a compaction reads at a time."""
MOST_TAKEN = """
import sys
from pathlib import Path
import pyarrow as pa
from timestone_pipeline import MAINTENANCE, PipelineConfig, TablesConfig, compact, open_tables
config = PipelineConfig(tables=TablesConfig(path=Path(sys.argv[1])))
warehouse = open_tables(config)
with warehouse.role(MAINTENANCE):
    compact(config, warehouse)
print(pa.default_memory_pool().max_memory())
"""
"""A separate program: Arrow knows only the maximum of a process, and returns little of its memory."""


def compacted(plant: Plant) -> None:
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        compact(plant.config, warehouse)


def test_compaction_keeps_all_rows_in_fewer_files(spark: SparkSession, tmp_path: Path) -> None:
    narrow = {"device": "string", "seq": "bigint", "ts": "timestamp", "temperature": "double"}
    batches = SourceConfig(path=tmp_path / "data", logs=(LOG,), records_per_batch=501)
    plant = Plant(spark, tmp_path, source=batches, message=MessageConfig(fields=narrow))
    for start in (0, 500, 1000):
        plant.send(
            *[message(f"d{number % 2}", number, at_s=number) for number in range(start, start + 500)], b"x"
        )
    assert len(plant.run()) == 3
    plant.changed(message=MessageConfig())
    plant.send(message("d0", 9000, at_s=1500))
    plant.run()
    before = {name: plant.rows(name, *COLUMNS) for name in ("clean", "last")}, plant.windows(), plant.counts()
    warehouse = open_tables(plant.config)
    listed = warehouse.paths(warehouse.ledger.state().of("clean"))
    many = len(plant.files("clean"))

    compacted(plant)
    assert (
        {name: plant.rows(name, *COLUMNS) for name in ("clean", "last")},
        plant.windows(),
        plant.counts(),
    ) == before
    assert len(plant.files("clean")) == len(plant.files("bronze")) == 1 < many
    assert sum(pq.read_metadata(path).num_rows for path in listed) == 1501, "for those who had the list"
    assert len(list((plant.config.tables.path / "_ledger").glob("*.json"))) == 1
    compacted(plant)

    # The stream continues with the files that compaction has left.
    plant.send(message("d1", 9001, at_s=1501), message("d0", 9000, at_s=1500))
    plant.run()
    plant.check()
    assert plant.counts()["clean"] == 1502
    assert plant.counts()["duplicates"] == 1


def test_files_grow_to_the_requested_size(spark: SparkSession, tmp_path: Path) -> None:
    batches = SourceConfig(path=tmp_path / "data", logs=(LOG,), records_per_batch=1)
    plant = Plant(spark, tmp_path, source=batches)
    plant.send(*[message("d", number) for number in range(4)])
    assert len(plant.run()) == 4
    size = plant.files("clean")[0].stat().st_size
    plant.changed(tables=replace(plant.config.tables, file_bytes=int(2.5 * size)))
    compacted(plant)
    assert len(plant.files("clean")) == 2

    plant.changed(tables=replace(plant.config.tables, file_bytes=1 << 20))
    warehouse = open_tables(plant.config)
    damaged = Path(warehouse.paths(warehouse.ledger.state().of("clean"))[1])
    os.truncate(damaged, 100)
    with pytest.raises(PipelineError, match=f"{damaged}: Parquet magic bytes"):
        compacted(plant)
    assert len(plant.files("clean")) == 2


def test_type_that_does_not_match_the_files_is_reported_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    plant = Plant(spark, tmp_path)
    plant.send(message("d", 1))
    plant.run()
    plant.changed(message=MessageConfig(fields={**MessageConfig().fields, "humidity": "string"}))
    plant.send(message("d", 2))
    with pytest.raises(PipelineError, match="humidity") as raised:
        plant.run()
    assert "\n" not in str(raised.value)


def test_memory_of_a_compaction_does_not_grow_with_the_tables(tmp_path: Path) -> None:
    few, many = (most_taken(tmp_path / str(files), files) for files in (2, 8))
    assert FILE_ROWS * 100 < many < 1.5 * few


def test_small_files_become_one_row_group_of_the_large_one(tmp_path: Path) -> None:
    """A reader opens each row group separately, as it did with the files."""
    config = PipelineConfig(tables=TablesConfig(path=tmp_path))
    warehouse, bronze = open_tables(config), tables_of(config).bronze
    commit_files(warehouse, bronze, pa.table({"value": [b"a", b"b"]}), 5)
    with warehouse.role(MAINTENANCE):
        compact(config, warehouse)
    (path,) = warehouse.paths(warehouse.ledger.state().of(bronze.name))
    assert pq.read_table(path)["value"].to_pylist() == [b"a", b"b"] * 5
    assert pq.read_metadata(path).num_row_groups == 1


def commit_files(warehouse: Warehouse, table: Table, rows: pa.Table, count: int) -> None:
    """Commit this number of files of a table, each with these rows."""
    with warehouse.work(STREAM) as work:
        folder = work.folder_of(table) / "ingest_date=2026-01-01"
        folder.mkdir(parents=True)
        for number in range(count):
            pq.write_table(rows, folder / f"part-{number}.parquet", use_dictionary=False)
        work.collect(table)
        warehouse.commit("batch", [work])


def most_taken(root: Path, files: int) -> int:
    """Return the maximal bytes of merging one file with one into which this number has been merged before."""
    config = PipelineConfig(tables=TablesConfig(path=root))
    warehouse, bronze = open_tables(config), tables_of(config).bronze
    rows = pa.table({"value": [b"%0100d" % number for number in range(FILE_ROWS)]})
    taken = 0
    for added in (files, 1):
        commit_files(warehouse, bronze, rows, added)
        words = [sys.executable, "-c", MOST_TAKEN, str(root)]
        taken = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert [one.rows for one in warehouse.ledger.state().of(bronze.name)] == [(files + 1) * FILE_ROWS]
    return taken
