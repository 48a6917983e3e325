"""Rows taken out of a table, and nothing else."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from timestone_pipeline import PipelineConfig, TablesConfig, open_tables
from timestone_pipeline.frames import Frames
from timestone_pipeline.rewrite import without
from timestone_pipeline.tables import Table

pytestmark = pytest.mark.spark


def test_rows_without_a_decision_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = open_tables(PipelineConfig(tables=TablesConfig(path=tmp_path)))
    frames, table = Frames(spark, warehouse), Table("last", "x int, y int")
    with warehouse.work("stream") as work:
        frames.write(table, spark.createDataFrame([(1, 1), (2, None), (3, 3)], "x int, y int"), work)
        before = warehouse.commit("batch", [work])
    files = warehouse.ledger.state().of("last")
    with warehouse.work("stream") as work:
        assert without(frames, table, [], f.lit(True), work) == []
        removed = without(frames, table, files, f.col("y") == 3, work)
        warehouse.commit("backfill", [work], removed=removed)
    assert removed == [(one.table, one.path) for one in before.added]
    left = frames.read(table, warehouse.ledger.state().of("last"))
    assert sorted(tuple(row) for row in left.collect()) == [(1, 1), (2, None)]
