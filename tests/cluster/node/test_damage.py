"""A node each of whose files is damaged or cut short while it is down, and clients that append all the time: it repairs
itself, is copied again, or refuses to start by naming the file and is replaced. Nothing acknowledged is lost.

TIMESTONE_CLUSTER_ROUNDS=20 for other places in the files. What a running node does with damage is in test_repair."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.log_cluster import KEYS, LOG, NEVER_S, LogCluster, log_cluster
from tests.cluster.node_processes import NodeProcess
from tests.cluster.small_disk import remove_all
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone_cluster.moving import remove_node

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.faults]

ROUNDS = rounds(1, "TIMESTONE_CLUSTER_ROUNDS")


def flip(data: bytes, chance: random.Random) -> bytes:
    """Return data with another bit in the used part of it."""
    bit = chance.randrange(8 * max(1, len(data.rstrip(b"\0"))))
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def cut(data: bytes, chance: random.Random) -> bytes:
    """Return a beginning of data."""
    return data[: chance.randrange(len(data))]


@pytest.mark.parametrize("pattern", [f"{LOG}-0/*", "catalog.db", "NODE"])
@pytest.mark.parametrize("change", [flip, cut])
@pytest.mark.timeout(200 * ROUNDS)
def test_nothing_is_lost_when_files_of_a_node_are_changed_by(
    change: Callable[[bytes, random.Random], bytes], pattern: str, tmp_path: Path
) -> None:
    seed = run_seed(f"cluster damage {change.__name__}")

    async def run(chance: random.Random) -> None:
        async with log_cluster(tmp_path, settings={"segment_entries": 50}) as cluster:
            await cluster.until_in_sync()
            async with cluster.writing():
                for _ in range(ROUNDS):
                    await cluster.until_more(200)  # in further segments
                    await damage(cluster, pattern, change, chance)
            await cluster.check()

    with told_on_failure(TIMESTONE_SEED=seed):
        asyncio.run(run(random.Random(seed)))


async def damage(
    cluster: LogCluster, pattern: str, change: Callable[[bytes, random.Random], bytes], chance: random.Random
) -> None:
    """Damage files of a node while it is down, and wait until three replicas are in sync again."""
    node = chance.choice(cluster.others(await cluster.leader()))
    old_id, said = node.node_id(), len(node.output())
    node.kill()
    paths = [path for path in sorted(node.folder.glob(pattern)) if path.stat().st_size]
    assert paths
    for path in paths:
        path.write_bytes(change(path.read_bytes(), chance))
    node.start()
    if not await ready(node, said):
        output = node.output()[said:]
        node.kill()
        named = [*map(str, paths), f"{node.folder} belongs to the cluster"]
        assert any(name in output for name in named) and "Traceback" not in output, output
        remove_all(node.folder)
        node.start()
        assert await ready(node, said + len(output))
    new_id = node.node_id()
    how = f"is another node than {old_id}" if new_id != old_id else "is the same node"
    if new_id != old_id:
        await cluster.until_registered(new_id)
        await remove_node(cluster.etcd, KEYS, old_id, timeout_s=NEVER_S, progress=lambda line: None)
    else:
        await asyncio.to_thread(node.scrub)
        await asyncio.sleep(6)  # the node asks every five seconds what the scrubber has found
    await cluster.until(lambda shard: shard.is_led and new_id in shard.in_sync and len(shard.in_sync) == 3)
    assert (await cluster.leader()) is not node, "others were in sync all the time"
    what = [word for word in ("is repaired", "is beyond repair", "stays out") if word in node.output()[said:]]
    print(f"{pattern} of {node.name}: it {how}; {what}; {cluster.counts({})}", flush=True)


async def ready(node: NodeProcess, said: int) -> bool:
    """Wait until a node has started, or has ended by itself."""
    assert node.process is not None
    async with asyncio.timeout(NEVER_S):
        while node.process.poll() is None:
            if "\nready\n" in node.output()[said:]:
                return True
            await asyncio.sleep(0.05)
    return False
