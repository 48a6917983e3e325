"""What the tables of the pipeline hold, counted by readers that know nothing of it: Spark, and Arrow for a look."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.box import SIMPLE_HEAD
from rich.table import Table


@dataclass(frozen=True)
class TableCounts:
    """What was counted."""

    rows: int
    """Records in bronze."""
    offsets: int
    """Different offsets among them."""
    clean: int
    """Messages in clean."""
    devices: int
    """Devices in the windows of a minute."""
    counted: int
    """The sum of their message counts: messages that were read, parsed and grouped."""


def counted(spark: SparkSession, tables: Path) -> TableCounts:
    """Count with Spark, from the files."""
    bronze = read(spark, tables, "bronze")
    seen = bronze.select(f.count("offset"), f.countDistinct("log", "partition", "offset")).first()
    windows = read(spark, tables, "windows").where("minutes = 1")
    kept = windows.select(f.sum("messages"), f.countDistinct("device")).first()
    assert seen is not None and kept is not None
    clean = read(spark, tables, "clean").count()
    return TableCounts(rows=seen[0], offsets=seen[1], clean=clean, devices=kept[1], counted=kept[0] or 0)


def read(spark: SparkSession, tables: Path, name: str) -> DataFrame:
    """The files that Delta names: the folder may have older ones, too."""
    return spark.read.option("basePath", str(tables / name)).parquet(*DeltaTable(tables / name).file_uris())


def first_rows(tables: Path, count: int) -> Table:
    """The first windows of a minute, for a person."""
    windows = DeltaTable(tables / "windows").to_pyarrow_dataset()
    columns = ["device", "start", "messages", "temperature_mean", "humidity_mean"]
    rows = windows.to_table(columns=columns, filter=pc.field("minutes") == 1)
    shown = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows.sort_by([("device", "ascending"), ("start", "ascending")]).slice(0, count).to_pylist():
        start = f"{row['start']:%Y-%m-%d %H:%M}"
        numbers = [f"{row[name]:.2f}" for name in columns[3:]]
        shown.add_row(row["device"], start, str(row["messages"]), *numbers)
    return shown
