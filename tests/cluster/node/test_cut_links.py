"""Real nodes whose links are cut again and again, and one that is unreachable while thousands of topics are new: the
links come back in time, and an absent node costs its leader no memory."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import timestone
from tests.cluster.etcd_server import EtcdServer
from tests.cluster.held_proxy import HeldProxy, held_proxy
from tests.cluster.log_cluster import LOG, LogCluster, log_cluster
from tests.cluster.node_processes import NodeProcess
from tests.support.ports import reserved_port
from tests.support.seeds import rounds, run_seed, told_on_failure

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

CUTS = rounds(20, "TIMESTONE_CLUSTER_ROUNDS")
BACK_S = 8.0
"""The design has five, on a machine that does nothing else."""
TOPICS = 10_000
GROWS_MIB = 48


@asynccontextmanager
async def behind_proxies(folder: Path) -> AsyncIterator[tuple[LogCluster, dict[str, HeldProxy]]]:
    """Run three nodes, each of which others reach by a proxy."""
    async with AsyncExitStack() as stack:
        proxies = {}
        options = {}
        for name in "abc":
            port = stack.enter_context(reserved_port())
            proxies[name], address = await stack.enter_async_context(held_proxy(port))
            options[name] = ["--cluster-listen", f"127.0.0.1:{port}", "--cluster-advertise", address]

        def made(etcd: EtcdServer, folder: Path, name: str) -> NodeProcess:
            return NodeProcess(etcd, folder, name, *options[name])

        cluster = await stack.enter_async_context(log_cluster(folder, made=made))
        await cluster.until_in_sync()
        yield cluster, proxies


@pytest.mark.timeout(120 + 12 * CUTS)
def test_links_are_back_in_time_when_they_are_cut_twenty_times(tmp_path: Path) -> None:
    seed = run_seed("cut links")

    async def run(chance: random.Random) -> None:
        async with behind_proxies(tmp_path) as (cluster, proxies):
            async with cluster.writing():
                longest_s = 0.0
                for _ in range(CUTS):
                    proxy = proxies[chance.choice(cluster.others(await cluster.leader())).name]
                    proxy.cut()
                    await asyncio.sleep(chance.uniform(0, 0.6))
                    proxy.release()
                    began_s = time.monotonic()
                    await acknowledged_by_all(cluster)
                    longest_s = max(longest_s, time.monotonic() - began_s)
            assert longest_s < BACK_S
            print(f"{CUTS} cuts, back within {longest_s:.1f} s; {cluster.counts({})}")
            await cluster.check()

    with told_on_failure(TIMESTONE_SEED=seed):
        asyncio.run(run(random.Random(seed)))


async def acknowledged_by_all(cluster: LogCluster) -> None:
    """Wait until a record is acknowledged that was appended later, with all nodes in sync."""
    known = len(cluster.acknowledged) + 4  # two of each writer: the second one was appended after this began
    async with asyncio.timeout(60):
        while len(cluster.acknowledged) < known or len((await cluster.shard()).in_sync) < 3:
            await asyncio.sleep(0.02)


@pytest.mark.timeout(240)
def test_absent_node_costs_no_memory_and_has_all_topics_later_when_thousands_are_new(tmp_path: Path) -> None:
    async def run() -> None:
        async with behind_proxies(tmp_path) as (cluster, proxies):
            leader = await cluster.leader()
            away = cluster.others(leader)[0]
            await append(cluster, "warm", TOPICS)  # the first ones take memory on all nodes
            before_mib = leader.memory_mib()
            proxies[away.name].hold()  # its connections stay, and nothing comes through
            await append(cluster, "new", TOPICS)
            shard = await cluster.until_in_sync(2)
            assert away.node_id() not in shard.in_sync
            for number in range(5):
                await append(cluster, f"more{number}", 2000)
            grown_mib = leader.memory_mib() - before_mib
            print(f"the leader has {grown_mib} MiB more after 20,000 topics without {away.name}")
            assert grown_mib < GROWS_MIB
            proxies[away.name].cut()
            proxies[away.name].release()
            began_s = time.monotonic()
            await cluster.until_in_sync()
            print(f"in sync again after {time.monotonic() - began_s:.1f} s")
            found = await cluster.check()
            for node in cluster.nodes:
                with timestone.view(node.folder) as view:
                    seen = [(bytes(one.payload), one.topic) for one in view.log(LOG)][
                        : len(cluster.acknowledged)
                    ]
                assert (
                    seen
                    == [(one, f"t/{one.decode()}") for one in (each.payload for each in found)][: len(seen)]
                )
                assert len({topic for _, topic in seen}) == 2 * TOPICS + 10_000

    asyncio.run(run())


async def append(cluster: LogCluster, name: str, count: int) -> None:
    """Append records of as many topics, a thousand at once."""
    for first in range(0, count, 1000):
        payloads = [b"%s %d" % (name.encode(), number) for number in range(first, first + 1000)]
        offset = await cluster.client.append(LOG, payloads, topics=[f"t/{one.decode()}" for one in payloads])
        cluster.acknowledged |= {one: offset + place for place, one in enumerate(payloads)}
