from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_timestone.flight.batch_reader import first_offset
from pyspark_timestone.flight.client import Ends
from pyspark_timestone.flight.options import FlightOptions
from tests.support.flight_server import flight_server
from tests.support.spark import batch


def test_read_begins_where_the_option_says() -> None:
    assert first_offset(FlightOptions("h:1", ("t",)), "t", Ends(3, 9)) == 3
    assert first_offset(FlightOptions("h:1", ("t",), starting="latest"), "t", Ends(3, 9)) == 9
    assert first_offset(FlightOptions("h:1", ("t",), starting={"t": 5}), "t", Ends(3, 9)) == 5


@pytest.mark.spark
def test_spark_reads_over_flight_what_it_reads_from_the_store(spark: SparkSession, tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        log = server.store.log("t")
        log.configure(segment_bytes=64 * 1024)
        for number in range(200):
            log.append_many([b"%d" % each * 50 for each in range(10)], topic=f"x/{number % 3}", ack="written")
        log.sync()
        remote = spark.read.format("timestone").option("flight", server.address).option("subscribe", "t")
        own = batch(spark, tmp_path / "data", subscribe="t")
        assert remote.load().schema == own.schema
        assert sorted(remote.load().collect()) == sorted(own.collect())
        assert remote.load().where("topic = 'x/1'").count() == own.where("topic = 'x/1'").count()
        part = (
            remote.option("topics", "x/1").option("columns", "offset").option("endingOffsets", '{"t": 100}')
        )
        assert sorted(row[0] for row in part.load().collect()) == [
            offset for offset in range(100) if offset // 10 % 3 == 1
        ]
