"""A cluster at ack level `written`, whose nodes are killed: the page cache has what no disk has yet."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.cluster.log_cluster import KEYS, LogCluster, log_cluster
from tests.cluster.node_processes import boot, made_with
from timestone.format.names import DOUBT_NAME
from timestone_cluster.shard_record import ShardRecord, node_of

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]


async def members(cluster: LogCluster) -> frozenset[str]:
    """Return the in-sync members, once all three nodes are."""
    await cluster.until_in_sync()
    pair = (await cluster.etcd.read(KEYS.shard(0))).pairs[KEYS.shard(0)]
    return ShardRecord.decode(pair.value).isr


def test_nothing_is_lost_and_members_stay_what_they_are_when_leaders_are_killed(tmp_path: Path) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path, ack="written") as cluster:
            before = await members(cluster)
            assert all("@" in member for member in before)
            assert "ack written" in await cluster.command("status")
            async with cluster.writing(3):
                for _ in range(2):
                    await cluster.until_more(50)
                    leader = await cluster.leader()
                    leader.kill()
                    await cluster.until_another_leads(leader)
                    await cluster.until_more(50)
                    leader.start()
                    assert await members(cluster) == before
                for node in cluster.nodes:  # all at once: each has all that it has acknowledged
                    node.kill()
                for node in cluster.nodes:
                    node.start()
                assert await members(cluster) == before
                await cluster.until_more(50)
            await cluster.check()

    asyncio.run(run())


@pytest.mark.skipif(os.geteuid() != 0, reason="a boot id of its own for each node needs root")
def test_node_is_another_member_when_its_machine_was_booted_or_a_flush_failed(tmp_path: Path) -> None:
    async def run() -> None:
        boots = {name: tmp_path / f"{name}.boot" for name in "abc"}
        for path in boots.values():
            boot(path)
        async with log_cluster(tmp_path, ack="written", made=made_with(boots)) as cluster:
            before = await members(cluster)
            follower = await cluster.follower()

            async def started_again() -> frozenset[str]:
                known = next(one for one in before if node_of(one) == follower.node_id())
                follower.start()
                async with asyncio.timeout(60):
                    while known in (found := await members(cluster)) or len(found) < 3:
                        await asyncio.sleep(0.1)
                assert before - found == {known}
                return found

            follower.kill()
            boot(boots[follower.name])
            before = await started_again()
            follower.kill()
            (follower.folder / "telemetry-0" / DOUBT_NAME).touch()
            before = await started_again()

    asyncio.run(run())
