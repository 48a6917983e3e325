"""Spark on three nodes and their bucket, with a real etcd and a real S3 server: one query reads what is on no disk any
more from the bucket and the rest from the nodes, each row once while leaders are killed. Another one reads the bucket
alone, while retention runs, and when no node does."""

import asyncio
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.flight_cluster import KEYS, LIMIT_S, LOG, FlightCluster, flight_cluster
from tests.cluster.test_spark import ROWS, SHARDS, append, leaders_killed, nodes
from tests.support.s3_proxy import s3_proxy
from tests.support.s3_server import BUCKET, S3Server
from tests.support.spark import Batches
from tests.tiering.conftest import s3, s3_environment  # noqa: F401, a fixture
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.operations import configure_log
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.objects.history import log_histories

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(400)]

SETTINGS = {"segment_entries": 100, "local_retention_bytes": 1}
_STREAM = """
import sys, time
from pathlib import Path
from pyspark.sql.functions import expr
from pyspark_timestone.session import spark_session
from tests.support.spark import CONF, Batches

url, nodes, log, folder, rows = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[5])
spark = spark_session("cluster", master="local[2,3]", conf=CONF)


def source(reader, **options):
    return reader.format("timestone").options(cluster=nodes, subscribe=log, **options).load(url)


frame = source(spark.readStream, startingOffsets="earliest", maxOffsetsPerTrigger=300)
query = Batches(folder / "out").start(frame, folder / "checkpoint")
while not (folder / "ended").exists():
    time.sleep(0.2)
    assert query.exception() is None, query.exception()
query.stop()
read = source(spark.read)
row = read.selectExpr("count(*)", "count(distinct partition, offset)", "count(distinct value)", "min(offset)").first()
print("batch", *row, flush=True)
print("some", read.where("offset < 150").count(), source(spark.read, topics="none/#").count(), flush=True)
middle = read.where("partition = 0 and offset = 120").selectExpr("timestamp", "value").first()
start = str(int(middle[0].timestamp() * 1000))
print("time", source(spark.read, startingTimestamp=start).where("partition = 0").selectExpr("min(offset)").first()[0])


def until(name):
    while not (folder / name).exists():
        time.sleep(0.1)


def slowly(batches):
    (folder / "planned").touch()
    until("expired")
    yield from batches


def bucket(name, task):
    read = spark.read.format("timestone").option("subscribe", log).load(url).select("partition", "offset", "value")
    found = read.mapInArrow(task, read.schema).groupBy("partition")
    wrong = f"count_if(cast(value as string) != concat(offset div {rows}, '/', offset % {rows}))"
    facts = "min(offset)", "max(offset)", "count(distinct offset)", "count(*)", wrong
    for row in found.agg(*map(expr, facts)).sort("partition").collect():
        print(name, *row, flush=True)


bucket("retained", slowly)
until("stopped")
bucket("alone", lambda batches: batches)
"""


def local_starts(cluster: FlightCluster) -> list[int]:
    """Return where each replica begins on its disk."""
    return [
        min((int(path.stem) for path in (node.folder / f"{LOG}-{shard}").glob("*.index")), default=0)
        for node in cluster.nodes
        for shard in range(SHARDS)
    ]


def bucket_bounds(url: str) -> list[tuple[int, int]]:
    """Return where the history of each shard begins and ends."""
    manifests = [history.manifest for history in log_histories(open_bucket(url))]
    return [(one.start, one.end) for one in sorted(manifests, key=lambda one: one.place.partition)]


def expire_a_half(cluster: FlightCluster, url: str) -> None:
    """Have retention leave out of the bucket about a half of each shard."""
    size_bytes = min(history.manifest.size_bytes for history in log_histories(open_bucket(url)))

    async def configure() -> None:
        async with EtcdClient([cluster.etcd.url]) as etcd:
            await configure_log(etcd, KEYS, LOG, {"retention_bytes": size_bytes // 2})

    asyncio.run(configure())


def facts(printed: str, name: str) -> list[int]:
    """Return what the program has printed about a partition: first and last offset, how many offsets and rows,
    and how many have another value than was appended."""
    (found,) = re.findall(rf"^{name} ([0-9 ]+)$", printed, re.MULTILINE)
    return [int(one) for one in found.split()]


def until(is_so: Callable[[], bool], program: "subprocess.Popen[bytes]") -> None:
    """Wait until something is so, while a program runs."""
    ends_s = time.monotonic() + 2 * LIMIT_S
    while not is_so():
        assert program.poll() is None, "the program has ended"
        assert time.monotonic() < ends_s
        time.sleep(0.2)


def test_stream_and_batch_read_bucket_and_nodes_while_leaders_are_killed(
    tmp_path: Path,
    s3_environment: S3Server,  # noqa: F811
) -> None:
    url = f"s3://{BUCKET}/{secrets.token_hex(4)}"
    number, out = 0, Batches(tmp_path / "out")
    with (
        s3_proxy(s3_environment.port) as proxy,
        flight_cluster(tmp_path, "--tier", url, shards=SHARDS, settings=SETTINGS) as cluster,
        (tmp_path / "spark.log").open("wb") as log,
    ):
        ends_s = time.monotonic() + LIMIT_S
        while min(local_starts(cluster)) == 0:
            assert time.monotonic() < ends_s, local_starts(cluster)
            append(cluster, number)
            number += 1
        program = subprocess.Popen(
            [sys.executable, "-c", _STREAM, url, nodes(cluster), LOG, str(tmp_path), str(ROWS)],
            stdout=log,
            stderr=log,
            env={**os.environ, "AWS_ENDPOINT_URL": proxy.endpoint},
        )
        try:
            before = local_starts(cluster)
            with leaders_killed(cluster, 3) as done:
                while not done.is_set():
                    append(cluster, number)
                    number += 1
                    time.sleep(0.05)
            assert min(local_starts(cluster)) > max(before), "retention continued under the query"
            ends_s = time.monotonic() + 3 * LIMIT_S
            while sum(out.sizes()) < number * ROWS * SHARDS:
                assert program.poll() is None, (tmp_path / "spark.log").read_text()[-4000:]
                assert time.monotonic() < ends_s, (sum(out.sizes()), number * ROWS * SHARDS)
                time.sleep(0.5)
            (tmp_path / "ended").touch()
            whole = bucket_bounds(url)
            until(lambda: (tmp_path / "planned").exists(), program)
            expire_a_half(cluster, url)
            until(lambda: all(start > 0 for start, _ in bucket_bounds(url)), program)
            (tmp_path / "expired").touch()
            until(lambda: f"retained {SHARDS - 1}" in (tmp_path / "spark.log").read_text(), program)
            for node in cluster.nodes:
                node.kill()
            left = bucket_bounds(url)
            (tmp_path / "stopped").touch()
            assert program.wait(2 * LIMIT_S) == 0, (tmp_path / "spark.log").read_text()[-4000:]
        finally:
            program.kill()
            program.wait()
        fetched = [one for one in proxy.requests if one.startswith("GET ") and ".segment" in one]
    printed = (tmp_path / "spark.log").read_text()
    read = sorted((partition, offset) for rows in out.all() for _, partition, offset in rows)
    assert read == [(shard, offset) for shard in range(SHARDS) for offset in range(number * ROWS)]
    total = number * ROWS * SHARDS
    assert f"batch {total} {total} {total // SHARDS} 0" in printed, printed[-4000:]
    assert f"some {150 * SHARDS} 0" in printed, printed[-4000:]
    (first,) = re.findall(r"^time ([0-9]+)$", printed, re.MULTILINE)
    assert 2 * ROWS <= int(first) <= 3 * ROWS, "a time below the start of the nodes is found"
    for shard, (start, end) in enumerate(whole):
        found = facts(printed, f"retained {shard}")
        assert found == [start, found[1], found[1] + 1, found[1] + 1, 0], (
            "all rows, though retention left out many"
        )
        assert start == 0 < end <= found[1] + 1
    for shard, (start, end) in enumerate(left):
        assert facts(printed, f"alone {shard}") == [start, end - 1, end - start, end - start, 0]
        assert start > 0, "retention has left out something"
    assert len(fetched) > SHARDS, "what is below the start of the nodes came from the bucket"
    print(f"{total} rows in {len(out.sizes())} batches, {len(fetched)} segments fetched")
