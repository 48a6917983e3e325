"""Reads of a server's logs: what a view of its store says, and with real Spark what a read of its files gives."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import timestone
from pyspark_timestone.errors import DataLoss
from pyspark_timestone.flight.remote_store import RemoteLog, RemoteStore
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.flight_server import FlightServer
from pyspark_timestone.reading.consumer_group import ConsumerGroup
from tests.support.flight_server import RunningFlight, flight_server
from tests.support.spark import Batches, batch, offsets
from timestone import ReaderId
from timestone.errors import UnknownLog

KEY = LogPartition("t", 0)
VALUES = pa.schema([pa.field("value", pa.binary())])


def fill(server: RunningFlight, count: int, partition: int = 0) -> None:
    """Append records with three topics, in several segments."""
    log = server.store.log("t", partition)
    log.configure(segment_bytes=64 * 1024)
    for number in range(count // 10):
        log.append_many([b"%06d" % each * 50 for each in range(10)], topic=f"x/{number % 3}", ack="written")
    log.sync()


def read(log: RemoteLog, first: int, end: int, **options: object) -> list[bytes]:
    found = log.record_batches(OffsetRange(KEY, first, end), (), VALUES, None)
    return [value for batch in found for value in batch.column(0).to_pylist()]


def test_log_of_a_server_is_the_one_that_a_view_shows(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, RemoteStore(FlightServer(server.address)) as remote:
        fill(server, 2000)
        fill(server, 10, partition=3)
        with timestone.view(tmp_path / "data") as view:
            own, log = view.log("t"), remote.log("t")
            assert remote.log_names() == view.log_names() == [("t", 0), ("t", 3)]
            assert (log.id, log.epoch, log.state) == (own.id, own.epoch, own.state)
            assert (log.start_offset, log.synced_offset, log.end_offset) == (0, 2000, 2000)
            assert log.segment_bounds() == own.segment_bounds()
            assert len(log.segment_bounds()) > 3
            assert log.segment_sizes() == own.segment_sizes()
            assert log.segments_with(("x/1",), 0, 2000) == own.segments_with(("x/1",), 0, 2000)
            assert log.segments_with(("y",), 0, 1000) == []
            assert log.segment_bounds(7, 20) == [(7, 20)]
            assert log.segment_bounds(5, 5) == []
            assert log.lost_offsets(0, 2000) == []
            assert log.offset_at(0) == 0
            assert log.record_bytes == server.store.log("t").config.record_bytes
            assert read(log, 7, 1990) == [record.payload for record in own][7:1990]
            with pytest.raises(UnknownLog, match="missing"):
                remote.log("missing")


def test_progress_of_a_group_is_in_the_log(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        fill(server, 10)
        group = ConsumerGroup(FlightServer(server.address), "billing", None)
        group.join()
        group.commit({KEY: 7, LogPartition("gone", 0): 3})
        group.leave()
        committed = server.store.committed(ReaderId("t", 0, "billing"))
        assert committed is not None and committed.offset == 7


def test_read_continues_when_the_server_comes_back(tmp_path: Path) -> None:
    with flight_server(tmp_path, batch_bytes=4096) as server:
        server.store.log("t").append_many([b"%06d" % number * 10 for number in range(20_000)])
        address = server.address
        remote = RemoteStore(FlightServer(address))
        found = remote.log("t").record_batches(OffsetRange(KEY, 0, 20_000), (), VALUES, None)
        values = next(found).column(0).to_pylist()
    ready, done = threading.Event(), threading.Event()

    def restart() -> None:
        with flight_server(tmp_path, listen=address):
            ready.set()
            done.wait(30)

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        assert ready.wait(30)
        for each in found:
            values += each.column(0).to_pylist()
    finally:
        done.set()
        thread.join()
    assert values == [b"%06d" % number * 10 for number in range(20_000)]


def test_damaged_records_are_data_loss_unless_they_may_be_skipped(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log("t", config=timestone.LogConfig(segment_bytes=64 * 1024))
        for number in range(100):
            log.append(b"%03d" % number * 500)
    first = min((tmp_path / "data" / "t-0").glob("*.segment"))
    with first.open("r+b") as file:
        file.seek(1500 * 5 + 3)
        file.write(b"?")
    with flight_server(tmp_path) as server, RemoteStore(FlightServer(server.address)) as remote:
        part = OffsetRange(KEY, 0, 100)
        with pytest.raises(DataLoss, match="offsets 5 to 5 are damaged; continue at 6"):
            list(remote.log("t").record_batches(part, (), VALUES, None))
        said: list[str] = []
        found = list(remote.log("t").record_batches(part, (), VALUES, said.append))
        assert [value[:3] for each in found for value in each.column(0).to_pylist()] == [
            b"%03d" % number for number in range(100) if number != 5
        ]
        assert len(said) == 1


@pytest.mark.spark
def test_spark_reads_over_flight_what_it_reads_from_the_store(spark: SparkSession, tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        fill(server, 2000)
        fill(server, 30, partition=2)
        remote = spark.read.format("timestone").option("flight", server.address).option("subscribe", "t")
        own = batch(spark, tmp_path / "data", subscribe="t")
        assert remote.load().schema == own.schema
        assert sorted(remote.load().collect()) == sorted(own.collect())
        assert remote.load().where("topic = 'x/1'").count() == own.where("topic = 'x/1'").count()
        some = remote.option("topics", "x/1").option("columns", "offset")
        part = some.option("endingOffsets", '{"t": {"0": 100, "2": 0}}').load()
        assert offsets(part) == [offset for offset in range(100) if offset // 10 % 3 == 1]
        many = remote.option("minPartitions", 20).load()
        assert many.rdd.getNumPartitions() >= 20


@pytest.mark.spark
def test_each_record_is_in_the_table_once_when_server_and_query_are_restarted(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink, checkpoint = Batches(tmp_path / "out"), tmp_path / "checkpoint"
    address = "127.0.0.1:0"
    for number in range(3):
        with flight_server(tmp_path, listen=address) as server:
            address = server.address
            server.store.log("t").append_many([b"x"] * 100)
            server.store.log("t", 1).append_many([b"y"] * 10)
            frame = (
                spark.readStream.format("timestone").option("flight", address).option("subscribe", "t")
                .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 44).option("group", "g")
            )  # fmt: skip
            sink.drain(frame.load(), checkpoint)
            assert server.store.committed(ReaderId("t", 0, "g")) is not None or number == 0
    found = [(partition, offset) for rows in sink.all() for _, partition, offset in rows]
    assert sorted(found) == [(0, offset) for offset in range(300)] + [(1, offset) for offset in range(30)]
    assert max(sink.sizes()) == 44
    assert len(sink.sizes()) == 9
