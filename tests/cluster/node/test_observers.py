"""MQTT on five nodes with three replicas of each of eight shards: every node serves, and follows what it has no replica
of. Real processes and a real etcd."""

import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

import pytest

from tests.cluster.mqtt_cluster import MqttCluster, finish, last_publishers, mqtt_cluster, roaming, until
from tests.cluster.mqtt_shards import check_sessions
from tests.support.mqtt_lasting import LastingDevice, LastingPublisher, LastingSubscriber
from tests.support.seeds import run_seed, told_on_failure
from timestone_cluster.division import Division
from timestone_cluster.errors import ClusterError

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SHARDS = 8
DIVISION = Division(SHARDS)
MOVES = 20
"""Messages that a session gets at each node before it moves on."""


def topic_of(shard: int) -> str:
    """Return a topic of a shard."""
    return next(one for number in range(1000) if DIVISION.of_topic(one := f"k/{number}") == shard)


TOPICS = tuple(map(topic_of, range(SHARDS)))


@contextmanager
def three_replicas_each(cluster: MqttCluster) -> Iterator[None]:
    """Require that in this block each shard has three replicas in etcd, and no other node is in sync or leads."""
    wrong, ended = list[object](), threading.Event()

    def watch() -> None:
        while not ended.wait(0.3):
            try:
                shards = cluster.status().shards
            except ClusterError:
                continue
            for shard in shards:
                known = {*shard.replicas, *shard.adding}
                if (
                    len(shard.replicas) != 3
                    or not {*shard.in_sync, shard.leader or shard.replicas[0]} <= known
                ):
                    wrong.append(shard)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
    assert wrong == []


def under_load(
    cluster: MqttCluster,
    seed: int,
    disturb: Callable[[LastingSubscriber], None],
    devices: Sequence[LastingDevice] = (),
) -> None:
    """Have sessions publish and receive at all nodes while something happens, and check what is in the logs then.
    disturb: gets one more session, which it connects where it likes. devices: publish as well."""
    chance = random.Random(seed)
    publishers = [
        *(LastingPublisher(f"p{level}", level, level * 100_000_000, chance, TOPICS) for level in (4, 5)),
        *devices,
    ]
    subscribers = [LastingSubscriber(f"s{level}", level, level - 3, "k/#") for level in (4, 5)]
    mover = LastingSubscriber("mover", 5, 2, "k/#")
    while not mover.subscribed:
        mover.run(chance.choice(cluster.addresses), lambda: mover.subscribed)
    with roaming([*subscribers], cluster.addresses, seed), three_replicas_each(cluster):
        until(lambda: all(one.subscribed for one in subscribers))
        with roaming([*publishers], cluster.addresses, seed + 100):
            disturb(mover)
            finish(publishers)
        ends = last_publishers(TOPICS, chance)
        last = {b"1:%d" % (10**9 + number) for number in range(len(TOPICS))}
        subscribers.append(mover)
        with roaming([*ends, mover], cluster.addresses, seed + 200):
            until(lambda: all(end.idle for end in ends))
            until(lambda: all(last <= set(one.received) for one in subscribers))
    cluster.stop()
    check_sessions([cluster.records(shard) for shard in range(SHARDS)], publishers, subscribers, len(TOPICS))
    print(f"observers: {sum(len(p.acknowledged) for p in publishers)} acknowledged")


def test_session_moves_over_five_nodes_and_nothing_is_lost_when_leaders_are_killed(tmp_path: Path) -> None:
    seed = run_seed("observers")

    def disturb(mover: LastingSubscriber) -> None:
        for number, node in enumerate(list(cluster.nodes)):
            wanted = len(mover.received) + MOVES
            until(lambda: _received(cluster, mover, node, wanted))  # noqa: B023
            if number % 2 == 0:
                leader = cluster.leader(number)
                leader.kill()
                cluster.all_led(other_than=leader)
                leader.start()

    with told_on_failure(TIMESTONE_SEED=seed), mqtt_cluster(tmp_path, shards=SHARDS, count=5) as cluster:
        under_load(cluster, seed, disturb)


def _received(cluster: MqttCluster, session: LastingSubscriber, node: object, wanted: int) -> bool:
    """Connect a session at a node until it has received so many; return False if the connection ends before."""
    session.run(cluster.address_of(node), lambda: len(session.received) >= wanted)  # type: ignore[arg-type]
    return len(session.received) >= wanted


@pytest.mark.timeout(300)
def test_nothing_is_lost_when_nodes_join_are_drained_removed_lost_and_replaced_under_load(
    tmp_path: Path,
) -> None:
    seed = run_seed("observers join")
    devices = [
        LastingDevice(f"d{number}", 4 + number % 2, 600_000_000 + number * 10_000_000, TOPICS)
        for number in range(20)
    ]
    began_s: dict[str, float] = {}

    def disturb(mover: LastingSubscriber) -> None:
        began_s["before"] = time.monotonic()
        until(lambda: all(len(one.waits) > 10 for one in devices))
        began_s["a node joins"] = time.monotonic()
        joined = cluster.join("e")
        until(lambda: any(joined.node_id() in shard.replicas for shard in cluster.status().shards))
        until(lambda: not any(shard.adding for shard in cluster.status().shards))
        until(lambda: _received(cluster, mover, joined, len(mover.received) + 1))
        began_s["one is drained"] = time.monotonic()
        cluster.drain(cluster.nodes[1])
        began_s["one is removed"] = time.monotonic()
        cluster.leave(cluster.nodes[0])
        until(lambda: not any(shard.adding for shard in cluster.status().shards))
        began_s["one is lost and replaced"] = time.monotonic()
        cluster.configure(replace_after_ms=4000)
        lost = cluster.nodes[0].node_id()
        cluster.lose(cluster.nodes[0])
        until(lambda: not any(lost in (*one.replicas, *one.adding) for one in cluster.status().shards))
        until(lambda: not any(shard.adding for shard in cluster.status().shards))
        began_s["over"] = time.monotonic()

    with told_on_failure(TIMESTONE_SEED=seed), mqtt_cluster(tmp_path, shards=SHARDS, count=4) as cluster:
        cluster.configure(replace_after_ms=60_000, leader_pause_ms=300)
        under_load(cluster, seed, disturb, devices)
    p99_s = {name: _p99_s(devices, from_s, to_s) for (name, from_s), (_, to_s) in pairwise(began_s.items())}
    ratios = ", ".join(f"{name} {one / p99_s['before']:.1f}" for name, one in p99_s.items())
    print(f"observers: 99th percentile of PUBACK before {1000 * p99_s['before']:.0f} ms; {ratios} of it")


def _p99_s(devices: Sequence[LastingDevice], from_s: float, to_s: float) -> float:
    """Return the 99th percentile of how long messages that were sent between two points in time have waited; NaN when
    there are not two."""
    waits_s = [until_s - at_s for one in devices for at_s, until_s in one.waits if from_s <= at_s < to_s]
    return quantiles(waits_s, n=100)[-1] if len(waits_s) > 1 else math.nan
