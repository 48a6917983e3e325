"""Real nodes whose etcd is away for long, and whose watches of etcd are held back, compacted and cancelled.

TIMESTONE_CLUSTER_SECONDS=600 is how long etcd is away."""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.cluster.etcd_server import EtcdServer, eventually
from tests.cluster.held_proxy import HeldProxy, held_proxy
from tests.cluster.log_cluster import KEYS, NEVER_S, LogCluster, log_cluster
from tests.cluster.node_processes import NodeProcess
from timestone_cluster.moving import drain_node, undrain_node

SECONDS = float(os.environ.get("TIMESTONE_CLUSTER_SECONDS", "8"))
"""Longer than two leases."""
RESUMES_S = 30.0
"""The design has ten, on a machine that does nothing else."""
OLD_S = 8.0
"""The design has two."""
pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(SECONDS + 180)]


async def acknowledged(cluster: LogCluster, seconds: float) -> int:
    """Return how many appends are acknowledged in the next seconds."""
    before = len(cluster.acknowledged)
    await asyncio.sleep(seconds)
    return len(cluster.acknowledged) - before


@pytest.mark.parametrize("choose", [LogCluster.follower, LogCluster.leader], ids=["follower", "leader"])
def test_no_append_fails_while_etcd_is_away_and_appends_resume_after_it_when_a_node_has_died(
    tmp_path: Path, choose: Callable[[LogCluster], Awaitable[NodeProcess]]
) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as cluster:
            await cluster.until_in_sync()
            dies = await choose(cluster)
            async with cluster.writing(2):
                # A writer finds the leader by etcd.
                await eventually(lambda: len({one.split()[0] for one in cluster.acknowledged}) == 2, NEVER_S)
                cluster.server.stop()
                ends_s = time.monotonic() + SECONDS
                while time.monotonic() < ends_s:
                    assert await acknowledged(cluster, 2) > 0
                assert (cluster.unknown, cluster.refused) == (set(), 0)
                dies.kill()
                await asyncio.sleep(0.5)  # for answers that are on their way
                assert await acknowledged(cluster, 5) == 0, "nothing is acknowledged that a dead member lacks"
                await asyncio.to_thread(cluster.server.start)
                began_s = time.monotonic()
                async with asyncio.timeout(RESUMES_S):
                    await cluster.until_more(1)
                print(f"acknowledged {time.monotonic() - began_s:.1f} s after etcd was back")
                shard = await cluster.until_in_sync(2)
                assert dies.node_id() not in shard.in_sync
                dies.start()
                await cluster.until_in_sync()
            await cluster.check()

    asyncio.run(run())


def test_nodes_take_changes_of_a_shard_in_time_when_their_watches_are_silent_compacted_and_cancelled(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with held_proxy(concerns=lambda data: b"POST /v3/watch" in data) as (watches, address):

            def made(etcd: EtcdServer, folder: Path, name: str) -> NodeProcess:
                watches.port = etcd.port
                return NodeProcess(address, folder, name)

            async with log_cluster(tmp_path, made=made) as cluster:
                await cluster.until_in_sync()
                async with cluster.writing():
                    for kind in ("silent", "compacted", "compacted"):
                        await move(cluster, watches, kind)
                    watches.hold()
                    leader = await cluster.leader()
                    leader.kill()
                    await cluster.until_another_leads(leader)
                    watches.release()
                    leader.start()
                    await cluster.until_in_sync()
                await cluster.check()

    asyncio.run(run())


async def move(cluster: LogCluster, watches: HeldProxy, kind: str) -> None:
    """Have another node lead while the watches are held back, and require that all nodes know it in time, and that no
    append fails by it."""
    unknown = len(cluster.unknown)
    if kind == "silent":
        watches.hold()
    else:
        watches.cut()  # nodes ask for a new watch, of the revision that they have read, and that comes too late
        await asyncio.sleep(1)
    leader = await cluster.leader()
    told: list[str] = []
    await drain_node(cluster.etcd, KEYS, leader.name, timeout_s=60, progress=told.append)
    shard = await cluster.until_another_leads(leader)
    known, began_s = re.compile(f"generation {shard.generation}, leader {shard.leader}"), time.monotonic()
    async with asyncio.timeout(OLD_S):
        while not all(known.search(node.output()) for node in cluster.nodes):
            await asyncio.sleep(0.05)
    print(f"{kind} watches: all nodes know the leader after {time.monotonic() - began_s:.1f} s")
    assert len(cluster.unknown) == unknown
    async with asyncio.timeout(OLD_S):
        await cluster.until_more(1)
    if kind == "compacted":
        await asyncio.to_thread(cluster.server.compact)
        watches.answers = b""
    watches.release()
    async with asyncio.timeout(20):
        while b"compact_revision" not in watches.answers and kind == "compacted":
            await asyncio.sleep(0.05)
    await undrain_node(cluster.etcd, KEYS, leader.name)
    await cluster.until_in_sync()
