"""Many persistent sessions whose leader is killed at random: nothing missing, QoS 2 once, wills once, retained right.

make soak-cluster PARTS=sessions TIMESTONE_CLUSTER_SECONDS=900 TIMESTONE_CLUSTER_CLIENTS=1000
"""

import os
import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

import pytest

import timestone
from mqtt_front.codec.packets import Will
from tests.cluster.mqtt_cluster import finish, mqtt_cluster, roaming, until
from tests.support.mqtt_lasting import LastingPublisher, LastingSubscriber
from tests.support.seeds import run_seed, told_on_failure

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SECONDS = float(os.environ.get("TIMESTONE_CLUSTER_SECONDS", "10"))
CLIENTS = int(os.environ.get("TIMESTONE_CLUSTER_CLIENTS", "60"))
BACK_S = 60
"""For clients to be back before their wills are published: the machine may be slow."""


def test_many_sessions_move_with_their_leader_when_it_is_killed_at_random(tmp_path: Path) -> None:
    seed = run_seed("cluster sessions")
    with (
        told_on_failure(TIMESTONE_SEED=seed),
        mqtt_cluster(tmp_path, "--cluster-will-grace-s", str(BACK_S)) as cluster,
    ):
        chance = random.Random(seed)
        sessions = [
            LastingSubscriber(
                f"s{number}",
                level=4 + number % 2,
                qos=1 + number // 2 % 2,
                topic_filter=f"to/{number}",
                will=Will(f"will/{number}", b"0:%d" % number, 1),
            )
            for number in range(CLIENTS)
        ]
        for one in sessions:
            one.look_s = 2.0
        mine = [f"to/{number}" for number in range(CLIENTS)]
        kept = [f"kept/{number}" for number in range(50)]
        publishers = [
            LastingPublisher("p1", 5, 100_000_000, chance, mine),
            LastingPublisher("p2", 4, 200_000_000, chance, mine),
            LastingPublisher("p3", 5, 300_000_000, chance, kept, retain=True),
        ]
        outages_s: list[float] = []
        with roaming([*sessions], cluster.addresses, seed):
            until(lambda: all(one.subscribed for one in sessions))
            with roaming([*publishers], cluster.addresses, seed + 10_000):
                ends_s = time.monotonic() + SECONDS
                while time.monotonic() < ends_s or len(outages_s) < 2:
                    time.sleep(chance.uniform(0.5, 3))
                    leader = cluster.leader(in_sync=3)
                    leader.kill()
                    known, began_s = sum(len(one.acknowledged) for one in publishers), time.monotonic()
                    until(lambda: sum(len(one.acknowledged) for one in publishers) > known)  # noqa: B023
                    outages_s.append(time.monotonic() - began_s)
                    leader.start()
                finish(publishers)
            cluster.leader(in_sync=3)
            wanted = _promised(_by_topic(cluster.nodes[0].folder))
            until(
                lambda: all(
                    set(wanted[topic]) <= set(one.received) for topic, one in zip(mine, sessions, strict=True)
                )
            )
        # All have closed their connections without DISCONNECT.
        with cluster.client("reader", cluster.leader())[0] as reader:
            reader.subscribe("kept/#")
            retained = {one.topic: one.payload for one in reader.receive(len(kept)) if one.retain}
        until(lambda: len(_wills(_by_topic(cluster.nodes[0].folder))) == CLIENTS)
        cluster.stop()
        log, by_topic = cluster.records(), _by_topic(cluster.nodes[0].folder)
        promised = _promised(by_topic)
        acknowledged = {number for one in publishers for number in one.acknowledged}
        assert acknowledged <= {int(payload[2:]) for payload in log}, "an acknowledged publish is missing"
        assert [p for p, times in Counter(log).items() if p[:1] == b"2" and times > 1] == []
        for topic, one in zip(mine, sessions, strict=True):
            got = [payload for payload in one.received if payload[:1] != b"0"]
            assert list(dict.fromkeys(got)) == promised[topic], f"{one.client_id} is not complete in order"
            if one.qos == 2:
                assert [p for p, times in Counter(got).items() if p[:1] == b"2" and times > 1] == []
        assert _wills(by_topic) == {f"will/{number}": 1 for number in range(CLIENTS)}
        assert retained == {topic: by_topic[topic][-1] for topic in kept}
        print(
            f"sessions: {CLIENTS} of them, {len(outages_s)} leaders killed, {len(acknowledged)} acknowledged at QoS 1 "
            f"and 2; from a kill to the next acknowledgement {median(outages_s):.1f} s, at most {max(outages_s):.1f} s"
        )


def _by_topic(folder: Path) -> dict[str, list[bytes]]:
    """Return what a node has, by topic."""
    found: dict[str, list[bytes]] = {}
    with timestone.view(folder) as view:
        for record in view.log("mqtt"):
            found.setdefault(record.topic or "", []).append(bytes(record.payload))
    return found


def _promised(by_topic: dict[str, list[bytes]]) -> defaultdict[str, list[bytes]]:
    """Return what each session has to get, in order: all but QoS 0."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for topic, payloads in by_topic.items():
        found[topic] = list(dict.fromkeys(payload for payload in payloads if payload[:1] != b"0"))
    return found


def _wills(by_topic: dict[str, list[bytes]]) -> dict[str, int]:
    """Return how often each will was published."""
    return {topic: len(payloads) for topic, payloads in by_topic.items() if topic.startswith("will/")}
