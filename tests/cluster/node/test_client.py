"""Appends of a client to a leader over a real connection, found through a real etcd: the errors of the leader. What
else a client does is in test_node."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.etcd_server import etcd_server
from tests.cluster.node.test_forwarding import LARGE, Filling, Leader
from tests.support.workload import crash_config
from timestone.config import StoreConfig
from timestone.errors import QueueFull, StorageFull
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.errors import AppendRefused, WrongCluster
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys, NodeValue
from timestone_cluster.node.client import ClusterClient
from timestone_cluster.operations import make_cluster, make_log

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

KEYS = ClusterKeys("c")


def run(
    folder: Path,
    files: Filling,
    config: StoreConfig,
    check: Callable[[ClusterClient, Leader], Awaitable[None]],
) -> None:
    """Run a check with a client of a cluster whose shard 1 is led here."""

    async def main() -> None:
        with (
            etcd_server(folder / "etcd") as server,
            Store(folder / "store", config, log_type=ReplicatedLog, files=files) as store,
        ):
            async with EtcdClient([server.url]) as etcd, asyncio.timeout(60):
                value = await make_cluster(etcd, KEYS, shards=2, replicas=1)
                await make_log(etcd, KEYS, "a")
                leader, client = Leader(store, value.id), ClusterClient(etcd, KEYS)
                await leader.start()
                assert leader.place is not None and leader.record is not None
                node = NodeValue("leader", leader.place.address).encode()
                await etcd.put(KEYS.node("leader"), node)
                await etcd.put(KEYS.shard(1), leader.record.encode())
                try:
                    await check(client, leader)
                finally:
                    files.writes.set()
                    await client.close()
                    await leader.stop()

    asyncio.run(main())


def test_append_raises_the_error_of_the_leader_when_its_disk_is_full_and_is_tried_again(
    tmp_path: Path,
) -> None:
    files = Filling()

    async def check(client: ClusterClient, leader: Leader) -> None:
        assert await client.append("a", [b"1"], shard=1) == 0
        files.free = 4
        with pytest.raises(StorageFull) as caught:
            await client.append("a", [b"2"], shard=1)
        facts = caught.value.path, caught.value.free_bytes, caught.value.limit_bytes
        assert (facts, str(caught.value)) == ((leader.logs["a-1"].folder, 4, 4), str(StorageFull(*facts)))
        with pytest.raises(TimeoutError, match=r"may be in the log: 0; .* 4 bytes free"):
            await client.append_again("a", [b"2"], shard=1, timeout_s=3)
        waiting = asyncio.create_task(client.append_again("a", [b"3"], shard=1))
        await asyncio.sleep(0.2)
        files.free = None
        assert await waiting == 1
        assert leader.payloads == [b"1", b"3"]
        with pytest.raises(AppendRefused, match="over the limit"):
            await client.append("a", [bytes(leader.logs["a-1"].config.record_bytes + 1)], shard=1)

    run(tmp_path, files, replace(crash_config(), min_free_bytes=4), check)


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_append_fails_at_once_when_the_cluster_or_the_shard_does_not_exist(
    tmp_path: Path, again: bool
) -> None:
    async def main() -> None:
        with etcd_server(tmp_path / "etcd") as server:
            async with EtcdClient([server.url]) as etcd, asyncio.timeout(30):
                client = ClusterClient(etcd, KEYS)
                append = partial(client.append_again, timeout_s=60) if again else client.append
                with pytest.raises(WrongCluster, match="cluster 'c' is not in etcd"):
                    await append("a", [b"1"])
                await make_cluster(etcd, KEYS, shards=2, replicas=1)
                await make_log(etcd, KEYS, "a")
                for shard in (2, -1):
                    with pytest.raises(ValueError, match=f"invalid shard: expected one below 2, got {shard}"):
                        await append("a", [b"1"], shard=shard)
                await client.close()

    asyncio.run(main())


def test_append_raises_the_error_of_the_leader_when_its_queue_is_full(tmp_path: Path) -> None:
    files = Filling()

    async def check(client: ClusterClient, leader: Leader) -> None:
        assert await client.append("a", [b"1"], shard=1) == 0
        files.writes.clear()
        waiting = asyncio.create_task(client.append("a", [LARGE], shard=1))
        while not leader.logs["a-1"].queued_bytes:
            await asyncio.sleep(0.01)
        with pytest.raises(QueueFull, match=r"log a-1: .* the limit is 1 \(queue_bytes\)"):
            await client.append("a", [b"3"], shard=1)
        files.writes.set()
        assert await waiting == 1

    run(tmp_path, files, replace(crash_config(), queue_bytes=1), check)
