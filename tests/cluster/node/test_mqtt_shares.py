"""Shared subscriptions and queues on a cluster of several shards: workers at all nodes, which are killed, suspended and
stopped.

make soak-cluster PARTS=mqtt-shares TIMESTONE_CLUSTER_SECONDS=900
"""

import os
import random
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mqtt_front.codec.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Request, Unsuback, Unsubscribe
from mqtt_front.codec.properties import Properties
from tests.cluster.mqtt_cluster import (
    MqttCluster,
    break_in_turn,
    finish,
    last_publishers,
    mqtt_cluster,
    roaming,
    until,
)
from tests.cluster.mqtt_shards import FAULTS, LASTING, SHARDS, TOPICS, break_leader, named
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_lasting import LastingPublisher, LastingSubscriber
from tests.support.seeds import run_seed, told_on_failure

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SECONDS = float(os.environ.get("TIMESTONE_CLUSTER_SECONDS", "20"))
QUEUE, SHARE = "$queue/work/k/#", "$share/g/k/+"
ONCE, SHARE_ONCE = "$queue/once/k/#", "$share/once/k/+"


def workers(topic_filter: str, count: int, qos: int = 1) -> list[LastingSubscriber]:
    """Return members of a shared subscription of both versions, with homes of all shards."""
    return [
        LastingSubscriber(
            named(number % SHARDS, f"w{number}-{qos}-{topic_filter[1:3]}"), 4 + number % 2, qos, topic_filter
        )
        for number in range(count)
    ]


def publish_all(cluster: MqttCluster, count: int, *, burst: int) -> set[bytes]:
    """Publish numbers at QoS 1 to topics of all shards, at all nodes, and return what is acknowledged."""
    sent = set()
    for door in cluster.nodes:
        with cluster.client(named(1, f"source-{door.name}"), door)[0] as source:
            for first in range(0, count, burst):
                numbers = range(first, min(first + burst, count))
                payloads = {number: f"{door.name} {number}".encode() for number in numbers}
                source.send(
                    *[
                        Publish(TOPICS[number % len(TOPICS)], payloads[number], 1, packet_id=number + 1)
                        for number in numbers
                    ]
                )
                for _ in numbers:
                    sent.add(payloads[source.expect(Puback).packet_id - 1])
    return sent


def test_each_record_goes_to_one_worker_and_all_have_their_share(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path, shards=SHARDS) as cluster:
        queue, share = workers(QUEUE, 6), workers(SHARE, 3)
        plain = [LastingSubscriber(f"all{level}", level, 1, "k/#") for level in (4, 5)]
        every = [*queue, *share, *plain]
        with roaming([*every], cluster.addresses, 1):
            until(lambda: all(one.subscribed for one in every))
            groups = [queue, share, *[[one] for one in plain]]
            for burst, least in ((1, 0.5), (40, 0.2)):
                sent = publish_all(cluster, 120, burst=burst)
                until(partial(have_all, groups, sent))
                time.sleep(1)
                for members in groups:
                    assert received(members) == Counter(sent)
                    counts = [len(one.received) for one in members]
                    assert min(counts) >= least * len(sent) / len(members), counts
                for one in every:
                    one.received.clear()


def have_all(groups: list[list[LastingSubscriber]], sent: set[bytes]) -> bool:
    """Return whether each group has received all messages."""
    return all(sent <= received(members).keys() for members in groups)


def received(members: list[LastingSubscriber]) -> Counter[bytes]:
    """Return how often the members of a group have received each message."""
    return Counter(payload for one in members for payload in list(one.received))


def test_each_record_goes_to_a_worker_when_nodes_are_killed_suspended_and_stopped(tmp_path: Path) -> None:
    seed = run_seed("cluster mqtt shares")
    with told_on_failure(TIMESTONE_SEED=seed), mqtt_cluster(tmp_path, shards=SHARDS) as cluster:
        chance = random.Random(seed)
        publishers = [
            LastingPublisher(f"p{level}", level, level * 10_000_000, chance, TOPICS) for level in (4, 5)
        ]
        once = [workers(ONCE, 6, qos=2), workers(SHARE_ONCE, 4, qos=2)]
        groups = [workers(QUEUE, 6), workers(SHARE, 4), [LastingSubscriber("all", 5, 1, "k/#")], *once]
        with roaming([one for members in groups for one in members], cluster.addresses, seed):
            until(lambda: all(one.subscribed for members in groups for one in members))
            with roaming([*publishers], cluster.addresses, seed + 100):
                faults = break_in_turn(
                    FAULTS, SECONDS, chance, lambda kind: break_leader(cluster, kind, chance)
                )
                finish(publishers)
            promised = {number for one in publishers for number in one.acknowledged}
            assert promised, "the test did nothing"
            for members in groups:
                until(partial(are_in, promised, members))
            time.sleep(3)  # for what is delivered twice, and until all places are saved
            places = [received(members) for members in groups]
            leader = cluster.leader(chance.randrange(SHARDS))
            leader.kill()
            cluster.all_led(other_than=leader)
            ends = last_publishers(TOPICS, chance)
            with roaming([*ends], cluster.addresses, seed + 200):
                until(lambda: all(end.idle for end in ends))
            last = {b"1:%d" % end.number for end in ends}
            for members, before in zip(groups, places, strict=True):
                until(partial(have_all, [members], last))
                assert (received(members) - before).keys() == last, "a group has lost its place"
        for members in once:
            twice = [one for one, times in received(members).items() if one[:1] == b"2" and times > 1]
            assert twice == [], f"QoS 2 was delivered twice: {twice[:5]}"
        print(f"shared subscriptions on {SHARDS} shards: {faults}, {len(promised)} acknowledged")
        for members in groups:
            again = sum(times - 1 for times in received(members).values())
            print(f"{len(members)} members: {again} more than once")


def are_in(promised: set[int], members: list[LastingSubscriber]) -> bool:
    """Return whether the members of a group have received all of these numbers."""
    return promised <= {int(payload[2:]) for payload in received(members)}


def test_members_of_other_homes_have_what_those_of_one_server_have(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path, shards=SHARDS) as cluster:
        doors, topic = cluster.nodes, named(2, "t/x")
        source = cluster.client("source", doors[0])[0]
        own, there = named(2, "own"), named(3, "there")
        one, answer = cluster.client(there, doors[1], clean=False, properties=LASTING)
        assert answer.properties.shared_subscription_available is None
        assert one.subscribe(Request(f"$queue/q/{topic}", 2)) == (2,)
        with cluster.client(own, doors[2])[0] as home:
            filters = f"$queue/q/{topic}", f"$share/g/{topic}", "$share/g/t/#"
            assert home.subscribe(*[Request(one, 2) for one in filters]) == (2, 2, 2)
            unsubscribe(home, *filters)
        source.publish(topic, b"1")
        source.publish(topic, b"2")
        assert [each.payload for each in one.receive(2, acknowledge=False)] == [b"1", b"2"]
        taken_over, answer = cluster.client(there, doors[2], clean=False, properties=LASTING)
        assert answer.session_present
        assert [(each.payload, each.duplicate) for each in taken_over.receive(2)] == [
            (b"1", True),
            (b"2", True),
        ]
        one.close()
        source.send(Publish(topic, b"once", 2, packet_id=9))
        source.expect(Pubrec)
        source.send(Pubrel(9))
        source.expect(Pubcomp)
        (first,) = taken_over.receive(1, acknowledge=False)
        assert (first.payload, first.qos, first.duplicate) == (b"once", 2, False)
        taken_over.close()
        back, _ = cluster.client(there, doors[0], clean=False, properties=LASTING)
        assert back.receive(1, acknowledge=False) == [replace(first, duplicate=True)]
        back.send(Pubrec(first.packet_id))
        back.expect(Pubrel)
        back.send(Pubcomp(first.packet_id))
        back.close()
        source.publish(topic, b"kept")
        with cluster.client(named(1, "other"), doors[0])[0] as other:
            assert other.subscribe(f"$queue/q/{topic}") == (1,)
            assert [each.payload for each in other.receive(1)] == [b"kept"]
            unsubscribe(other, f"$queue/q/{topic}")
            source.publish(topic, b"for a session that stays")
            other.expect_silence()
        again, answer = cluster.client(there, doors[0], clean=False, properties=LASTING)
        assert answer.session_present
        assert [each.payload for each in again.receive(1)] == [b"for a session that stays"]
        source.close()
        again.close()


def unsubscribe(client: RawClient, *filters: str) -> None:
    """End subscriptions."""
    client.send(Unsubscribe(5, filters))
    assert set(client.expect(Unsuback).reasons) == {0}


def test_slow_worker_keeps_nothing_from_workers_of_other_homes(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path, shards=SHARDS) as cluster:
        one_at_a_time = Properties(receive_maximum=1)
        slow = cluster.client(named(0, "slow"), cluster.nodes[0], properties=one_at_a_time)[0]
        quick = cluster.client(named(3, "quick"), cluster.nodes[1])[0]
        for worker in (slow, quick):
            worker.subscribe(SHARE)
        sent = publish_all(cluster, 40, burst=40)
        kept = slow.receive(1, acknowledge=False)
        found = [one.payload for one in quick.receive(len(sent) - 1)]
        assert Counter([*found, kept[0].payload]) == Counter(sent)
        slow.expect_silence()
        slow.close()
        assert [(one.payload, one.duplicate) for one in quick.receive(1)] == [(kept[0].payload, True)]
        quick.close()
