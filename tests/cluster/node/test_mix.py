"""The long mix: five nodes, three members of etcd and a bucket on machines of their own, all kinds of faults, one or
two at once, and clients of MQTT, appends and readers all the time.

make soak-cluster PARTS=mix TIMESTONE_CLUSTER_SECONDS=7200
"""

import os
import random
import statistics
import time
from pathlib import Path

import pytest

from tests.cluster.machine_cluster import LOG, machine_cluster
from tests.cluster.mix_checks import (
    HEAL_S,
    Figures,
    check_appends,
    check_bucket,
    check_output,
    check_publishes,
    recover,
    stopped,
)
from tests.cluster.mix_clients import Clients, working
from tests.cluster.nemeses import Nemesis
from tests.support.seeds import run_seed, told_on_failure

SECONDS = float(os.environ.get("TIMESTONE_CLUSTER_SECONDS", "40"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.crash,
    pytest.mark.timeout(1.5 * SECONDS + 600),
]


def test_cluster_keeps_its_promises_when_all_kinds_of_faults_follow_each_other(tmp_path: Path) -> None:
    seed = run_seed("cluster mix")
    print(f"mix: seed {seed}, {SECONDS:.0f} s", flush=True)
    with told_on_failure(TIMESTONE_SEED=seed), machine_cluster(tmp_path) as cluster:
        chance = random.Random(seed)
        clients, nemesis, figures = Clients(cluster, chance), Nemesis(cluster, chance), Figures(cluster)
        outages: list[float] = []
        with working(cluster, clients, seed):
            began_s, number, kinds = time.monotonic(), 0, list[str]()
            while time.monotonic() - began_s < SECONDS:
                number += 1
                if len(kinds) < 2:
                    kinds = [*kinds, *chance.sample(sorted(nemesis.faults), len(nemesis.faults))]
                chosen = [kinds.pop(0) for _ in range(chance.choice([1, 1, 2]))]
                _round(number, chosen, nemesis, clients, chance, time.monotonic() - began_s)
                if chosen == ["kill-leader"]:
                    outages += clients.pauses(nemesis.killed_leaders[-1], time.monotonic())
                figures.sample()
        logs = stopped(cluster)
        check_publishes(logs["mqtt"], clients)
        check_appends(logs[LOG], clients)
        check_bucket(cluster, logs)
        check_output(cluster)
        figures.check()
        print(f"mix: {number} rounds, {clients.counts()}")
        if outages:
            print(
                f"mix: a device without service when the leader is killed: p50 {statistics.median(outages):.1f} s, "
                f"max {max(outages):.1f} s of {len(outages)}"
            )
            assert max(outages) < 30


def _round(
    number: int, kinds: list[str], nemesis: Nemesis, clients: Clients, chance: random.Random, at_s: float
) -> None:
    """Let faults befall the cluster, and require that it recovers."""
    print(f"{at_s:.0f} s, round {number}:", end="", flush=True)
    for kind in kinds:
        print(f" {kind} ({nemesis.faults[kind]()})", end="", flush=True)
        time.sleep(chance.uniform(0, 3))
    time.sleep(chance.uniform(0, 8))
    began_s = time.monotonic()
    recover(nemesis, clients, HEAL_S)
    print(f"; healed in {time.monotonic() - began_s:.1f} s; {clients.counts()}", flush=True)
