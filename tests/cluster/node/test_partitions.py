"""Partitions of five nodes and three members of etcd on machines of their own: nothing acknowledged is lost, and
writes continue where the design allows it.

make soak-cluster PARTS=partitions TIMESTONE_CLUSTER_ROUNDS=20 TIMESTONE_CLUSTER_SECONDS=1200
"""

import os
import random
import time
from pathlib import Path

import pytest

from tests.cluster.machine_cluster import ETCDS, KEYS, LOG, MachineCluster, machine_cluster
from tests.cluster.mix_checks import (
    HEAL_S,
    check_appends,
    check_bucket,
    check_output,
    check_publishes,
    recover,
    stopped,
)
from tests.cluster.mix_clients import Clients, longest_pause, working
from tests.cluster.nemeses import PARTITIONS, Nemesis
from tests.support.seeds import run_seed, told_on_failure
from timestone_cluster.operations import ShardStatus, configure_cluster

SECONDS = float(os.environ.get("TIMESTONE_CLUSTER_SECONDS", "0"))
ROUNDS = int(os.environ.get("TIMESTONE_CLUSTER_ROUNDS", "3"))
HOLD_S = max(SECONDS / ROUNDS, 12.0)
"""How long a partition lasts."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.crash,
    pytest.mark.timeout(3 * ROUNDS * HOLD_S + 900),
]

PAUSES_S = {"same": 8.0, "dismissal": 10.0, "election": 15.0}
"""Longest pause of an append in the three cases of `expected`: the design has none, 2 s and 5 s, on a machine that does
nothing else."""


def test_writes_continue_and_nothing_is_lost_when_the_network_is_cut_in_all_ways(tmp_path: Path) -> None:
    seed = run_seed("cluster partitions")
    print(f"partitions: seed {seed}, {ROUNDS} rounds of {HOLD_S:.0f} s", flush=True)
    with told_on_failure(TIMESTONE_SEED=seed), machine_cluster(tmp_path) as cluster:
        chance = random.Random(seed)
        # A leader that begins to hand over as it loses etcd cannot finish that, and another one is elected.
        cluster.ask(lambda etcd: configure_cluster(etcd, KEYS, {"leader_pause_ms": 3_600_000}))
        clients, nemesis = Clients(cluster, chance), Nemesis(cluster, chance)
        with working(cluster, clients, seed):
            # Taken from the end: these also where there are few rounds.
            kinds = ["leader-followers-only", "leader-etcd-only"]
            for number in range(1, ROUNDS + 1):
                kinds = kinds or chance.sample(PARTITIONS, len(PARTITIONS))
                _round(number, kinds.pop(), cluster, nemesis, clients)
        logs = stopped(cluster)
        check_publishes(logs["mqtt"], clients)
        check_appends(logs[LOG], clients)
        check_bucket(cluster, logs)
        check_output(cluster)
        print(f"partitions: {ROUNDS} rounds, {clients.counts()}")


def _round(number: int, kind: str, cluster: MachineCluster, nemesis: Nemesis, clients: Clients) -> None:
    shard = cluster.shard()
    began_s = time.monotonic()
    words = nemesis.faults[kind]()
    case = expected(cluster, shard)
    time.sleep(HOLD_S)
    ended_s = time.monotonic()
    appends = max(longest_pause(one.acknowledged_s, began_s, ended_s) for one in clients.appenders)
    devices = clients.pauses(began_s, ended_s)
    line = f"round {number}, {kind} ({words}), led by {cluster.name_of(shard.leader)} with "
    line += (
        f"{' '.join(filter(None, map(cluster.name_of, shard.in_sync)))}: {case}, longest pause of an append "
    )
    line += f"{appends:.1f} s, of devices {' '.join(f'{pause:.1f}' for pause in sorted(devices))} s"
    print(line, flush=True)
    if case != "stop":
        assert appends <= PAUSES_S[case], line
        # A device finds a door by chance, and waits a while at each that does not reach the leader.
        assert min(devices) <= PAUSES_S[case] + 10, line
    recover(nemesis, clients, HEAL_S)
    print(f"healed in {time.monotonic() - ended_s:.1f} s; {clients.counts()}", flush=True)


def expected(cluster: MachineCluster, shard: ShardStatus) -> str:
    """Return what the design promises of a shard whose replicas were all in sync: its leader stays with the same
    in-sync set or with a smaller one, another one is elected, or all stops until the network is whole."""
    reach = cluster.network.reach
    leader = cluster.name_of(shard.leader)
    assert leader is not None
    members = {name for one in shard.in_sync if (name := cluster.name_of(one)) is not None}
    quorum = [one for one in ETCDS if sum(reach(one, other) for other in ETCDS) >= 2]
    with_etcd = {name for name in members if any(reach(name, one) for one in quorum)}
    followers = {name for name in members - {leader} if reach(leader, name)}
    if followers == members - {leader}:
        return "same"
    if leader in with_etcd and followers:
        return "dismissal"
    candidates = with_etcd - {leader}
    if any(reach(one, other) for one in candidates for other in candidates - {one}):
        return "election"
    return "stop"
