"""Small files become large ones; no row changes, comes twice or is missing, whoever reads meanwhile."""

import os
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.plant import LOG, Plant, message
from timestone_pipeline import MAINTENANCE, MessageConfig, PipelineError, SourceConfig, compact, open_tables

pytestmark = pytest.mark.spark

COLUMNS = ("log", "partition", "offset", "received_at", "topic", "device", "seq", "ts", "temperature")


def compacted(plant: Plant) -> None:
    warehouse = open_tables(plant.config)
    with warehouse.role(MAINTENANCE):
        compact(plant.config, warehouse)


def test_rows_stay_and_files_go(spark: SparkSession, tmp_path: Path) -> None:
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

    # The stream goes on with what compaction has left.
    plant.send(message("d1", 9001, at_s=1501), message("d0", 9000, at_s=1500))
    plant.run()
    plant.check()
    assert plant.counts()["clean"] == 1502
    assert plant.counts()["duplicates"] == 1


def test_files_grow_to_the_size_that_was_asked_for(spark: SparkSession, tmp_path: Path) -> None:
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


def test_a_type_that_does_not_fit_the_files_is_named_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    plant = Plant(spark, tmp_path)
    plant.send(message("d", 1))
    plant.run()
    plant.changed(message=MessageConfig(fields={**MessageConfig().fields, "humidity": "string"}))
    plant.send(message("d", 2))
    with pytest.raises(PipelineError, match="humidity") as raised:
        plant.run()
    assert "\n" not in str(raised.value)
