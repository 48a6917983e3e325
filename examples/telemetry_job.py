"""The Spark side of the demo: read the log, parse the JSON, aggregate per device and minute, write Parquet.

Plain PySpark. The only thing that comes from Timestone is the name of the format.
"""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

MESSAGE_SCHEMA = "device string, seq long, ts timestamp, temperature double, humidity double"


@dataclass(frozen=True)
class JobCounts:
    """What the job counted on its way."""

    rows: int
    """Rows that Spark read from the log."""
    offsets: int
    """Different offsets among them."""
    devices: int
    """Devices in the Parquet files."""
    aggregated: int
    """The sum of the message counts in the Parquet files: messages that were read, parsed and grouped."""


def run(spark: SparkSession, store: Path, log: str, output: Path) -> tuple[JobCounts, DataFrame]:
    """Run the job; returns what it counted and the report as it was written to `output`."""
    records = spark.read.format("timestone").option("path", str(store)).option("subscribe", log).load()
    report = minute_report(parse(records))
    report.coalesce(1).write.mode("error").parquet(str(output))

    written = spark.read.parquet(str(output))
    seen = records.select(f.count("offset"), f.countDistinct("partition", "offset")).first()
    kept = written.select(f.sum("messages"), f.countDistinct("device")).first()
    assert seen is not None and kept is not None
    return JobCounts(rows=seen[0], offsets=seen[1], devices=kept[1], aggregated=kept[0] or 0), written


def parse(records: DataFrame) -> DataFrame:
    """Records of the log -> one column a field of the message. What is no telemetry has nulls, and no device."""
    message = f.from_json(f.col("value").cast("string"), MESSAGE_SCHEMA)
    return records.select(message.alias("message")).select("message.*")


def minute_report(messages: DataFrame) -> DataFrame:
    """Messages -> one row a device and minute."""
    return (
        messages.where(f.col("device").isNotNull() & f.col("ts").isNotNull())
        .groupBy("device", f.date_trunc("minute", "ts").alias("minute"))
        .agg(
            f.count("*").alias("messages"),
            f.round(f.avg("temperature"), 2).alias("temperature_mean"),
            f.max("temperature").alias("temperature_max"),
            f.round(f.avg("humidity"), 1).alias("humidity_mean"),
        )
        .orderBy("device", "minute")
    )
