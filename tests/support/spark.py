"""One Spark session for all tests that need one, and the functions that they share."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_timestone.options.columns import source_schema
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.session import spark_session

if TYPE_CHECKING:
    from pyspark_timestone.reading.admission_control import LimitedStreamReader

CONF = {
    "spark.sql.shuffle.partitions": 2,
    # A query that has nothing to do looks again after this time.
    "spark.sql.streaming.pollingDelay": "10ms",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Started by the first test that needs it; takes about six seconds."""
    # A task may fail twice: some tests kill its worker.
    session = spark_session("timestone-tests", master="local[2,3]", conf=CONF)
    yield session
    session.stop()


def batch(spark: SparkSession, store: Path, **options: Any) -> DataFrame:
    """Return the store as a DataFrame."""
    return spark.read.format("timestone").options(**options).load(str(store))


def stream(spark: SparkSession, store: Path, *, source: str = "timestone", **options: Any) -> DataFrame:
    """Return the store as a streaming DataFrame, from its first record on."""
    chosen = {"startingOffsets": "earliest", **options}
    return spark.readStream.format(source).options(**chosen).load(str(store))


def reader(store: Path, **options: str) -> "LimitedStreamReader":
    """Return the reader of a stream as Spark makes it, without Spark."""
    from pyspark_timestone.reading.admission_control import LimitedStreamReader  # needs Spark 4.2

    return LimitedStreamReader(read_options({"path": str(store), **options}, streaming=True), source_schema())


def offsets(frame: DataFrame) -> list[int]:
    """Return the offsets of all rows, in order of offset."""
    return sorted(row["offset"] for row in frame.select("offset").collect())


class Batches:
    """A sink that stores each batch's offsets in a file, replaced when the batch runs again, as a good sink does. It
    can be read while a query runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.directory.mkdir(exist_ok=True)

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = [[row["log"], row["partition"], row["offset"]] for row in frame.collect()]
        unfinished = self.directory / "unfinished"
        unfinished.write_text(json.dumps(rows))
        unfinished.rename(self.directory / f"{number:06}.json")

    def start(self, frame: DataFrame, checkpoint: Path, **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(self).option("checkpointLocation", str(checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def drain(self, frame: DataFrame, checkpoint: Path) -> None:
        """Read all current records, in as many batches as needed. Raises the query's error."""
        self.start(frame, checkpoint, availableNow=True).awaitTermination()

    def all(self) -> list[list[tuple[str, int, int]]]:
        """Return the (log, partition, offset) of each batch's rows, batch by batch."""
        return [
            [(log, partition, offset) for log, partition, offset in json.loads(path.read_text())]
            for path in sorted(self.directory.glob("*.json"))
        ]

    def sizes(self) -> list[int]:
        return [len(rows) for rows in self.all()]

    def offsets(self) -> list[int]:
        """Return the offsets of all batches, in the order in which they were read."""
        return [offset for rows in self.all() for _, _, offset in rows]
