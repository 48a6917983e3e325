"""The newest message of each device, merged in any order and any pieces."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from timestone_pipeline import MessageConfig, newest
from timestone_pipeline.steps.newest import newest_of_files

pytestmark = pytest.mark.spark

SCHEMA = (
    "log string, partition int, offset long, received_at timestamp, device string, seq long, ts timestamp"
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def test_newest_is_by_time_sequence_and_arrival_and_independent_of_merging(spark: SparkSession) -> None:
    rows = [
        ("m", 0, offset, START + timedelta(seconds=offset), device, seq, START + timedelta(seconds=at))
        for offset, (device, seq, at) in enumerate(
            [
                ("a", 5, 50),
                ("a", 9, 10),
                ("b", 1, 7),
                ("b", 2, 7),
                ("c", 1, 1),
                ("c", 1, 1),
                ("d", 4, 3),
                ("d", None, 3),
            ]
        )
    ]
    frame = spark.createDataFrame(rows, SCHEMA)
    whole = sorted(tuple(row) for row in newest(frame).collect())
    assert [(row[4], row[2]) for row in whole] == [("a", 0), ("b", 3), ("c", 5), ("d", 6)]
    halves = newest(frame.where("offset < 3")).unionByName(newest(frame.where("offset >= 3")))
    assert sorted(tuple(row) for row in newest(halves).collect()) == whole

    table = frame.toArrow()
    find = newest_of_files(MessageConfig())(
        lambda paths: iter(table.to_batches(max_chunksize=3)), table.schema
    )
    found = pa.Table.from_batches(find(iter(())), table.schema)
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(
        tuple(row.values()) for row in newest(frame).toArrow().to_pylist()
    )
