"""The history of a cluster's logs in a bucket: uploaded by whichever node leads, and whole when leaders are killed."""

import asyncio
import functools
from pathlib import Path

import pytest

import timestone
from tests.cluster.etcd_server import etcd_server
from tests.cluster.log_cluster import KEYS, LOG, NEVER_S, LogCluster
from tests.cluster.node_processes import NodeProcess, running
from tests.support.s3_server import S3Server
from tests.tiering.conftest import s3, s3_environment  # noqa: F401, a fixture
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.operations import ShardStatus, make_cluster, make_log
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.errors import NoHistory
from timestone_tiering.objects.history import log_histories
from timestone_tiering.operations.restore import restore_store
from timestone_tiering.reading.local_view import remote_history
from timestone_tiering.view import view_bucket

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SETTINGS = {"segment_entries": 40, "local_retention_bytes": 1}


def uploaded_end(url: str) -> int:
    try:
        return log_histories(open_bucket(url))[0].manifest.end
    except NoHistory:
        return 0


def seen(node: NodeProcess) -> dict[int, bytes]:
    """Return what readers of a node see, by offset."""
    with timestone.view(node.folder) as view, remote_history(view):
        return {record.offset: bytes(record.payload) for record in view.log(LOG)}


def is_led_by_another(node: str, shard: ShardStatus) -> bool:
    return shard.is_led and shard.leader != node


def local_start(node: NodeProcess) -> int:
    return min((int(path.stem) for path in (node.folder / f"{LOG}-0").glob("*.index")), default=0)


def test_history_is_whole_in_the_bucket_and_on_each_node_when_leaders_are_killed(
    tmp_path: Path,
    s3_environment: S3Server,  # noqa: F811
) -> None:
    url = f"s3://{s3_environment.bucket}/cluster-{tmp_path.name}"

    async def run() -> None:
        with etcd_server(tmp_path / "etcd") as server:
            async with EtcdClient([server.url]) as etcd:
                await make_cluster(etcd, KEYS, shards=1, replicas=3)
                await make_log(etcd, KEYS, LOG, SETTINGS)
                nodes = [NodeProcess(server, tmp_path / name, name, "--tier", url) for name in "abc"]
                with running(nodes):
                    await check(LogCluster(server, etcd, nodes))

    async def check(harness: LogCluster) -> None:
        await harness.until(lambda shard: shard.is_led and len(shard.in_sync) == 3)
        ended = asyncio.Event()
        writers = [asyncio.create_task(harness.write(f"w{number}", ended)) for number in range(3)]
        for _ in range(3):
            end = uploaded_end(url)
            async with asyncio.timeout(NEVER_S):
                while uploaded_end(url) < end + 100:
                    await asyncio.sleep(0.2)
            leader = await harness.leader()
            leader.kill()
            killed = leader.node_id()
            await harness.until(functools.partial(is_led_by_another, killed))
            leader.start()
            await harness.until(lambda shard: len(shard.in_sync) == 3)
        ended.set()
        await asyncio.gather(*writers)
        async with asyncio.timeout(NEVER_S):
            while min(map(local_start, harness.nodes)) == 0:
                await asyncio.sleep(0.2)
        for node in harness.nodes:
            async with asyncio.timeout(NEVER_S):
                while 0 not in (there := seen(node)):  # followers look now and then for what was uploaded
                    await asyncio.sleep(1)
            assert {there[offset]: offset for offset in harness.acknowledged.values()} == harness.acknowledged
            node.stop()
            assert "Traceback" not in node.output(), node.output()
        with view_bucket(url) as bucket:
            history = {record.offset: bytes(record.payload) for record in bucket.log(LOG)}
        assert list(history) == list(range(max(history) + 1))
        assert {payload: n for payload, n in harness.acknowledged.items() if n in history} == {
            payload: n for n, payload in history.items() if payload in harness.acknowledged
        }
        restore_store(open_bucket(url), tmp_path / "restored")
        with timestone.open(tmp_path / "restored") as store:
            assert [bytes(record.payload) for record in store.log(LOG)] == list(history.values())

    asyncio.run(run())
