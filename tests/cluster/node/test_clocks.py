"""Real nodes whose wall clocks are an hour off, and jump each second: nothing is lost, times of a log never decrease,
and no election follows from it."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.cluster.etcd_server import EtcdServer
from tests.cluster.log_cluster import log_cluster
from tests.cluster.node_processes import NodeProcess
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.wrong_clock import WrongClock, clock_library

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

HOUR_S = 3600
JUMPS = rounds(6, "TIMESTONE_CLUSTER_ROUNDS")


@pytest.mark.timeout(120 + 4 * JUMPS)
def test_nothing_is_lost_and_no_node_is_elected_by_it_when_clocks_are_wrong_and_jump(tmp_path: Path) -> None:
    seed = run_seed("cluster clocks")
    library = clock_library(tmp_path)
    if library is None:
        pytest.skip("no C compiler here")
    clocks = {name: WrongClock(tmp_path / f"{name}.clock", library) for name in "abc"}

    def made(etcd: EtcdServer, folder: Path, name: str) -> NodeProcess:
        return NodeProcess(etcd, folder, name, prefix=clocks[name].prefix)

    async def run(chance: random.Random) -> None:
        async with log_cluster(tmp_path, made=made) as cluster:
            before = await cluster.until_in_sync()
            async with cluster.writing():
                await cluster.until_more(1)  # the first record is of the right time
                one = chance.choice(cluster.nodes)
                for number in range(JUMPS):  # one of them, then all
                    for node in [one] if number < JUMPS // 2 else cluster.nodes:
                        clocks[node.name].set(chance.choice([-HOUR_S, 0, HOUR_S]))
                    await asyncio.sleep(1)
                after = await cluster.shard()
                assert (after.generation, len(after.in_sync)) == (before.generation, 3)
                assert not cluster.unknown
                # The next leader's clock is two hours behind that of the one before.
                leader = await cluster.leader()
                for name, clock in clocks.items():
                    clock.set(HOUR_S if name == leader.name else -HOUR_S)
                await cluster.until_more(10)
                leader.kill()
                await cluster.until_another_leads(leader)
                leader.start()
                await cluster.until_in_sync()
            found = await cluster.check()
            assert found[-1].timestamp_us - found[0].timestamp_us > HOUR_S * 1_000_000 / 2, (
                "no clock was wrong"
            )

    with told_on_failure(TIMESTONE_SEED=seed):
        asyncio.run(run(random.Random(seed)))
