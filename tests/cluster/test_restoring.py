"""A cluster made again from its bucket, by the command and with real nodes, etcd and S3 server, after the disks of all
nodes are lost, with and without etcd."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import timestone
from tests.cluster.etcd_server import EtcdServer, etcd_server
from tests.cluster.node_processes import NAME, NodeProcess, running
from tests.support.s3_server import S3Server
from tests.tiering.conftest import s3, s3_environment  # noqa: F401, a fixture
from timestone_cluster.errors import WrongCluster
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys
from timestone_cluster.node.client import ClusterClient
from timestone_cluster.operations import ClusterStatus, cluster_status, make_cluster, make_log
from timestone_cluster.recovery import restore_cluster
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.errors import NoHistory
from timestone_tiering.objects.history import log_histories
from timestone_tiering.reading.local_view import remote_history

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(400)]

KEYS, LOG, SHARDS = ClusterKeys(NAME), "telemetry", 2
SETTINGS = {"segment_entries": 40, "local_retention_bytes": 1}
LIMIT_S = 90.0
Contents = dict[int, tuple[bytes, str | None, int]]


@contextmanager
def nodes_on(
    server: EtcdServer, folder: Path, url: str, *folders: str, names: str = "abc"
) -> Iterator[list[NodeProcess]]:
    nodes = [
        NodeProcess(server, folder / one, name, "--tier", url)
        for name, one in zip(names, folders or names, strict=True)
    ]
    with running(nodes):
        yield nodes


async def in_sync(etcd: EtcdClient, count: int = 3) -> ClusterStatus:
    """Wait until all shards are led with so many in-sync replicas."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            found = await cluster_status(etcd, KEYS)
            if all(one.is_led and len(one.in_sync) == count == len(one.replicas) for one in found.shards):
                return found
            await asyncio.sleep(0.1)


async def append(etcd: EtcdClient, first: int, count: int) -> None:
    client = ClusterClient(etcd, KEYS)
    for number in range(first, first + count):
        for shard in range(SHARDS):
            payloads = [b"%d/%d" % (number, one) for one in range(10)]
            await client.append_again(LOG, payloads, shard=shard, topics=[f"line/{number % 7}"] * 10)
    await client.close()


def uploaded(url: str) -> dict[int, tuple[int, int]]:
    """Return the end and the generation of each shard's log in the bucket."""
    try:
        found = log_histories(open_bucket(url))
    except NoHistory:
        return {}
    return {
        one.manifest.place.partition: (one.manifest.end, one.manifest.version.generation) for one in found
    }


async def until_uploaded(url: str, end: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while len(found := uploaded(url)) < SHARDS or any(one < end for one, _ in found.values()):
            await asyncio.sleep(0.2)


def contents(folder: Path, shard: int) -> tuple[int, Contents]:
    """Return the id of a log, and what readers of a node see, by offset."""
    with timestone.view(folder) as view, remote_history(view):
        log = view.log(LOG, shard)
        return log.id, {one.offset: (bytes(one.payload), one.topic, one.timestamp_us) for one in log}


def command(server: EtcdServer, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `timestone cluster restore`."""
    etcd = f"etcd://127.0.0.1:{server.port}/{NAME}"
    line = [sys.executable, "-m", "timestone_cli", "cluster", "restore", etcd, url, str(folder)]
    return subprocess.run(line, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("etcd_is_lost", [True, False])
def test_cluster_is_made_again_from_its_bucket_when_all_disks_are_lost(
    tmp_path: Path,
    s3_environment: S3Server,  # noqa: F811
    etcd_is_lost: bool,
) -> None:
    url = f"s3://{s3_environment.bucket}/restored-{etcd_is_lost}"
    before: dict[int, tuple[int, Contents]] = {}

    async def lose() -> None:
        async with EtcdClient([server.url]) as etcd:
            await make_cluster(etcd, KEYS, shards=SHARDS, replicas=3, topic_keys=["line/{key}/#"])
            await make_log(etcd, KEYS, LOG, SETTINGS)
            with nodes_on(server, tmp_path, url) as nodes:
                await in_sync(etcd)
                await append(etcd, 0, 30)
                await until_uploaded(url, 200)
                for shard in range(SHARDS):
                    async with asyncio.timeout(LIMIT_S):
                        while 0 not in (found := contents(nodes[0].folder, shard))[1]:
                            await asyncio.sleep(1)
                    before[shard] = found
                refused = await asyncio.to_thread(command, server, url, tmp_path / "early")
                assert refused.returncode and "stop them first" in refused.stderr, refused
                for node in nodes:
                    node.kill()
            async with asyncio.timeout(LIMIT_S):  # until their leases have ended
                while (await cluster_status(etcd, KEYS)).nodes:
                    await asyncio.sleep(0.2)
            for name in "abc":
                shutil.rmtree(tmp_path / name)

    async def restore(server: EtcdServer) -> None:
        ends = uploaded(url)
        folder = tmp_path / "first"
        done = await asyncio.to_thread(command, server, url, folder)
        assert done.returncode == 0, done
        again = await asyncio.to_thread(command, server, url, folder)
        assert again.returncode == 0 and "complete" in again.stdout, again
        async with EtcdClient([server.url]) as etcd:
            with nodes_on(server, tmp_path, url, "first", "second", "third") as nodes:
                found = await in_sync(etcd)
                assert (found.cluster.shards, found.cluster.topic_keys) == (SHARDS, ("line/{key}/#",))
                assert LOG in found.logs
                for shard, (end, generation) in ends.items():
                    status = found.shards[shard]
                    assert status.generation > generation + 1000
                    assert (status.unclean[-1].log, status.unclean[-1].offset) == (LOG, end)
                await append(etcd, 100, 30)
                for shard, (end, _) in ends.items():
                    log_id, records = before[shard]
                    async with asyncio.timeout(LIMIT_S):  # followers look now and then for what was uploaded
                        while any(len(contents(node.folder, shard)[1]) != end + 300 for node in nodes):
                            await asyncio.sleep(1)
                    for node in nodes:
                        new_id, there = contents(node.folder, shard)
                        assert new_id == log_id
                        assert {at: there[at] for at in range(end)} == {at: records[at] for at in range(end)}
                        assert [there[at][0] for at in range(end, end + 10)] == [
                            b"100/%d" % n for n in range(10)
                        ]
                await until_uploaded(url, max(end for end, _ in ends.values()) + 200)
                assert min(generation for _, generation in uploaded(url).values()) > 1000
                leader = next(one for one in nodes if one.node_id() == found.shards[0].leader)
                leader.kill()
                await append(etcd, 200, 3)
                for node in nodes:
                    assert "Traceback" not in node.output(), node.output()

    with etcd_server(tmp_path / "etcd") as server:
        asyncio.run(lose())
        if not etcd_is_lost:
            asyncio.run(restore(server))
            return
    with etcd_server(tmp_path / "new-etcd") as server:
        asyncio.run(restore(server))


def test_bucket_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        with etcd_server(tmp_path / "etcd") as server:
            async with EtcdClient([server.url]) as etcd:
                (tmp_path / "bucket").mkdir()
                bucket = open_bucket((tmp_path / "bucket").as_uri())
                with pytest.raises(WrongCluster, match=r"has no cluster\.json"):
                    await restore_cluster(etcd, KEYS, bucket, tmp_path / "a")
                await make_cluster(etcd, KEYS, shards=1, replicas=3)
                with pytest.raises(NoHistory):
                    await restore_cluster(etcd, KEYS, bucket, tmp_path / "a")
                assert not (tmp_path / "a").exists()

    asyncio.run(run())
