"""Tables as frames: partitions from the paths, columns that were added later, empty tables."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.support.table_files import create
from timestone_pipeline import PipelineConfig, TablesConfig, Warehouse, open_tables
from timestone_pipeline.delta.snapshot import Snapshot
from timestone_pipeline.delta.tables import Table
from timestone_pipeline.steps.frames import Frames

pytestmark = pytest.mark.spark

NOW = datetime(2026, 1, 1, 23, 59, 59, 999_999, tzinfo=UTC)
OLD = Table("clean", "at timestamp, x int", "ingest_date string", ("at",))
NEW = Table("clean", "at timestamp, y array<string>, x int", "ingest_date string", ("at",))


def created(root: Path) -> Warehouse:
    warehouse = open_tables(PipelineConfig(tables=TablesConfig(path=str(root))))
    clean = [("at", pa.timestamp("us", "UTC")), ("x", pa.int32()), ("ingest_date", pa.string())]
    create(warehouse, {"clean": pa.schema(clean)})
    return warehouse


def test_rows_are_read_unchanged_also_from_before_a_column_was_added(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = created(tmp_path)
    frames = Frames(spark, warehouse)
    with warehouse.work() as work:
        rows = [(NOW, 1, "a"), (NOW, 2, "b"), (NOW, None, "b")]
        files = frames.write(OLD, spark.createDataFrame(rows, OLD.ddl), work)
        assert {(one.path.partition("/")[0], one.value) for one in files} == {
            ("ingest_date=a", "a"),
            ("ingest_date=b", "b"),
        }
        assert files[0].bounds == {"at": (int(NOW.timestamp() * 1_000_000),) * 2}
        assert frames.read(OLD, files).count() == 3, "before the commit"
        work.commit(Snapshot(OLD, warehouse.root.child("clean")), {"": 1})
    stored = Snapshot(OLD, warehouse.root.child("clean")).files()
    assert {one.value for one in stored} == {"a", "b"}
    found = {tuple(row) for row in frames.read(NEW, stored).select("ingest_date", "y", "x").collect()}
    assert found == {("a", None, 1), ("b", None, 2), ("b", None, None)}
    assert frames.read(NEW, []).columns == ["at", "y", "x", "ingest_date"]
    assert frames.read(NEW, []).count() == 0


def test_cached_frame_is_written_as_one_file(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = created(tmp_path)
    usual = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        frames = Frames(spark, warehouse)
        spark.conf.set("spark.sql.shuffle.partitions", 50)  # a cluster has 200 by default
        rows = (
            spark.range(1000).groupBy((f.col("id") % 100).cast("int").alias("x")).agg(f.lit(NOW).alias("at"))
        )
        kept = rows.withColumn("ingest_date", f.lit("a")).persist()
        with warehouse.work() as work:
            assert [one.rows for one in frames.write(OLD, kept, work)] == [100]
        kept.unpersist()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(usual))
