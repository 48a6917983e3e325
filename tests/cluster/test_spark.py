"""Spark on three nodes and a real etcd: batches, a stream and a sink, each row once while leaders are killed."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_timestone.flight.remote_store import RemoteStore
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.flight_server import FlightServer
from tests.cluster.flight_cluster import LIMIT_S, LOG, REFUSED, FlightCluster, act, flight_cluster
from tests.support.flight_server import batch, command, put
from tests.support.spark import Batches, spark

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(300)]
__all__ = ["spark"]

SHARDS = 2
ROWS = 40


@contextmanager
def leaders_killed(cluster: FlightCluster, count: int) -> Iterator[threading.Event]:
    """Kill the leaders of the shards in turn, each once all replicas are in sync. The event says that it is done."""
    done, errors = threading.Event(), []

    def kill() -> None:
        try:
            for number in range(count):
                shard = number % SHARDS
                for each in range(SHARDS):
                    cluster.leader(each, in_sync=3)
                time.sleep(1)
                leader = cluster.leader(shard)
                leader.kill()
                cluster.leader(shard, other_than=leader)
                leader.start()
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield done
    finally:
        thread.join(4 * LIMIT_S)
        if errors:
            raise errors[0]


def append(cluster: FlightCluster, number: int) -> None:
    """Append a batch to each shard, once."""
    for shard in range(SHARDS):
        values: list[bytes | None] = [b"%d/%d" % (number, row) for row in range(ROWS)]
        asked = command(log=LOG, partition=shard, producer="meter")

        def ask(client: Any, asked: Any = asked, values: list[bytes | None] = values) -> None:
            assert put(client, asked, batch(values), metadata=[{"number": number}])

        while True:
            try:
                cluster.at_leader(ask, shard)
                break
            except (AssertionError, *REFUSED):  # no answer: sent again
                continue


def nodes(cluster: FlightCluster) -> str:
    return ",".join(cluster.addresses)


def source(spark: SparkSession, cluster: FlightCluster, **options: Any) -> DataFrame:
    chosen = {"cluster": nodes(cluster), "subscribe": LOG, "startingOffsets": "earliest", **options}
    return spark.readStream.format("timestone").options(**chosen).load()


def payloads(cluster: FlightCluster, log: str, partition: int) -> list[bytes]:
    with RemoteStore(FlightServer(cluster.addresses[0], nodes=tuple(cluster.addresses))) as store:
        found = store.log(log, partition)
        part = OffsetRange(LogPartition(log, partition), found.start_offset, found.synced_offset)
        values = pa.schema([pa.field("value", pa.binary())])
        return [
            one for each in found.record_batches(part, (), values, None) for one in each.column(0).to_pylist()
        ]


def test_batch_reads_all_shards_and_writes_one_through_any_node(spark: SparkSession, tmp_path: Path) -> None:
    with flight_cluster(tmp_path, shards=SHARDS) as cluster:
        append(cluster, 0)
        follower = cluster.others(cluster.leader())[0]
        address = cluster.addresses[cluster.nodes.index(follower)]
        reader = spark.read.format("timestone").option("cluster", address).option("subscribe", LOG)
        rows = reader.load().select("partition", "offset", "value").collect()
        expected = [(shard, row, b"0/%d" % row) for shard in range(SHARDS) for row in range(ROWS)]
        assert sorted((row[0], row[1], bytes(row[2])) for row in rows) == expected
        frame = spark.range(0, 1000, numPartitions=3).selectExpr("cast(id AS string) AS value")
        writer = frame.write.format("timestone").option("cluster", address).option("log", LOG)
        for _ in range(2):
            writer.option("partition", 1).option("txnAppId", "job").option("txnVersion", 3).mode(
                "append"
            ).save()
        assert [int(one) for one in payloads(cluster, LOG, 1)[ROWS:]] == list(range(1000))
        kept = Batches(tmp_path / "out")
        for number in (1, 2):
            kept.drain(source(spark, cluster, group="billing"), tmp_path / "checkpoint")
            append(cluster, number)
        kept.drain(source(spark, cluster, group="billing"), tmp_path / "checkpoint")
        for shard, end in enumerate((3 * ROWS, 3 * ROWS + 1000)):
            found = cluster.at_leader(partial(act, kind="lags", log=LOG, partition=shard), shard)
            [lag] = found["readers"]
            assert lag["reader"] == "billing"
            assert end - 2 * ROWS <= lag["committed"] <= end, "it follows the batches, and may be behind"


def test_stream_and_sink_have_each_row_once_when_leaders_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with flight_cluster(tmp_path, shards=SHARDS) as cluster:
        kept, number = Batches(tmp_path / "out"), 0
        table = kept.start(source(spark, cluster), tmp_path / "checkpoint-table")
        copied = source(spark, cluster, maxOffsetsPerTrigger=500).selectExpr("value")
        made = copied.writeStream.format("timestone").options(
            cluster=nodes(cluster),
            log="copy",
            partition=1,
            checkpointLocation=str(tmp_path / "checkpoint-copy"),
        )
        cluster.at_leader(lambda client: act(client, "create-log", log="copy"))
        sink = made.start()
        try:
            with leaders_killed(cluster, 3) as done:
                while not done.is_set():
                    append(cluster, number)
                    number += 1
                    time.sleep(0.1)
            total = number * ROWS * SHARDS
            ends_s = time.monotonic() + 2 * LIMIT_S

            def has_all() -> bool:
                for query in (table, sink):
                    assert query.exception() is None, query.exception()
                assert time.monotonic() < ends_s, (
                    total,
                    sum(kept.sizes()),
                    len(payloads(cluster, "copy", 1)),
                )
                time.sleep(0.5)
                return sum(kept.sizes()) >= total and len(payloads(cluster, "copy", 1)) >= total

            while not has_all():
                pass
        finally:
            table.stop()
            sink.stop()
        read = sorted((partition, offset) for rows in kept.all() for _, partition, offset in rows)
        assert read == [(shard, offset) for shard in range(SHARDS) for offset in range(number * ROWS)]
        expected = sorted(
            b"%d/%d" % (one, row) for one in range(number) for row in range(ROWS) for _ in range(SHARDS)
        )
        assert sorted(payloads(cluster, "copy", 1)) == expected
        print(f"{total} rows, {number} batches of producers, {len(kept.sizes())} of the stream")
