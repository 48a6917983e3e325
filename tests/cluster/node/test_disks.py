"""Nodes on disks that fill up, fail to flush, or lose what was not flushed: three processes, each on a file system in
memory, with clients that append."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.etcd_server import EtcdServer
from tests.cluster.log_cluster import LOG, LogCluster, log_cluster
from tests.cluster.node_processes import NodeProcess, boot, made_with, wait_until_exits
from tests.support.seeds import rounds, run_seed, told_on_failure

try:
    from tests.support import forgetful_disk
    from tests.support.forgetful_disk import Fault
except (ImportError, OSError) as error:
    pytest.skip(f"no file system in Python here: {error}", allow_module_level=True)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.skipif(bool(forgetful_disk.reason_to_skip()), reason=forgetful_disk.reason_to_skip()),
]

ROUNDS = rounds(2, "TIMESTONE_CRASH_ROUNDS")


class Disks:
    """The disks of three nodes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mounts = {name: ExitStack() for name in "abc"}

    def place(self, name: str) -> Path:
        """Return where the disk of a node is mounted."""
        return self._folder / name

    def mount(self, *names: str) -> None:
        """Mount disks, with what is on their platters."""
        for name in names:
            platters = self._folder / f"{name}.platters"
            for path in (platters, self.place(name)):
                path.mkdir(exist_ok=True)
            self._mounts[name].enter_context(forgetful_disk.mounted(platters, self.place(name)))

    def unmount(self, *names: str) -> None:
        """End disks, as a kill of them would."""
        for name in names:
            self._mounts[name].close()


@asynccontextmanager
async def appending(
    folder: Path,
    ack: str = "synced",
    made: Callable[[EtcdServer, Path, str], NodeProcess] = NodeProcess,
) -> AsyncIterator[tuple[LogCluster, Disks]]:
    """Run three nodes on disks of their own, to which two clients append until the block ends; then require that
    nothing is lost."""
    disks = Disks(folder)
    try:
        disks.mount(*"abc")
        async with log_cluster(folder, ack=ack, made=made) as cluster:
            await cluster.until_in_sync()
            async with cluster.writing():
                await cluster.until_more()
                yield cluster, disks
                await cluster.until_more()
            await cluster.check()
    finally:
        disks.unmount(*"abc")


@pytest.mark.parametrize("choose", [LogCluster.follower, LogCluster.leader], ids=["follower", "leader"])
@pytest.mark.parametrize("fault", [Fault.FULL, Fault.FLUSHES])
def test_appends_continue_when_a_disk_breaks_and_all_are_in_sync_when_it_works_again(
    tmp_path: Path, choose: Callable[[LogCluster], Awaitable[NodeProcess]], fault: Fault
) -> None:
    async def run() -> None:
        async with appending(tmp_path) as (cluster, disks):
            node = await choose(cluster)
            forgetful_disk.set_fault(disks.place(node.name), fault)
            shard = await cluster.until(lambda shard: node.node_id() not in shard.in_sync and shard.is_led)
            assert shard.leader != node.node_id()
            await cluster.until_more()
            forgetful_disk.set_fault(disks.place(node.name), Fault.NONE)
            if "the node stops" in node.output():  # here a full disk takes no mapped pages, either
                wait_until_exits(node)
                node.start()  # as a service manager does
            await cluster.until_in_sync()

    asyncio.run(run())


def test_nothing_acknowledged_is_lost_when_the_power_of_all_nodes_fails(tmp_path: Path) -> None:
    seed = run_seed("cluster power")

    async def run() -> None:
        chance = random.Random(seed)
        async with appending(tmp_path) as (cluster, disks):
            for _ in range(ROUNDS):
                names = chance.sample("abc", chance.choice((1, 2, 3, 3)))
                for node in cluster.nodes:
                    if node.name in names:
                        forgetful_disk.cut_power(disks.place(node.name), chance.getrandbits(32))
                for node in cluster.nodes:
                    if node.name in names:
                        node.kill()
                disks.unmount(*names)
                await asyncio.sleep(chance.uniform(0, 1))
                disks.mount(*names)
                for node in cluster.nodes:
                    node.start()
                await cluster.until_in_sync()
                await cluster.until_more()

    with told_on_failure(TIMESTONE_SEED=seed):
        asyncio.run(run())


@pytest.mark.timeout(400)
@pytest.mark.skipif(os.geteuid() != 0, reason="a boot id of its own for each node needs root")
def test_only_what_no_disk_has_is_given_up_when_power_fails_at_level_written(tmp_path: Path) -> None:
    seed = run_seed("written power")

    async def run() -> None:
        chance = random.Random(seed)
        boots = {name: tmp_path / f"{name}.boot" for name in "abc"}
        for path in boots.values():
            boot(path)
        async with appending(tmp_path, "written", made_with(boots)) as (cluster, disks):

            async def lose_power(names: Sequence[str]) -> None:
                nodes = [node for node in cluster.nodes if node.name in names]
                for node in nodes:
                    forgetful_disk.cut_power(disks.place(node.name), chance.getrandbits(32))
                for node in nodes:
                    node.kill()
                disks.unmount(*names)
                disks.mount(*names)
                for node in nodes:
                    boot(boots[node.name])
                    node.start()

            for _ in range(ROUNDS):
                await lose_power(chance.choice("abc"))
                await cluster.until_in_sync()
                await cluster.until_more()
            before = dict(cluster.acknowledged)
            registered = await cluster.registrations()
            await lose_power("abc")
            await cluster.until_registered_again(registered, 3)
            await cluster.until(lambda shard: not shard.is_led)
            # Not earlier: answers of the old leader may have been on their way.
            before |= cluster.acknowledged
            assert "new ones begin at" in await cluster.command("recover", "--shard", "0", "--yes")
            shard = await cluster.until_in_sync()
            lost = shard.unclean[-1]
            assert lost.log == LOG
            await cluster.until_more()
            given_up = {payload for payload, offset in before.items() if offset >= lost.offset}
            print(f"{len(before)} acknowledged, {len(given_up)} given up: {lost}")
            assert all(before[payload] < lost.resumes for payload in given_up)
            new = {payload: at for payload, at in cluster.acknowledged.items() if payload not in before}
            assert min(new.values()) >= lost.resumes
            cluster.unknown |= given_up
            for payload in given_up:
                del cluster.acknowledged[payload]

    with told_on_failure(TIMESTONE_SEED=seed):
        asyncio.run(run())
