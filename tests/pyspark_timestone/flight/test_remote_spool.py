"""The sink over Arrow Flight: every row is appended once, despite failures of tasks, drivers and the server."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_timestone.errors import InvalidRow
from pyspark_timestone.flight import remote_spool
from pyspark_timestone.flight.client import FlightClient, ServerUnavailable
from pyspark_timestone.flight.remote_spool import RemotePart, RemoteSpool
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.flight_server import FlightServer
from tests.support.flight_server import RunningFlight, flight_server
from tests.support.postings import frame
from tests.support.spark import stream
from tests.support.stores import fill
from timestone.spool.format import Posting

KEY = LogPartition("t", 0)


def payloads(server: RunningFlight, log: str = "t", partition: int = 0) -> list[bytes]:
    return [record.payload for record in server.store.log(log, partition)]


def left(path: Path) -> list[str]:
    return [each.name for each in (path / "data" / "inbox").rglob("*") if each.is_file()]


def test_parts_are_posted_once_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_spool, "_PART_BYTES", 100)
    with flight_server(tmp_path) as server:
        spool = RemoteSpool(FlightServer(server.address))
        assert spool.record_bytes() == {KEY: server.store.log("t").config.record_bytes}
        with spool.new_part("g", KEY) as part:
            for number in range(5):
                part.add(frame([b"%d" % number * 40]))
        assert len(part.names) == 5  # a frame is never cut
        posting = Posting(*KEY, "p", 1, tuple(part.names), remembered=False)
        for _ in range(2):
            spool.post(posting, timeout_s=30, begins=True)
        spool.discard_group("g")
        assert payloads(server) == [b"%d" % number * 40 for number in range(5)]
        assert left(tmp_path) == []
        assert server.store.documents.items("inbox") == {}


def test_part_is_not_sent_when_its_block_fails_and_what_was_sent_is_discarded(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        spool = RemoteSpool(FlightServer(server.address))
        parts: list[RemotePart] = []

        def fail() -> None:
            with spool.new_part("g", KEY) as part:
                parts.append(part)
                part.add(frame([b"a"]))
                part.send()
                part.add(frame([b"b"]))
                raise InvalidRow("no")

        with pytest.raises(InvalidRow):
            fail()
        assert len(left(tmp_path)) == 1
        spool.discard((KEY, name) for name in parts[0].names)
        assert left(tmp_path) == []


def test_part_and_posting_are_sent_again_when_the_server_comes_back(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        address = server.address
    spool, done, ready = RemoteSpool(FlightServer(address)), threading.Event(), threading.Event()
    with FlightClient(FlightServer(address)) as client:
        part = RemotePart(client, "g", KEY)
        part.add(frame([b"a"]))

        def serve() -> None:
            with flight_server(tmp_path, listen=address) as server:
                ready.set()
                done.wait(30)
                found.extend(payloads(server))

        found: list[bytes] = []
        sending = threading.Thread(target=part.send)
        sending.start()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            assert ready.wait(30)
            sending.join()
            spool.post(Posting(*KEY, "p", 1, tuple(part.names), remembered=True), timeout_s=30, begins=True)
        finally:
            done.set()
            thread.join()
    assert found == [b"a"]


def append(frame: DataFrame, server: RunningFlight, **options: object) -> None:
    chosen = {"flight": server.address, "log": "t", **options}
    frame.write.format("timestone").options(**chosen).mode("append").save()  # type: ignore[arg-type]


@pytest.mark.spark
def test_rows_of_a_frame_become_records_of_the_server(spark: SparkSession, tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        frame = spark.range(0, 30_000, numPartitions=3)
        append(frame.select(f.col("id").cast("string").alias("value")), server, topic="all/one")
        assert [int(one) for one in payloads(server)] == list(range(30_000))
        assert {record.topic for record in server.store.log("t")} == {"all/one"}
        rows = spark.createDataFrame(
            [(b"v", [("h", b"1")])], "value binary, headers array<struct<key string, value binary>>"
        )
        for _ in range(2):
            append(rows, server, txnAppId="job", txnVersion="7", partition=0)
        assert len(payloads(server)) == 30_001
        assert list(server.store.log("t"))[-1].headers == (("h", b"1"),)
        server.store.log("u")
        kafka = spark.createDataFrame(
            [("u", b"k", b"1"), ("t", b"k", b"2")], "topic string, key binary, value binary"
        )
        kafka.write.format("timestone").options(flight=server.address, layout="kafka").mode("append").save()
        assert (payloads(server, "u"), payloads(server)[-1]) == ([b"1"], b"2")
        assert left(tmp_path) == []
        with pytest.raises(Exception, match="no log named"):
            append(rows, server, log="missing")


@pytest.mark.spark
def test_stream_appends_each_row_once_also_when_its_last_batch_is_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    found: list[bytes] = []
    source, checkpoint, address = tmp_path / "source", tmp_path / "checkpoint", "127.0.0.1:0"
    for count in (2500, 10):
        fill(source, count)
        with flight_server(tmp_path, listen=address) as server:
            address = server.address
            frame = stream(spark, source, maxOffsetsPerTrigger=1000).select("value")
            writer = frame.writeStream.format("timestone").options(
                flight=address, log="t", checkpointLocation=str(checkpoint)
            )
            writer.trigger(availableNow=True).start().awaitTermination()
            found = payloads(server)
        # As if the driver had died after the append and before Spark noted it.
        for path in (checkpoint / "commits").glob("*2*"):
            path.unlink()
    assert sorted(int(one.split()[1]) for one in found) == list(range(2510))
    assert left(tmp_path) == []


def test_log_that_is_missing_is_named(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        spool = RemoteSpool(FlightServer(server.address))
        with (
            pytest.raises(ServerUnavailable, match="no log named 'other-0'"),
            spool.new_part("g", LogPartition("other", 0)) as part,
        ):
            part.add(frame([b"a"]))
