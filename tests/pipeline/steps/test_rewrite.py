"""Rows taken out of a table, and nothing else."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.support.table_files import create
from timestone_pipeline import PipelineConfig, TablesConfig, open_tables
from timestone_pipeline.delta.snapshot import Snapshot
from timestone_pipeline.delta.tables import Table
from timestone_pipeline.steps.frames import Frames
from timestone_pipeline.steps.rewrite import without

pytestmark = pytest.mark.spark


def test_rows_without_a_decision_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = open_tables(PipelineConfig(tables=TablesConfig(path=str(tmp_path))))
    create(warehouse, {"last": pa.schema([("x", pa.int32()), ("y", pa.int32())])})

    def snapshot() -> Snapshot:
        return Snapshot(table, warehouse.root.child("last"))

    frames, table = Frames(spark, warehouse), Table("last", "x int, y int")
    with warehouse.work() as work:
        frames.write(table, spark.createDataFrame([(1, 1), (2, None), (3, 3)], "x int, y int"), work)
        work.commit(snapshot(), {})
    files = snapshot().files()
    with warehouse.work() as work:
        assert without(frames, table, [], f.lit(True), work) == []
        removed = without(frames, table, files, f.col("y") == 3, work)
        work.commit(snapshot(), {}, removed)
    assert removed == files
    left = frames.read(table, snapshot().files())
    assert sorted(tuple(row) for row in left.collect()) == [(1, 1), (2, None)]
