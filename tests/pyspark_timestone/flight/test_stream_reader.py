"""A table made over Flight has each record once, also when the server and the query are restarted in between."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pyspark_timestone.errors import DataLoss
from pyspark_timestone.flight.options import FlightOptions
from pyspark_timestone.flight.stream_reader import FlightStreamReader
from pyspark_timestone.options.columns import source_schema
from tests.support.flight_server import flight_server
from tests.support.spark import Batches


def reader(address: str) -> FlightStreamReader:
    schema = source_schema()
    assert isinstance(schema, StructType)
    return FlightStreamReader(FlightOptions(address, ("t",)), schema)


def test_offsets_are_those_of_the_log(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        server.store.log("t").append_many([b"1", b"2"])
        stream = reader(server.address)
        assert (stream.initialOffset(), stream.latestOffset()) == ({"t": 0}, {"t": 2})
        assert len(stream.partitions({"t": 0}, {"t": 2})) == 1
        assert list(stream.partitions({"t": 2}, {"t": 2})) == []
        with pytest.raises(DataLoss, match="another log of that name"):
            stream.partitions({"t": 5}, {"t": 2})


@pytest.mark.spark
def test_each_record_is_in_the_table_once_when_server_and_query_are_restarted(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink, checkpoint = Batches(tmp_path / "out"), tmp_path / "checkpoint"
    address = "127.0.0.1:0"
    for _ in range(3):
        with flight_server(tmp_path, listen=address) as server:
            address = server.address
            server.store.log("t").append_many([b"x"] * 100)
            frame = (
                spark.readStream.format("timestone").option("flight", address).option("subscribe", "t").load()
            )
            sink.drain(frame, checkpoint)
    assert sorted(sink.offsets()) == list(range(300))
