"""Small files become large ones; no row changes, is repeated or missing, for concurrent readers too."""

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support import table_files
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
from timestone_pipeline.delta.warehouse import Warehouse

pytestmark = pytest.mark.spark

COLUMNS = ("log", "partition", "offset", "received_at", "topic", "device", "seq", "ts", "temperature")

FILE_ROWS = 65_536
MOST_TAKEN = """
import resource, sys
from timestone_pipeline import MAINTENANCE, PipelineConfig, TablesConfig, compact, open_tables
config = PipelineConfig(tables=TablesConfig(path=sys.argv[1], file_bytes=16 << 20))
warehouse = open_tables(config)
with warehouse.role(MAINTENANCE):
    compact(config, warehouse)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
"""A separate program: a process knows only the maximum of its life."""


def compacted(plant: Plant) -> None:
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        compact(plant.config, warehouse)


def test_compaction_keeps_all_rows_in_fewer_files(spark: SparkSession, tmp_path: Path) -> None:
    narrow = {"device": "string", "seq": "bigint", "ts": "timestamp", "temperature": "double"}
    batches = SourceConfig(path=str(tmp_path / "data"), logs=(LOG,), records_per_batch=501)
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
    listed = warehouse.uris(warehouse.state().of(warehouse.tables.clean).files())
    many = len(plant.files("clean"))

    compacted(plant)
    assert (
        {name: plant.rows(name, *COLUMNS) for name in ("clean", "last")},
        plant.windows(),
        plant.counts(),
    ) == before
    assert len(plant.files("clean")) == len(plant.files("bronze")) == 1 < many
    assert sum(pq.read_metadata(path).num_rows for path in listed) == 1501, "for those who had the list"
    compacted(plant)

    # The stream continues with the files that compaction has left.
    plant.send(message("d1", 9001, at_s=1501), message("d0", 9000, at_s=1500))
    plant.run()
    plant.check()
    assert plant.counts()["clean"] == 1502
    assert plant.counts()["duplicates"] == 1


def test_files_grow_to_the_requested_size(spark: SparkSession, tmp_path: Path) -> None:
    batches = SourceConfig(path=str(tmp_path / "data"), logs=(LOG,), records_per_batch=1)
    plant = Plant(spark, tmp_path, source=batches)
    plant.send(*[message("d", number) for number in range(4)])
    assert len(plant.run()) == 4
    size = plant.files("clean")[0].stat().st_size
    plant.changed(tables=replace(plant.config.tables, file_bytes=int(2.5 * size)))
    compacted(plant)
    assert len(plant.files("clean")) == 2

    plant.changed(tables=replace(plant.config.tables, file_bytes=1 << 20))
    warehouse = open_tables(plant.config)
    damaged = plant.files("clean")[1]
    os.truncate(damaged, 100)
    with pytest.raises(PipelineError, match=f"^{warehouse.root.uri}/clean: [^\n]*/{damaged.name}[^\n]*$"):
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
    few, many = (most_taken(tmp_path / str(files), files) for files in (8, 32))
    assert many < few + (64 << 10), "the rows of the other 24 files have 150 MiB"


def test_small_files_become_one_row_group_of_the_large_one(tmp_path: Path) -> None:
    """A reader opens each row group separately, as it did with the files."""
    config = PipelineConfig(tables=TablesConfig(path=str(tmp_path)))
    warehouse = open_tables(config)
    commit_files(warehouse, pa.table({"value": [b"a", b"b"]}), 5)
    with warehouse.role(MAINTENANCE):
        compact(config, warehouse)
    (path,) = warehouse.uris(warehouse.state().of(warehouse.tables.bronze).files())
    assert pq.read_table(path, partitioning=None)["value"].to_pylist() == [b"a", b"b"] * 5
    assert pq.read_metadata(path).num_row_groups == 1


def commit_files(warehouse: Warehouse, rows: pa.Table, count: int) -> None:
    """Commit this number of files of bronze, each with these rows."""
    if not warehouse.exists():
        table_files.create(warehouse, {})
    bronze = warehouse.state().of(warehouse.tables.bronze)
    with warehouse.work() as work:
        for _ in range(count):
            table_files.write(work, bronze.table, rows, "2026-01-01")
        work.commit(bronze, {})


def most_taken(root: Path, files: int) -> int:
    """Return the most memory, in KiB, of merging so many files of 6 MiB into files of 16."""
    warehouse = open_tables(PipelineConfig(tables=TablesConfig(path=str(root))))
    rows = pa.table({"value": [os.urandom(100) for _ in range(FILE_ROWS)]})
    commit_files(warehouse, rows, files)
    words = [sys.executable, "-c", MOST_TAKEN, str(root)]
    taken = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    merged = warehouse.state().of(warehouse.tables.bronze)
    assert merged.rows == files * FILE_ROWS and merged.file_count < files
    return taken


def test_merged_file_has_the_bounds_of_its_times_among_any_number_of_columns(tmp_path: Path) -> None:
    config = PipelineConfig(tables=TablesConfig(path=str(tmp_path)))
    warehouse = open_tables(config)
    late = warehouse.tables.late
    columns: dict[str, pa.DataType] = {f"c{number}": pa.int64() for number in range(50)}
    table_files.create(warehouse, {late.name: pa.schema({**columns, "ts": pa.timestamp("us", "UTC")})})
    for second in (5, 9):
        at = datetime(2026, 1, 1, 0, 0, second, 123456, UTC)
        with warehouse.work() as work:
            table_files.write(
                work, late, pa.table({**{name: [1] for name in columns}, "ts": [at]}), "2026-01-01"
            )
            work.commit(warehouse.state().of(late), {})
    with warehouse.role(MAINTENANCE):
        compact(config, warehouse)
    start_us = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    (merged,) = warehouse.state().of(late).files()
    assert merged.bounds_of("ts") == (start_us + 5_123_000, start_us + 9_123_999)
    assert warehouse.state().of(late).files("ts", start_us + 9_123_456) == [merged]
    assert warehouse.state().of(late).files("ts", start_us + 9_124_000) == []
