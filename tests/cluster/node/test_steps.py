"""Real nodes that kill themselves at each step of the protocol, while clients append: nothing acknowledged is lost.

TIMESTONE_CLUSTER_ROUNDS=20 repeats each step, at a later call of it each time."""

import asyncio
import functools
import random
import signal
from pathlib import Path

import pytest

import timestone
from tests.cluster import dying_node
from tests.cluster.log_cluster import LOG, LogCluster, log_cluster
from tests.cluster.node_processes import NodeProcess, held
from tests.support.seeds import rounds, run_seed, told_on_failure

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.crash]

ROUNDS = rounds(1, "TIMESTONE_CLUSTER_ROUNDS")
LIMIT_S = 60.0
GROUPS = {
    "appends": dying_node.APPEND_STEPS,
    "followers": dying_node.FOLLOWER_STEPS,
    "elections": dying_node.ELECTION_STEPS,
    "divergence": dying_node.DIVERGENCE_STEPS,
    "members": dying_node.MEMBER_STEPS,
}


class Dying:
    """A cluster whose nodes die at the step in a file."""

    def __init__(self, cluster: LogCluster, file: Path) -> None:
        self.cluster, self._file = cluster, file
        self._number = 0

    def arm(self, step: str, count: int = 1) -> None:
        """Have the first node die that reaches a step, when it does so for the n-th time."""
        self._number += 1
        new = self._file.with_suffix(".new")
        new.write_text(f"{step}:{self._number}:{count}")
        new.rename(self._file)

    async def died(self) -> NodeProcess:
        """Wait until a node has died at the step."""
        taken = self._file.with_suffix(f".{self._number}")
        async with asyncio.timeout(LIMIT_S):
            while not taken.exists():
                await asyncio.sleep(0.02)
            while True:
                for node in self.cluster.nodes:
                    if node.process is not None and node.process.poll() == -signal.SIGKILL:
                        node.kill()  # so that it may be started again
                        return node
                await asyncio.sleep(0.02)

    async def whole(self) -> NodeProcess:
        """Start all nodes that do not run, wait until all are in sync, and return the leader."""
        for node in self.cluster.nodes:
            node.signal(signal.SIGCONT)
            node.start()
        await self.cluster.until_in_sync()
        return await self.cluster.leader()


async def bring_about(dying: Dying, step: str, count: int) -> None:
    """Have a step come, in a cluster that is whole or soon will be."""
    cluster = dying.cluster
    if step in dying_node.APPEND_STEPS + dying_node.FOLLOWER_STEPS:
        dying.arm(step, count)
    elif step in dying_node.ELECTION_STEPS:
        leader = await dying.whole()
        dying.arm(step)
        leader.kill()
    elif step in dying_node.DIVERGENCE_STEPS:
        former = await have_a_leader_die_with_records_of_its_own(dying)
        dying.arm(step)
        former.start()
    elif step.endswith("dismiss"):
        await dying.whole()
        dying.arm(step)
        (await cluster.follower()).signal(signal.SIGSTOP)
    elif step.endswith(("admit", "it registers")):
        await dying.whole()
        node = await cluster.follower()
        node.kill()
        await cluster.until_in_sync(2)
        dying.arm(step)
        node.start()
    elif step.endswith("renew"):
        await dying.whole()
        dying.arm(step)
        cluster.server.end_leases()
    else:
        leader = await dying.whole()
        dying.arm(step)
        leader.signal(signal.SIGTERM)  # which hands over


async def have_a_leader_die_with_records_of_its_own(dying: Dying) -> NodeProcess:
    """Return a dead leader that has written what it has sent to no other, once another one leads. It is tried again
    where the step came between the messages to the two others."""
    while True:
        await dying.whole()
        await dying.cluster.until_more(5)  # else there is nothing that the two have in common
        dying.arm("before leader records")
        former = await dying.died()
        await dying.cluster.until_another_leads(former)
        leader = await dying.cluster.leader()
        mine, others = ({one.payload for one in held(node.folder / f"{LOG}-0")} for node in (former, leader))
        if mine - others:
            return former


async def have_followers_die_before_they_know_what_is_committed(dying: Dying) -> None:
    """KIP-101, scene 1: one that cut what it does not know to be committed would lose it, as the leader dies next."""
    cluster = dying.cluster
    leader = await dying.whole()
    dying.arm("before follower show")
    first = await dying.died()
    await cluster.until(lambda shard: first.node_id() not in shard.in_sync)
    await cluster.until_more(5)
    dying.arm("before follower show")
    second = await dying.died()
    with timestone.view(second.folder) as view:
        shown = view.log(LOG).end_offset
    async with asyncio.timeout(LIMIT_S):
        while max(cluster.acknowledged.values()) < shown:
            await asyncio.sleep(0.02)
    leader.kill()
    print(f"{second.name} knew {shown} records of {max(cluster.acknowledged.values()) + 1} to be committed")
    first.start()
    second.start()
    await cluster.until_another_leads(leader)
    await cluster.until_more(5)


async def have_leaders_die_with_records_of_their_own(dying: Dying) -> None:
    """KIP-101, scene 2: the tails of two leaders, of two generations, are at offsets where a third one has others."""
    cluster = dying.cluster
    await dying.whole()
    await cluster.until_more(5)
    former: list[NodeProcess] = []
    for _ in range(2):
        dying.arm("before leader records")  # it has written what it has sent to no other
        former.append(await dying.died())
        died = former[-1].node_id()
        await cluster.until(lambda shard: shard.is_led and shard.leader != died)  # noqa: B023
    assert former[0] is not former[1]
    for node in former:  # the third one leads, and commits nothing before another one has joined it
        cuts = node.output().count("is cut to offset")
        node.start()
        await cluster.until_more(5)
        async with asyncio.timeout(LIMIT_S):
            while node.output().count("is cut to offset") == cuts:
                await asyncio.sleep(0.02)


SCENES = {
    "divergence": (
        have_followers_die_before_they_know_what_is_committed,
        have_leaders_die_with_records_of_their_own,
    )
}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.timeout(240 * ROUNDS)
def test_nothing_acknowledged_is_lost_when_a_node_dies_at_a_step_of(group: str, tmp_path: Path) -> None:
    seed = run_seed(f"steps {group}")

    async def run(chance: random.Random) -> None:
        file = tmp_path / "step"
        made = functools.partial(NodeProcess, program=("tests.cluster.dying_node", str(file)))
        async with log_cluster(tmp_path, made=made) as cluster:
            await cluster.until_in_sync()
            dying = Dying(cluster, file)
            async with cluster.writing():
                for number in range(ROUNDS):
                    for step in GROUPS[group]:
                        began_s = asyncio.get_running_loop().time()
                        await bring_about(dying, step, 1 if not number else chance.randrange(1, 200))
                        node = await dying.died()
                        for one in cluster.nodes:
                            one.signal(signal.SIGCONT)
                            one.start()
                        await cluster.until_more(5)
                        took_s = asyncio.get_running_loop().time() - began_s
                        print(f"{node.name} died {step}: {took_s:.1f} s, {cluster.counts({})}", flush=True)
                    for scene in SCENES.get(group, ()):
                        began_s = asyncio.get_running_loop().time()
                        await scene(dying)
                        await dying.whole()
                        took_s = asyncio.get_running_loop().time() - began_s
                        print(f"{scene.__name__}: {took_s:.1f} s, {cluster.counts({})}", flush=True)
            await cluster.check()
            for node in cluster.nodes:
                assert "Traceback" not in node.output() and "which were shown" not in node.output()

    with told_on_failure(TIMESTONE_SEED=seed):
        asyncio.run(run(random.Random(seed)))


def test_steps_are_many_and_each_has_one_name() -> None:
    assert len(set(dying_node.STEPS)) == len(dying_node.STEPS) >= 25
