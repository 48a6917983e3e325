import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryTerminatedEvent

import timestone
from pyspark_timestone.lag import Lag, LagListener, lag_of
from pyspark_timestone.offsets import LogPartition

pytestmark = pytest.mark.spark

A, B = LogPartition("a", 0), LogPartition("b", 0)


def filled(tmp_path: Path) -> Path:
    store = tmp_path / "data"
    with timestone.open(store) as opened:
        opened.log("a").append_many([b"x"] * 100)
        opened.log("b").append_many([b"x"] * 300)
    return store


class Patient(LagListener):
    """Knows when all has been reported: Spark tells of a query in a thread of its own, and of its end last."""

    def __init__(self, told: Callable[[Lag], None]) -> None:
        super().__init__(told)
        self.ended = threading.Event()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        super().onQueryTerminated(event)
        self.ended.set()


def run(spark: SparkSession, tmp_path: Path, told: Callable[[Lag], None], **options: str) -> Lag | None:
    """Read all there is, and return what the query says last, when the listener has received everything."""
    listener = Patient(told)
    spark.streams.addListener(listener)
    try:
        stream = spark.readStream.format(options.pop("format", "timestone")).options(**options)
        rows = stream.load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.queryName("behind").trigger(availableNow=True).start()
        query.awaitTermination()
        assert listener.ended.wait(120)
        last = query.lastProgress
        assert last is not None
        return lag_of(last)
    finally:
        spark.streams.removeListener(listener)


def test_a_listener_tells_after_each_batch_how_far_behind_a_stream_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, heard = filled(tmp_path), list[Lag]()
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    last = run(spark, tmp_path, heard.append, path=str(store), **options)
    behind = [sum(lag.behind.values()) for lag in heard]
    assert behind[:2] == [200, 0]
    assert set(heard[0].behind) == {A, B}
    assert {lag.query for lag in heard} == {"behind"}
    assert [lag.batch for lag in heard[:2]] == [0, 1]
    assert last is not None
    assert last.metrics == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "0",
        "avgOffsetsBehindLatest": "0.0",
    }


def test_metrics_have_the_names_and_the_form_of_kafkas() -> None:
    assert Lag("q", 7, {A: 10, B: 25}).metrics == {
        "minOffsetsBehindLatest": "10",
        "maxOffsetsBehindLatest": "25",
        "avgOffsetsBehindLatest": "17.5",
    }
    assert Lag("q", 7, {}).metrics == {}


def test_streams_of_other_sources_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    assert run(spark, tmp_path, print, format="rate", rowsPerSecond="100") is None
