"""A damaged replica repairs itself from its leader: real nodes, a bit flipped in each file of a log."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.cluster.etcd_server import etcd_server
from tests.cluster.node_processes import NAME, NodeProcess, held_by_offset, running
from tests.support.seeds import run_seed, told_on_failure
from timestone_cluster.errors import ClusterError
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys
from timestone_cluster.moving import drain_node, undrain_node
from timestone_cluster.node.client import ClusterClient
from timestone_cluster.operations import ShardStatus, cluster_status, make_cluster, make_log

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

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
async def filled(folder: Path, **settings: Any) -> AsyncIterator[tuple[EtcdClient, list[NodeProcess]]]:
    """Yield three nodes in sync that hold five segments, of which four are sealed. settings: of the log."""
    with etcd_server(folder / "etcd") as server:
        async with EtcdClient([server.url]) as etcd:
            await make_cluster(etcd, KEYS, shards=1, replicas=3)
            await make_log(etcd, KEYS, LOG, {"segment_entries": 50, **settings})
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

            await asyncio.to_thread(damaged.scrub)
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


def remove_a_segment(folder: Path) -> None:
    for path in folder.glob("00000000000000000100.*"):
        path.unlink()


def cut_a_segment(folder: Path) -> None:
    path = folder / "00000000000000000050.index"
    path.write_bytes(path.read_bytes()[: 4096 + 32 * 20])


def cut_the_end(folder: Path) -> None:
    newest = max(folder.glob("*.index"))
    newest.write_bytes(newest.read_bytes()[: 4096 + 32 * 3])


def damage_a_compacted_record(folder: Path) -> None:
    for path in folder.glob("00000000000000000050*segment"):  # compacted or not yet
        data = bytearray(path.read_bytes())
        data[3] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "settings"),
    [
        (remove_a_segment, {}),
        (cut_a_segment, {}),
        (cut_the_end, {}),
        (damage_a_compacted_record, {"compact": True}),
    ],
)
@pytest.mark.timeout(300)
def test_replica_is_copied_again_when_it_cannot_be_repaired(
    tmp_path: Path, damage: Callable[[Path], None], settings: dict[str, Any]
) -> None:
    async def run() -> None:
        async with filled(tmp_path, **settings) as (etcd, nodes):
            shard = await until(etcd, lambda shard: shard.is_led and len(shard.in_sync) == 3)
            damaged = next(node for node in nodes if node.node_id() != shard.leader)
            damaged.kill()
            damage(damaged.folder / FOLDER)
            damaged.start()
            async with asyncio.timeout(NEVER_S):
                while damaged.output().count("\nready\n") < 2:
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(damaged.scrub)
            client = ClusterClient(etcd, KEYS)
            async with asyncio.timeout(NEVER_S):
                while "is beyond repair: it is copied from the leader" not in damaged.output():
                    await client.append_again(LOG, [b"more"], topics=["t/1"])
                    await asyncio.sleep(0.1)
            await until(
                etcd,
                lambda shard: (
                    shard.is_led and len(shard.in_sync) == len(shard.replicas) == 3 and not shard.adding
                ),
            )
            await leads(etcd, nodes, damaged)
            last = await client.append_again(LOG, [b"after it"], topics=["t/0"])
            await client.close()
            for node in nodes:
                node.stop()
                assert "Traceback" not in node.output(), node.output()
            contents = [seen(node.folder, newest_only=bool(settings)) for node in nodes]
            assert contents[0] == contents[1] == contents[2]
            assert contents[0][last][0] == b"after it"
            if not settings:
                assert [contents[0][n][0] for n in range(230)] == [b"record %d" % n for n in range(230)]

    asyncio.run(run())


def seen(folder: Path, *, newest_only: bool) -> dict[int, tuple[bytes, str | None]]:
    """Return what a reader of the folder sees, or of that the newest record of each topic: replicas compact for
    themselves."""
    with timestone.view(folder) as view:
        log = view.log(LOG)
        records = {one.offset: (bytes(one.payload), one.topic) for one in log}
    if not newest_only:
        return records
    newest = {topic: offset for offset, (_, topic) in records.items()}
    return {offset: records[offset] for offset in newest.values()}
