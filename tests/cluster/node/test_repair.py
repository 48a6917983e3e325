"""A damaged replica repairs itself from its leader: real nodes, a bit flipped in each file of a log."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.etcd_server import etcd_server
from tests.cluster.node_processes import NAME, NodeProcess, held_by_offset, running
from tests.support.seeds import run_seed, told_on_failure
from timestone_cli.control.caller import Caller
from timestone_cluster.errors import ClusterError
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys
from timestone_cluster.moving import drain_node, undrain_node
from timestone_cluster.node.client import ClusterClient
from timestone_cluster.operations import ShardStatus, cluster_status, make_cluster, make_log

pytestmark = pytest.mark.slow

KEYS = ClusterKeys(NAME)
LOG = "telemetry"
FOLDER = f"{LOG}-0"
NEVER_S = 120


async def until(etcd: EtcdClient, is_so: Callable[[ShardStatus], bool]) -> ShardStatus:
    """Wait for a state of the shard."""
    async with asyncio.timeout(NEVER_S):
        while True:
            try:
                (found,) = (await cluster_status(etcd, KEYS)).shards
                if is_so(found):
                    return found
            except ClusterError:
                pass
            await asyncio.sleep(0.05)


@asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[tuple[EtcdClient, list[NodeProcess]]]:
    """Yield three nodes in sync that hold five segments, of which four are sealed."""
    with etcd_server(folder / "etcd") as server:
        async with EtcdClient([server.url]) as etcd:
            await make_cluster(etcd, KEYS, shards=1, replicas=3)
            await make_log(etcd, KEYS, LOG, {"segment_entries": 50})
            nodes = [NodeProcess(server, folder / name, name) for name in "abc"]
            with running(nodes):
                await until(etcd, lambda shard: shard.is_led and len(shard.in_sync) == 3)
                client = ClusterClient(etcd, KEYS)
                for number in range(230):
                    await client.append_again(LOG, [b"record %d" % number], topics=[f"t/{number // 10}"])
                await client.close()
                yield etcd, nodes


def flip_each(paths: Iterable[Path], rng: random.Random) -> list[tuple[str, int]]:
    """Flip a bit in each of some files, in the used part of it, and return which."""
    flipped = []
    for path in sorted(paths):
        data = bytearray(path.read_bytes())
        used = len(data.rstrip(b"\0"))
        if used:
            # A header page is mostly empty: every third time, one of the bits that count there.
            bit = rng.randrange(8 * (68 if rng.random() < 0.33 else used))
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            flipped.append((path.name, bit))
    return flipped


async def leads(etcd: EtcdClient, nodes: list[NodeProcess], wanted: NodeProcess) -> None:
    """Have a node lead, by draining all others, and require that it does."""
    told: list[str] = []
    others = [node for node in nodes if node is not wanted]
    for node in others:
        await drain_node(etcd, KEYS, node.name, timeout_s=NEVER_S, progress=told.append)
    await until(etcd, lambda shard: shard.is_led and shard.leader == wanted.node_id())
    for node in others:
        await undrain_node(etcd, KEYS, node.name)


@pytest.mark.parametrize("is_leader", [False, True], ids=["follower", "leader"])
def test_replica_with_a_flipped_bit_in_each_file_repairs_itself_and_may_lead(
    tmp_path: Path, is_leader: bool
) -> None:
    async def run(rng: random.Random) -> None:
        async with filled(tmp_path) as (etcd, nodes):
            shard = await until(etcd, lambda shard: shard.is_led and len(shard.in_sync) == 3)
            leader = next(node for node in nodes if node.node_id() == shard.leader)
            damaged = next(node for node in nodes if (node is leader) is is_leader)
            before = held_by_offset(leader.folder / FOLDER)
            files = [*(damaged.folder / FOLDER).iterdir()]
            if is_leader:
                sealed = (path for path in files if path.stem.isdigit() and int(path.stem) < 200)
                print(flip_each(sealed, rng))
            else:
                damaged.kill()
                print(flip_each(files, rng))
                damaged.start()
                async with asyncio.timeout(NEVER_S):
                    while damaged.output().count("\nready\n") < 2:
                        await asyncio.sleep(0.05)

            def scrub() -> None:
                with Caller(damaged.folder) as caller:
                    caller.call("scrub")

            await asyncio.to_thread(scrub)
            async with asyncio.timeout(NEVER_S):
                while "is repaired with records of the leader" not in damaged.output():
                    await asyncio.sleep(0.05)
            await until(etcd, lambda shard: shard.is_led and len(shard.in_sync) == 3)
            await leads(etcd, nodes, damaged)
            client = ClusterClient(etcd, KEYS)
            last = await client.append_again(LOG, [b"after it"], topics=["t/0"])
            await client.close()
            for node in nodes:
                node.stop()
            one, *others = [held_by_offset(node.folder / FOLDER) for node in nodes]
            assert {offset: one[offset] for offset in before} == before
            assert last in one
            for other in others:
                assert one == other

    seed = run_seed("repair of the leader" if is_leader else "repair")
    with told_on_failure(TIMESTONE_SEED=seed):
        asyncio.run(run(random.Random(seed)))
