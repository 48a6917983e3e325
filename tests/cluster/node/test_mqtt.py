"""MQTT on a cluster: clients at any of three nodes, whose leader is killed, suspended, stopped and drained.

make soak-cluster PARTS=mqtt TIMESTONE_CLUSTER_SECONDS=900
"""

import os
import random
import re
import signal
import socket
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Literal

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from mqtt_front.codec.packets import Connack, Connect, Disconnect, Puback, Publish, Will
from mqtt_front.codec.properties import Properties
from mqtt_front.reasons import Reason
from tests.cluster.mqtt_cluster import MqttCluster, finish, last_words, mqtt_cluster, roaming, until
from tests.cluster.node_processes import NodeProcess
from tests.support.certificates import Authority
from tests.support.console_client import Console
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_lasting import LastingDevice, LastingPublisher, LastingSubscriber
from tests.support.ports import reserved_port
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone_cluster.affinity import FEWEST_CLIENTS

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SECONDS = float(os.environ.get("TIMESTONE_CLUSTER_SECONDS", "20"))
LASTING = Properties(session_expiry_interval=0xFFFFFFFF)
DEVICES = rounds(20, "TIMESTONE_CLUSTER_DEVICES")
PAUSES_S = (1, 4) if SECONDS <= 20 else (1, 4, 30)
FAULTS = ("kill", "suspend", "stop", "drain", "follower")
RESTARTS = ("kill", "suspend", "restart", "drain", "follower")
OUTAGE_S = 15.0
"""Longest time for which a device may be without service when a node is killed, or all are restarted in turn. The
design has six seconds and one, on a machine that does nothing else."""


@pytest.mark.timeout(300 + 3 * SECONDS)
def test_sessions_keep_their_promises_when_leaders_are_killed_suspended_drained_and_all_nodes_restarted(
    tmp_path: Path,
) -> None:
    _keep_promises(tmp_path, "synced", RESTARTS, SECONDS)


@pytest.mark.timeout(300)
def test_sessions_keep_their_promises_when_acknowledged_records_are_only_written(tmp_path: Path) -> None:
    _keep_promises(tmp_path, "written", FAULTS, 0)


def _keep_promises(folder: Path, ack: str, kinds: Sequence[str], seconds: float) -> None:
    """Have sessions roam while nodes break: each kind of fault once, and more for so long."""
    seed = run_seed("cluster mqtt")
    with told_on_failure(TIMESTONE_SEED=seed), mqtt_cluster(folder, ack=ack) as cluster:
        chance = random.Random(seed)
        publishers = [LastingPublisher(f"p{level}", level, level * 100_000_000, chance) for level in (4, 5)]
        devices = [
            LastingDevice(f"d{number}", 4 + number % 2, 600_000_000 + number * 1_000_000)
            for number in range(DEVICES)
        ]
        subscribers = [LastingSubscriber(f"s{level}-{qos}", level, qos) for level in (4, 5) for qos in (1, 2)]
        outages_s: dict[str, list[float]] = {kind: [] for kind in kinds}
        with roaming([*subscribers], cluster.addresses, seed):
            until(lambda: all(one.subscribed for one in subscribers))
            with roaming([*publishers, *devices], cluster.addresses, seed + 100):
                until(partial(_are_served, devices, time.monotonic()))
                ends_s = time.monotonic() + seconds
                for number, kind in enumerate(_kinds(kinds, chance)):
                    if time.monotonic() > ends_s and number >= len(kinds):
                        break
                    began_s = time.monotonic()
                    _break(cluster, kind, chance)
                    over_s = time.monotonic()
                    until(partial(_are_served, devices, over_s))
                    outages_s[kind] += [one.longest_pause_s(began_s, over_s) for one in devices]
                    time.sleep(chance.uniform(0.2, 2))
                finish([*publishers, *devices])
            end = LastingPublisher("last", 4, 10**9, chance)
            end.end_with(10**9)
            with roaming([end], cluster.addresses, seed + 200):
                until(lambda: end.idle)
            until(lambda: all(b"1:1000000000" in one.received[-9:] for one in subscribers))
        cluster.stop()
        _check(cluster.records(), [*publishers, *devices], subscribers)
        for kind, found_s in outages_s.items():
            print(
                f"mqtt: {kind}, {len(found_s) // DEVICES} times: {DEVICES} devices were without service for "
                f"{median(found_s):.1f} s (median), at most {max(found_s):.1f} s"
            )
            assert kind not in ("kill", "follower", "restart") or max(found_s) <= OUTAGE_S, kind


def _are_served(devices: list[LastingDevice], since_s: float) -> bool:
    """Return whether each device has had a PUBACK of a message that it has sent since a point in time."""
    return all(one.waits and one.waits[-1][0] > since_s for one in devices)


def _kinds(kinds: Sequence[str], chance: random.Random) -> "list[str]":
    """Return each fault once, and then many at random."""
    return [*chance.sample(kinds, len(kinds)), *(chance.choice(kinds) for _ in range(10_000))]


def _break(cluster: MqttCluster, kind: str, chance: random.Random) -> None:
    leader = cluster.leader()
    match kind:
        case "kill":
            leader.kill()
            cluster.leader(other_than=leader)
            leader.start()
        case "suspend":
            leader.signal(signal.SIGSTOP)
            cluster.leader(other_than=leader)
            time.sleep(chance.uniform(0, 2))
            leader.signal(signal.SIGCONT)
        case "stop":
            leader.stop()
            cluster.leader(other_than=leader)
            leader.start()
        case "restart":
            for node in cluster.nodes * 2:
                node.stop()
                node.start()
                until(lambda: node.node_id() in {one.id for one in cluster.status().nodes})  # noqa: B023
                cluster.leader(in_sync=3)  # which etcd may say of a node that stopped a moment ago
        case "drain":
            cluster.drain(leader)
        case "follower":  # with the clients that it passes on
            node = chance.choice(cluster.others(leader))
            node.kill()
            time.sleep(chance.uniform(0, 2))
            node.start()
    cluster.leader(in_sync=3)


def _check(
    log: list[bytes], publishers: Sequence[LastingPublisher], subscribers: list[LastingSubscriber]
) -> None:
    count = Counter(log)
    acknowledged = [number for one in publishers for number in one.acknowledged]
    numbers = {int(payload[2:]) for payload in log}
    assert all(one.acknowledged for one in publishers), "the test did nothing"
    assert not set(acknowledged) - numbers, "an acknowledged publish is missing"
    assert [p for p, times in count.items() if p[:1] == b"2" and times > 1] == [], "QoS 2 twice in the log"
    firsts, by_publisher = sorted(one.first for one in publishers), defaultdict[int, list[int]](list)
    for number in (int(payload[2:]) for payload in log if payload[:1] != b"0"):
        by_publisher[bisect_right(firsts, number)].append(number)
    for mine in by_publisher.values():
        assert list(dict.fromkeys(mine)) == sorted(set(mine)), "a publisher's order is not kept"
    promised = list(dict.fromkeys(payload for payload in log if payload[:1] != b"0"))
    for subscriber in subscribers:
        received = [payload for payload in subscriber.received if payload[:1] != b"0"]
        assert list(dict.fromkeys(received)) == promised, "a session is not complete in order"
        if subscriber.qos == 2:
            twice = [p for p, times in Counter(received).items() if p[:1] == b"2" and times > 1]
            assert twice == [], "QoS 2 was delivered twice"
    print(f"mqtt: {len(log)} records, {len(acknowledged)} acknowledged at QoS 1 and 2")


def test_wills_are_published_once_and_only_of_clients_that_stay_away_when_a_leader_is_killed(
    tmp_path: Path,
) -> None:
    with mqtt_cluster(tmp_path, "--cluster-will-grace-s", "4") as cluster:
        leader = cluster.leader()
        door, other = cluster.others(leader)
        names = [f"device-{number}" for number in range(12)]
        clients = {
            name: cluster.client(name, door, will=Will(f"will/{name}", name.encode(), 1), keep_alive=60)[0]
            for name in names
        }
        with cluster.client("keeper", door)[0] as keeper:
            keeper.send(Publish("kept", b"before", 1, retain=True, packet_id=1))
            assert keeper.expect(Puback).reason == 0
        leader.kill()
        back = names[::2]
        returned = {
            name: cluster.client(name, other, will=Will(f"will/{name}", name.encode(), 1))[0] for name in back
        }
        clients[names[0]].expect_closed()
        with cluster.client("reader", door)[0] as reader:
            assert reader.subscribe("kept") == (1,)
            assert [(one.payload, one.retain) for one in reader.receive(1)] == [(b"before", True)]
            reader.subscribe("will/#")
            found = reader.receive(len(names) - len(back))
        assert sorted(one.payload.decode() for one in found) == sorted(set(names) - set(back))
        leader.start()
        for client in returned.values():
            client.send(Disconnect())
        until(lambda: cluster.leader(in_sync=3) is not None)
        second = cluster.leader()
        second.kill()  # the wills that were published or given up are not published again
        with cluster.client("after", next(iter(cluster.others(second))))[0]:
            time.sleep(6)
        second.start()
        cluster.stop()
        wills = [payload for payload in cluster.records() if payload.startswith(b"device-")]
        assert sorted(wills) == sorted(name.encode() for name in set(names) - set(back))


def test_suspended_leader_that_wakes_acknowledges_nothing_once_another_has_and_sends_its_clients_away(
    tmp_path: Path,
) -> None:
    with mqtt_cluster(tmp_path) as cluster:
        known = []
        for pause_s in PAUSES_S:
            leader = cluster.leader(in_sync=3)
            with cluster.client("device", leader, clean=False, properties=LASTING)[0] as client:
                payloads = {number: b"%d %d" % (pause_s, number) for number in range(1, 51)}
                client.send(*[Publish("t", payloads[number], 1, packet_id=number) for number in payloads])
                leader.signal(signal.SIGSTOP)  # with publishes on their way
                late = b"%d late" % pause_s
                client.send(
                    Publish("t", late, 1, packet_id=51),
                    Publish("t", late + b" too", 2, packet_id=60 + pause_s),
                )
                found = _packets(client, 0.5)
                time.sleep(pause_s - 0.5)
                if pause_s > 1:
                    with cluster.client("other", cluster.others(leader)[0])[0] as other:
                        other.publish("t", b"%d other" % pause_s)
                    known.append(b"%d other" % pause_s)
                leader.signal(signal.SIGCONT)
                if pause_s > 1:
                    words = last_words(client)
                    assert [type(word) for word in words] in ([], [Disconnect])
                    assert all(word.reason == Reason.USE_ANOTHER_SERVER for word in words)  # type: ignore[attr-defined]
                else:  # it leads still, if the machine is not too slow
                    found += _packets(client, 2)
            known += [payloads.get(one.packet_id, late) for one in found if isinstance(one, Puback)]
        with cluster.client("device", cluster.nodes[0], clean=False, properties=LASTING)[0] as client:
            client.publish("t", b"after", 2)
        cluster.stop()
        records = cluster.records()
        assert records[-1] == b"after" and len(set(records)) == len(records)
        assert set(known) <= set(records), "an acknowledged publish is missing"
        assert not {
            b"%d late%s" % (pause_s, end) for pause_s in PAUSES_S[1:] for end in (b"", b" too")
        } & set(records)


def _packets(client: RawClient, quiet_s: float) -> list[object]:
    """Return the packets until none comes for so long, or the connection ends."""
    found: list[object] = []
    with suppress(TimeoutError):
        while (packet := client.next_packet(quiet_s)) is not None:
            found.append(packet)
    return found


def test_publish_waits_and_pings_are_answered_when_a_follower_is_suspended(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path) as cluster:
        leader = cluster.leader(in_sync=3)
        slow = cluster.others(leader)[0]
        with cluster.client("device", leader)[0] as client:
            slow.signal(signal.SIGSTOP)
            client.send(Publish("t", b"1", 1, packet_id=1))
            client.expect_silence()  # the ping is answered, and the publish not yet
            client.expect(Puback)
            assert slow.node_id() not in cluster.status().shards[0].in_sync
            slow.signal(signal.SIGCONT)
        cluster.leader(in_sync=3)
        cluster.stop()
        assert cluster.records() == [b"1"]


def test_clients_of_mqtt_5_are_redirected_to_the_leader_where_a_listener_says_so(tmp_path: Path) -> None:
    """Those of MQTT 3.1.1 are passed on: they have no words for it."""
    with ExitStack() as stack:
        ports = {name: stack.enter_context(reserved_port()) for name in "abc"}

        def own(name: str) -> list[str]:
            address = f"127.0.0.1:{ports[name]}"
            config = tmp_path / f"{name}.toml"
            config.write_text(f'[[mqtt.listeners]]\naddress = "{address}"\ncluster_redirect = "{address}"\n')
            return ["--config", str(config)]

        cluster, known = stack.enter_context(mqtt_cluster(tmp_path, own=own)), set()
        for _ in range(2):
            leader = cluster.leader(in_sync=3)
            there = ("127.0.0.1", ports[leader.name])
            for door in cluster.others(leader):
                with RawClient(("127.0.0.1", ports[door.name]), 5) as client:
                    answer = client.connect(f"device-{door.name}", clean=False, properties=LASTING)
                    assert answer.reason == Reason.USE_ANOTHER_SERVER
                    assert answer.properties.server_reference == f"{there[0]}:{there[1]}"
                    client.expect_closed()
                with RawClient(there, 5) as client:
                    answer = client.connect(f"device-{door.name}", clean=False, properties=LASTING)
                    assert (answer.reason, answer.session_present) == (0, door.name in known)
                    known.add(door.name)
                    client.publish("t", b"5", packet_id=1)
                with RawClient(("127.0.0.1", ports[door.name]), 4) as client:
                    assert client.connect(f"old-{door.name}").reason == 0
                    client.publish("t", b"4", packet_id=1)
            leader.kill()
            cluster.leader(other_than=leader)
            leader.start()
        cluster.stop()
        assert sorted(cluster.records()) == [b"4"] * 4 + [b"5"] * 4


def test_client_is_taken_over_and_finds_its_session_when_it_connects_at_each_node(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path) as cluster:
        for level in (4, 5):
            name, earlier = f"device-{level}", None
            for number, node in enumerate(cluster.nodes * 2):
                client, answer = cluster.client(
                    name, node, level, clean=False, properties=LASTING if level == 5 else None
                )
                assert answer.session_present == (number > 0)
                if earlier is None:
                    client.subscribe(f"to/{name}")
                else:
                    words = last_words(earlier)
                    reasons = [word.reason for word in words if isinstance(word, Disconnect)]
                    assert reasons == ([Reason.SESSION_TAKEN_OVER] if level == 5 else [])
                    earlier.close()
                client.publish(f"to/{name}", b"%d" % number, packet_id=1)
                assert [one.payload for one in client.receive(1)] == [b"%d" % number]
                client.expect_silence()  # the acknowledgement is there: a CONNECT at another node could overtake it
                earlier = client
            assert earlier is not None
            earlier.close()


def test_position_of_a_device_holds_on_another_node_when_the_leader_is_killed(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path) as cluster:
        leader = cluster.leader()
        with cluster.client("device", leader)[0] as client:
            for number in range(5):
                client.publish("t", b"%d" % number)
            client.subscribe("$stream/mqtt/t", properties=_from("earliest"))
            third = client.receive(5)[2]
        said = dict(third.properties.user_properties)
        leader.kill()
        with cluster.client("device", cluster.others(leader)[0])[0] as client:
            client.subscribe("$stream/mqtt/t", properties=_from(f"offset:{int(said['offset']) + 1}"))
            assert [one.payload for one in client.receive(2)] == [b"3", b"4"]


def test_node_leads_that_most_clients_come_in_through(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path) as cluster, ExitStack() as stack:
        cluster.configure(leader_pause_ms=0)  # else it may lead elsewhere for a minute
        until(lambda: (shard := cluster.status().shards[0]).leader == shard.replicas[0])  # and stays so
        door = cluster.others(cluster.leader())[0]
        cluster.configure(affinity_ms=0)
        for number in range(FEWEST_CLIENTS):
            stack.enter_context(cluster.client(f"c{number}", door)[0])
        until(lambda: cluster.leader() is door)


def test_queue_continues_at_its_place_when_the_leader_is_killed(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path) as cluster:
        leader = cluster.leader()
        door = cluster.others(leader)[0]
        with cluster.client("worker", door, properties=LASTING)[0] as worker:
            assert worker.subscribe("$queue/work/jobs") == (1,)
            with cluster.client("source", door)[0] as source:
                for number in range(6):
                    source.publish("jobs", b"%d" % number)
            assert [one.payload for one in worker.receive(4)] == [b"%d" % number for number in range(4)]
            time.sleep(1.5)  # its place is saved each second
        leader.kill()
        client, answer = cluster.client("worker", door, clean=False, properties=LASTING)
        with client:
            assert answer.session_present
            found = [one.payload for one in client.receive(2)]
        assert found == [b"4", b"5"]


@pytest.mark.parametrize("protocol", ["TLS", "WebSocket"])
def test_client_is_passed_on_when_it_has_a_certificate_or_uses_websocket(
    tmp_path: Path, protocol: str
) -> None:
    authority = Authority(tmp_path)
    server, device = authority.issue_server(), authority.issue("device-7")
    config = tmp_path / "timestone.toml"
    config.write_text(
        f"""
        [[mqtt.listeners]]
        address = "127.0.0.1:0"
        certificate = "{server.path}"
        key = "{server.key_path}"
        client_ca = "{authority.path}"
        require_certificate = true
        user_from = "cn"
        [[mqtt.listeners]]
        address = "127.0.0.1:0"
        websocket = true
        """
    )
    with mqtt_cluster(tmp_path, "--config", str(config)) as cluster:
        leader = cluster.leader()
        door = cluster.others(leader)[0]
        found = re.search(rf"mqtt on 127\.0\.0\.1:(\d+) \({protocol}\)", door.output())
        assert found is not None
        transport: Literal["tcp", "websockets"] = "tcp" if protocol == "TLS" else "websockets"
        client = Client(CallbackAPIVersion.VERSION2, client_id="device", transport=transport)
        if protocol == "TLS":
            client.tls_set(str(authority.path), str(device.path), str(device.key_path))
        client.connect("localhost", int(found[1]))
        client.loop_start()
        sent = client.publish("t", b"encrypted" * 20_000, qos=2)
        sent.wait_for_publish(60)
        assert sent.is_published()
        client.disconnect()
        client.loop_stop()
        user = "device-7" if protocol == "TLS" else "None"
        until(lambda: f"connected: user={user}" in leader.output().replace("'", ""))
        cluster.stop()
        assert cluster.records() == [b"encrypted" * 20_000]


def _from(start: str) -> Properties:
    return Properties(user_properties=(("stream-offset", start),))


def test_clients_are_sent_on_and_no_will_is_published_when_a_leader_hands_over(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path) as cluster:
        leader = cluster.leader()
        will = Will("will", b"device", 1)
        with cluster.client("device", leader, properties=LASTING, will=will)[0] as client:
            client.publish("t", b"before")
            cluster.drain(leader)
            (word,) = last_words(client)
        assert isinstance(word, Disconnect) and word.reason == Reason.USE_ANOTHER_SERVER
        assert "disconnected: another node is to lead (USE_ANOTHER_SERVER)" in leader.output()
        client, answer = cluster.client("device", leader, clean=False, properties=LASTING)
        with client:
            assert answer.session_present
            client.publish("t", b"after")
        client.close()
        cluster.stop()
        assert cluster.records() == [b"before", b"after"]


def test_clients_wait_at_the_door_when_no_node_leads(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path) as cluster:
        leader = cluster.leader()
        door = cluster.others(leader)[0]
        leader.kill()
        with RawClient(cluster.address_of(door), 4) as client:
            client.send(Connect("patient", 4, True))
            answer = client.next_packet(60)
        assert isinstance(answer, Connack) and answer.reason == 0


def test_address_of_a_client_is_that_at_its_door_when_it_is_passed_on(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path) as cluster:
        leader = cluster.leader()
        client, _ = cluster.client("device", cluster.others(leader)[0])
        with client:
            host, port = client.socket.getsockname()
            until(lambda: f"'device' at {host}:{port} connected" in leader.output())
            client.socket.shutdown(socket.SHUT_WR)
            until(lambda: f"'device' at {host}:{port} disconnected" in leader.output())


def test_console_of_each_node_has_the_traffic_of_the_clients_that_it_serves(tmp_path: Path) -> None:
    with mqtt_cluster(tmp_path) as cluster, ExitStack() as stack:
        leader = cluster.leader()
        client = stack.enter_context(cluster.client("device", cluster.others(leader)[0])[0])
        consoles = {node.name: stack.enter_context(Console(node.folder)) for node in cluster.nodes}

        def live(node: NodeProcess) -> dict[str, float]:
            console = consoles[node.name]
            console.sources._status_s -= 1  # asks the node again
            found = console.get("overview")["live"]
            assert isinstance(found, dict), found
            return found

        for console in consoles.values():
            assert console.get("overview")["live"] is None
        for _ in range(20):
            client.publish("t", b"x")
        for node in cluster.nodes:
            found = live(node)
            served = (20, 1) if node is leader else (0, 0)
            assert (round(found["publishes_per_s"] * found["span_s"]), found["connected"]) == served
        cluster.drain(leader)
        until(lambda: live(leader)["connected"] == 0)
