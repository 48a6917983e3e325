"""Clusters of four shards that serve MQTT: clients and topics by shard, faults, and what sessions are promised."""

import random
import signal
import time
from collections import Counter

from mqtt_front.codec.properties import Properties
from tests.cluster.mqtt_cluster import MqttCluster
from tests.support.mqtt_lasting import LastingPublisher, LastingSubscriber
from timestone_cluster.division import Division

SHARDS = 4
LASTING = Properties(session_expiry_interval=0xFFFFFFFF)
DIVISION = Division(SHARDS)
FAULTS = ("kill", "suspend", "stop", "drain")


def named(shard: int, prefix: str = "device") -> str:
    """Return a client id, or a topic, of a shard."""
    return next(one for number in range(1000) if DIVISION.of_client(one := f"{prefix}-{number}") == shard)


TOPICS = tuple(named(shard, f"k/{number}") for shard in range(SHARDS) for number in range(2))


def break_leader(cluster: MqttCluster, kind: str, chance: random.Random) -> None:
    """Break the leader of a shard, and wait until another one leads and all replicas are in sync again."""
    leader = cluster.leader(chance.randrange(SHARDS))
    if kind == "drain":
        return cluster.drain(leader)
    match kind:
        case "kill":
            leader.kill()
        case "suspend":
            leader.signal(signal.SIGSTOP)
        case "stop":
            leader.stop()
    cluster.all_led(other_than=leader)
    time.sleep(chance.uniform(0, 1))
    if kind == "suspend":
        leader.signal(signal.SIGCONT)
    else:
        leader.start()
    cluster.all_led(in_sync=3)
    return None


def check_sessions(
    logs: list[list[bytes]],
    publishers: list[LastingPublisher],
    subscribers: list[LastingSubscriber],
    topics: int = len(TOPICS),
) -> None:
    """Require what is promised of what the logs of the shards hold. topics: to which each publisher has published in
    turn."""
    acknowledged = {number for one in publishers for number in one.acknowledged}
    stored = Counter(payload for log in logs for payload in log)
    assert acknowledged, "the test did nothing"
    missing = acknowledged - {int(payload[2:]) for payload in stored}
    assert not missing, f"acknowledged publishes are missing: {sorted(missing)[:5]}"
    twice = [payload for payload, times in stored.items() if payload[:1] == b"2" and times > 1]
    assert twice == [], f"QoS 2 twice in a log: {twice[:5]}"
    for log in logs:
        for publisher in publishers:
            for topic in range(topics):
                mine = [
                    int(payload[2:])
                    for payload in log
                    if payload[:1] != b"0"
                    and int(payload[2:]) // 10_000_000 == publisher.first // 10_000_000
                    and int(payload[2:]) % topics == topic
                ]
                assert list(dict.fromkeys(mine)) == sorted(set(mine)), "the order of a topic is not kept"
        promised = list(dict.fromkeys(payload for payload in log if payload[:1] != b"0"))
        wanted = set(promised)
        for subscriber in subscribers:
            received = list(dict.fromkeys(one for one in subscriber.received if one in wanted))
            assert received == promised, f"{subscriber.client_id} is not complete in order"
    for subscriber in subscribers:
        if subscriber.qos == 2:
            again = [p for p, times in Counter(subscriber.received).items() if p[:1] == b"2" and times > 1]
            assert again == [], f"QoS 2 was delivered twice: {again[:5]}"
