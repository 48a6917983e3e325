"""Whole jobs: read a store, run the steps, write a table. The only module that writes."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f

from .clean import good, parse
from .windows import minute_averages


@dataclass(frozen=True, slots=True)
class Counts:
    """What went through a job. `rows` = `rejected` + the sum of `messages` in the table."""

    rows: int
    """Records read from the log."""
    rejected: int
    """Records that are no message."""


def write_minute_averages(spark: SparkSession, store: Path, output: Path, *, log: str) -> Counts:
    """Average all messages of a log by device and minute and write them as Parquet to `output`, which must not exist.

    One pass over the log, the counts included. Run again after a failure: a table that is complete has the file
    `_SUCCESS`.
    """
    records = spark.read.format("timestone").option("subscribe", log).load(str(store))
    counted = Observation("counts")
    messages = parse(records).observe(
        counted, f.count("*").alias("rows"), f.count("problem").alias("rejected")
    )
    # A report of one row a device and minute is small; one file is what its readers want.
    minute_averages(good(messages)).coalesce(1).sortWithinPartitions("device", "minute").write.parquet(
        str(output)
    )
    return Counts(**counted.get)
