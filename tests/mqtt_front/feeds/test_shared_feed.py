"""Shared subscriptions and queues as clients see them (trap 46 and pitfall P37), over raw sockets and with paho."""

import itertools
import json
import queue
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.codec import packets
from mqtt_front.codec.packets import MQTT_5, Publish, Request
from mqtt_front.codec.properties import Properties
from mqtt_front.feeds.group_store import KEY_PREFIX
from mqtt_front.settings import Route
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.paho_client import PahoClient
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone_access.passwords.password_file import set_password

Connected = Callable[..., RawClient]


@pytest.fixture(params=[4, 5])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def member(
    address: tuple[str, int],
    name: str,
    *filters: str | Request,
    level: int = 5,
    lasting: bool = False,
    room: int | None = None,
) -> RawClient:
    """A client with shared subscriptions, at QoS 1 unless asked otherwise."""
    client = RawClient(address, level)
    properties = Properties(session_expiry_interval=3600 if lasting else None, receive_maximum=room)
    client.connect(name, clean=not lasting, properties=properties if level == MQTT_5 else None)
    if filters:
        assert all(reason < 0x80 for reason in client.subscribe(*filters))
    return client


def publish(server: MqttServer, topic: str, numbers: range, qos: int = 1) -> None:
    """Publish numbers, and wait until all of them are in the log."""
    with RawClient(server.address) as publisher:
        publisher.connect(f"publisher of {topic}")
        answer = {0: packets.Pingresp, 1: packets.Puback, 2: packets.Pubrec}[qos]
        for number in numbers:
            publisher.send(Publish(topic, b"%d" % number, qos, packet_id=qos and 1 + number % 65_000))
        if qos == 0:
            publisher.send(packets.Pingreq())
        for _ in numbers if qos else range(1):
            publisher.expect(answer)


def collect(
    count: int, *clients: RawClient, acknowledge: bool = True, silence: bool = True
) -> list[list[Publish]]:
    """What each client gets until all of them have `count` messages together, and nothing after that."""
    received: list[list[Publish]] = [[] for _ in clients]
    deadline = time.monotonic() + TIMEOUT_S
    while sum(map(len, received)) < count:
        assert time.monotonic() < deadline, [numbers(each) for each in received]
        for client, mine in zip(clients, received, strict=True):
            try:
                packet = client.next_packet(timeout_s=0.01)
            except TimeoutError:
                continue
            assert isinstance(packet, Publish), packet
            mine.append(packet)
            deadline = time.monotonic() + TIMEOUT_S
            if packet.qos and acknowledge:
                client.send(packets.Puback(packet.packet_id))
    if silence:
        for client in clients:
            client.expect_silence()
    return received


def drain(client: RawClient, count: int, *, acknowledge: bool = True) -> list[int]:
    """The numbers that one client gets, which are so many."""
    return numbers(collect(count, client, acknowledge=acknowledge)[0])


def numbers(received: list[Publish]) -> list[int]:
    return [int(one.payload) for one in received]


@pytest.mark.slow
def test_message_goes_to_one_member_of_each_group_and_to_plain_subscribers(
    server: MqttServer, level: int
) -> None:
    topic = f"one/{level}"
    filters = [f"$share/a/{topic}", f"$share/a/{topic}", f"$share/b/{topic}", topic]
    clients = [member(server.address, f"m{level}{n}", one, level=level) for n, one in enumerate(filters)]
    publish(server, topic, range(200))
    got = [numbers(each) for each in collect(600, *clients)]
    assert sorted(got[0] + got[1]) == got[2] == got[3] == list(range(200))
    assert got[0] and got[1] and got[0] == sorted(got[0]) and got[1] == sorted(got[1])
    for client in clients:
        client.close()


def test_session_gets_one_copy_for_each_group_and_one_for_a_plain_subscription(server: MqttServer) -> None:
    with member(server.address, "thrice", "$share/a/thrice", "$share/b/thrice", "thrice") as client:
        publish(server, "thrice", range(3))
        assert sorted(drain(client, 9)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_single_messages_rotate_among_members(server: MqttServer) -> None:
    clients = [member(server.address, f"round{n}", "$share/round/round") for n in range(3)]
    for number in range(9):
        publish(server, "round", range(number, number + 1))
    assert [len(each) for each in collect(9, *clients)] == [3, 3, 3]
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    "topic_filter", ["$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/g#/a", "$share", "$share/g/a/#/b",
                     "$share/g/$share/h/a", "$queue/q", "$queue//a"],
)  # fmt: skip
def test_shared_filter_without_group_or_topics_is_refused(
    server: MqttServer, level: int, topic_filter: str
) -> None:
    with member(server.address, "bad", level=level) as client:
        assert client.subscribe(topic_filter) == ((0x8F,) if level == MQTT_5 else (0x80,))


@pytest.mark.parametrize("topic_filter", ["$share/g/nl", "$queue/g/nl"])
def test_no_local_on_a_shared_subscription_is_a_protocol_error(server: MqttServer, topic_filter: str) -> None:
    with member(server.address, "local") as client:
        client.send(packets.Subscribe(1, (Request(topic_filter, 1, no_local=True),)))
        assert client.expect(packets.Disconnect).reason == 0x82
        client.expect_closed()


def test_retained_messages_are_not_sent_to_shared_subscriptions(server: MqttServer) -> None:
    with member(server.address, "retaining", level=4) as client:
        client.send(Publish("shared/retained", b"x", 1, retain=True, packet_id=1))
        client.expect(packets.Puback)
        client.subscribe("$share/g/shared/retained", "$queue/g/shared/retained")
        client.expect_silence()


def test_member_with_a_full_window_does_not_block_the_others(server: MqttServer) -> None:
    with (
        member(server.address, "full", "$share/slow/slow", room=3) as full,
        member(server.address, "quick", "$share/slow/slow") as quick,
    ):
        publish(server, "slow", range(300))
        stuck = numbers(full.receive(3, acknowledge=False))
        got = drain(quick, 297)
        full.expect_silence()
        assert sorted(got + stuck) == list(range(300))


def test_unacknowledged_messages_of_a_lost_member_go_to_another_in_order(
    server: MqttServer, level: int
) -> None:
    topic = f"dying/{level}"
    dying = member(server.address, f"dying{level}", f"$share/g/{topic}", level=level)
    publish(server, topic, range(50))
    received = dying.receive(50, acknowledge=False)
    dying.send(*[packets.Puback(one.packet_id) for one in received[10:20]])
    dying.expect_silence()
    with member(server.address, f"heir{level}", f"$share/g/{topic}", level=level) as heir:
        heir.expect_silence()
        dying.close()
        assert drain(heir, 40) == [*range(10), *range(20, 50)]
        publish(server, topic, range(50, 60))
        assert drain(heir, 10) == list(range(50, 60))


def test_member_receives_nothing_after_unsubscribing(server: MqttServer) -> None:
    with (
        member(server.address, "leaving", "$share/leave/leave") as leaving,
        member(server.address, "staying", "$share/leave/leave") as staying,
    ):
        leaving.send(packets.Unsubscribe(9, ("$share/leave/leave",)))
        assert leaving.expect(packets.Unsuback).reasons == (0,)
        publish(server, "leave", range(20))
        assert drain(staying, 20) == list(range(20))
        leaving.expect_silence()
        leaving.subscribe("$share/leave/leave")
        publish(server, "leave", range(20, 60))
        both = collect(40, staying, leaving)
        assert sorted(numbers(both[0]) + numbers(both[1])) == list(range(20, 60))


def test_group_ends_with_its_last_member_and_a_queue_does_not(server: MqttServer) -> None:
    for kind, expected in (("$share", [8, 9]), ("$queue", [*range(2, 10)])):
        topic = f"ending/{kind[1:]}"
        client = member(server.address, "last", f"{kind}/g/{topic}")
        publish(server, topic, range(2))
        assert drain(client, 2) == [0, 1]
        client.send(packets.Disconnect())
        client.expect_closed()
        publish(server, topic, range(2, 8))
        with member(server.address, "first", f"{kind}/g/{topic}") as client:
            publish(server, topic, range(8, 10))
            assert drain(client, len(expected)) == expected


def test_group_of_absent_sessions_keeps_new_messages(server: MqttServer, level: int) -> None:
    topic = f"absent/{level}"
    names = (f"absent-a{level}", f"absent-b{level}")
    for name in names:
        member(server.address, name, f"$share/g/{topic}", level=level, lasting=True).close()
    publish(server, topic, range(30))
    with member(server.address, names[1], level=level, lasting=True) as back:
        assert drain(back, 30) == list(range(30))


@pytest.mark.slow
def test_delivery_uses_the_qos_of_the_member(server: MqttServer) -> None:
    with (
        member(server.address, "at-0", Request("$share/q/qos", 0)) as low,
        member(server.address, "at-1", Request("$share/q/qos", 1)) as high,
    ):
        publish(server, "qos", range(100))
        first, second = collect(100, low, high)
        assert {one.qos for one in first} <= {0} and {one.qos for one in second} == {1}
        assert sorted(numbers(first) + numbers(second)) == list(range(100))


def test_identifiers_of_shared_subscriptions_are_sent(server: MqttServer) -> None:
    with member(server.address, "identified") as client:
        client.subscribe("$share/i/identified", properties=Properties(subscription_identifiers=(9,)))
        publish(server, "identified", range(1))
        assert client.receive(1)[0].properties.subscription_identifiers == (9,)


def complete(client: RawClient, received: list[Publish]) -> None:
    for one in received:
        client.send(packets.Pubrec(one.packet_id))
        assert client.expect(packets.Pubrel).packet_id == one.packet_id
        client.send(packets.Pubcomp(one.packet_id))


def test_message_at_qos_2_stays_with_its_session(server: MqttServer) -> None:
    asked = Request("$share/two/two", 2)
    chosen = member(server.address, "chosen", asked, lasting=True)
    publish(server, "two", range(5), qos=2)
    received = chosen.receive(5, acknowledge=False)
    with member(server.address, "other", asked) as other:
        chosen.close()
        other.expect_silence()
        with member(server.address, "chosen", lasting=True) as chosen:
            again = chosen.receive(5, acknowledge=False)
            assert [one.packet_id for one in again] == [one.packet_id for one in received]
            assert all(one.duplicate for one in again) and numbers(again) == [0, 1, 2, 3, 4]
            complete(chosen, again)
            chosen.expect_silence()
            publish(server, "two", range(5, 6), qos=2)
            stranded = collect(1, chosen, other, acknowledge=False)
            assert numbers(stranded[0]) + numbers(stranded[1]) == [5]


def test_delivery_at_qos_2_is_completed_after_its_group_ended(server: MqttServer) -> None:
    with member(server.address, "one", Request("$share/gone/gone", 2)) as one:
        publish(server, "gone", range(1), qos=2)
        received = one.receive(1, acknowledge=False)
        one.send(packets.Unsubscribe(9, ("$share/gone/gone",)))
        one.expect(packets.Unsuback)
        complete(one, received)


def test_message_at_qos_2_of_an_ended_session_goes_to_no_other(server: MqttServer) -> None:
    asked = Request("$share/end/end", 2)
    with member(server.address, "heir", asked, room=1) as heir:
        mortal = member(server.address, "mortal", asked)
        publish(server, "end", range(3), qos=2)
        both = collect(3, mortal, heir, acknowledge=False)
        assert both[0]
        mortal.close()
        wait_for(lambda: server.status()["sessions_connected"] == 1)
        complete(heir, both[1])
        heir.expect_silence()
        publish(server, "end", range(3, 4), qos=2)
        assert numbers(heir.receive(1, acknowledge=False)) == [3]


def fleet(path: Path) -> dict[str, Any]:
    """Settings with two users: `fleet`, whose devices stay below their own ids, and `backend`, which does not."""
    if not (path / "passwords").exists():
        set_password(path / "passwords", "fleet", b"f")
        set_password(path / "passwords", "backend", b"b")
    return {
        "password_file": path / "passwords",
        "device_topics": "devices/%c/#",
        "backend_users": ("backend",),
    }


def login(
    address: tuple[str, int], name: str, user: str, *, level: int = 5, lasting: bool = False
) -> RawClient:
    """A client of `fleet`."""
    client = RawClient(address, level)
    expiry = Properties(session_expiry_interval=3600 if lasting else None)
    answer = client.connect(
        name,
        clean=not lasting,
        user=user,
        password=user[:1].encode(),
        properties=expiry if level == 5 else None,
    )
    assert answer.reason == 0
    return client


def test_member_is_refused_when_the_filter_exceeds_its_device_topics(tmp_path: Path, level: int) -> None:
    with mqtt_server(tmp_path / "data", **fleet(tmp_path)) as server:
        with login(server.address, "worker", "backend") as worker:
            assert worker.subscribe("$queue/jobs/devices/+/x", "$share/jobs/devices/+/x") == (1, 1)
        with (
            login(server.address, "d1", "fleet", level=level) as device,
            login(server.address, "p", "backend") as publisher,
        ):
            refused = 0x87 if level == MQTT_5 else 0x80
            wider = (
                "$queue/jobs/devices/+/x",
                "$share/jobs/devices/+/x",
                "$queue/jobs/#",
                "$share/g/$stream/mqtt",
            )
            own = "$queue/own/devices/d1/#"
            assert device.subscribe(*wider, own) == (refused,) * len(wider) + (1,)
            for number, name in enumerate(("d1", "d2", "d1", "d2")):
                publisher.publish(f"devices/{name}/x", b"%d" % number)
            assert numbers(device.receive(2)) == [0, 2]
            device.expect_silence()
        with login(server.address, "worker", "backend") as worker:
            worker.subscribe("$queue/jobs/devices/+/x")
            assert numbers(worker.receive(4)) == [0, 1, 2, 3]


def test_member_is_refused_when_a_rule_denies_a_part_of_the_filter(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic readwrite #\ntopic deny a/secret\n")
    with (
        mqtt_server(tmp_path / "data", acl_file=tmp_path / "acl") as server,
        member(server.address, "one") as one,
    ):
        assert one.subscribe("$share/g/#", "$share/g/a/+", "$share/g/a/open", "a/+") == (0x87, 0x87, 1, 1)


@pytest.mark.crash
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_member_receives_nothing_when_its_rights_shrank_over_a_restart(
    tmp_path: Path, end: signal.Signals
) -> None:
    """A device joined the queue before devices were bound to their topics."""
    bound = fleet(tmp_path)
    free = {"password_file": bound["password_file"]}
    with (
        MqttProcess(tmp_path / "data", **free) as server,
        login(server.address, "d1", "fleet", lasting=True) as device,
    ):
        device.subscribe("$queue/jobs/devices/+/x")
        server.end(end)
    with (
        MqttProcess(tmp_path / "data", **bound) as server,
        login(server.address, "d1", "fleet", lasting=True) as device,
        login(server.address, "p", "backend") as publisher,
    ):
        for number in range(20):
            publisher.publish(f"devices/d{number % 2}/x", b"%d" % number)
        device.expect_silence()
        server.end(end)
    with (
        MqttProcess(tmp_path / "data", **bound) as server,
        login(server.address, "d1", "fleet", lasting=True) as device,
        login(server.address, "w", "backend") as worker,
    ):
        worker.subscribe("$queue/jobs/devices/+/x")
        assert numbers(worker.receive(20)) == list(range(20))
        device.expect_silence()


def test_member_is_suspended_and_resumed_when_rules_are_reloaded(tmp_path: Path) -> None:
    acl, every = tmp_path / "acl", "topic readwrite #\n"
    acl.write_text(every)
    with (
        mqtt_server(tmp_path / "data", acl_file=acl) as server,
        member(server.address, "one", "$queue/q/a/#", room=2) as one,
        member(server.address, "two") as two,
    ):
        publish(server, "a/open", range(5))
        assert numbers(one.receive(2, acknowledge=False)) == [0, 1]
        acl.write_text(every + "topic deny a/secret\n")
        server.run(server.front.reload())
        one.send(packets.Puback(1), packets.Puback(2))
        one.expect_silence()
        assert two.subscribe("$queue/q/a/#") == (0x87,)
        acl.write_text(every)
        server.run(server.front.reload())
        assert drain(one, 3) == [2, 3, 4]


@pytest.mark.slow
def test_group_delivers_from_several_logs_and_from_the_disk(tmp_path: Path) -> None:
    """A group over two logs, whose records are on the disk only when its members come."""
    routes = (Route(filter="other/#", log="other"),)
    with mqtt_server(tmp_path, routes=routes) as server:
        member(server.address, "first", "$queue/q/#").close()
        for topic in ("other/a", "mqtt/a"):
            publish(server, topic, range(3000))
    with mqtt_server(tmp_path, routes=routes) as server:
        clients = [member(server.address, f"late{n}", "$queue/q/#") for n in range(3)]
        received = collect(6000, *clients)
        for topic in ("other/a", "mqtt/a"):
            parts = [[int(one.payload) for one in each if one.topic == topic] for each in received]
            assert all(part == sorted(part) for part in parts)
            assert sorted(itertools.chain(*parts)) == list(range(3000))
        for client in clients:
            client.close()


def acknowledged_by_groups(store: Path) -> int:
    """Return how many records shared subscriptions have acknowledged, by their saved documents."""
    count = 0
    with timestone.view(store) as view:
        for key, document in view.documents("mqtt.session").items():
            if key.startswith(KEY_PREFIX):
                group = json.loads(document)
                count += group["seen"] - sum(end - first for first, end in group["open"])
    return count


@pytest.mark.crash
@pytest.mark.parametrize("saved", [False, True])
def test_kill_9_keeps_the_shared_offset_and_loses_no_message(tmp_path: Path, saved: bool) -> None:
    server = MqttProcess(tmp_path)
    names = ("a", "b")
    clients = {name: member(server.address, name, "$share/g/kill", lasting=True, room=20) for name in names}
    with RawClient(server.address) as publisher:
        publisher.connect("p")
        for number in range(100):
            publisher.publish("kill", b"%d" % number)
    acknowledged = {name: client.receive(10) for name, client in clients.items()}
    if saved:
        wait_for(lambda: acknowledged_by_groups(tmp_path) == 20)
    server.kill()
    server = MqttProcess(tmp_path)
    late = [member(server.address, name, lasting=True) for name in names]
    before = {int(one.payload) for each in acknowledged.values() for one in each}
    again: list[int] = []
    if saved:
        again = list(itertools.chain(*map(numbers, collect(80, *late))))
        assert before.isdisjoint(again)
    while set(again) | before != set(range(100)):
        again += itertools.chain(*map(numbers, collect(1, *late, silence=False)))
    assert len(again) == len(set(again))
    server.kill()


@pytest.mark.crash
def test_kill_9_at_qos_2_delivers_no_message_to_two_sessions(tmp_path: Path) -> None:
    server = MqttProcess(tmp_path)
    asked = Request("$share/g/exact", 2)
    a = member(server.address, "a", asked, lasting=True, room=10)
    with RawClient(server.address) as publisher:
        publisher.connect("p")
        for number in range(30):
            publisher.send(Publish("exact", b"%d" % number, 2, packet_id=1 + number))
            publisher.expect(packets.Pubrec)
    first = a.receive(10, acknowledge=False)
    done = first[:4]
    a.send(*[packets.Pubrec(one.packet_id) for one in done])
    for one in done:
        while not isinstance(packet := a.next_packet(), packets.Pubrel):
            assert isinstance(packet, Publish)
        assert packet.packet_id == one.packet_id
    server.kill()
    server = MqttProcess(tmp_path)
    b = member(server.address, "b", asked, lasting=True)
    theirs = drain(b, 20, acknowledge=False)
    a = member(server.address, "a", lasting=True)
    mine: list[int] = []
    while len(mine) + len(theirs) + len(done) < 30:
        packet = a.next_packet()
        if isinstance(packet, Publish):
            mine.append(int(packet.payload))
            a.send(packets.Pubrec(packet.packet_id))
        elif isinstance(packet, packets.Pubrel):
            a.send(packets.Pubcomp(packet.packet_id))
    a.send(packets.Pingreq())
    while not isinstance(packet := a.next_packet(), packets.Pingresp):
        assert isinstance(packet, packets.Pubrel), "nothing else is sent again"
    got = sorted([*mine, *theirs, *numbers(done)])
    assert got == list(range(30)), got
    server.kill()


@pytest.mark.slow
def test_group_skips_offsets_deleted_by_retention(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server:
        log = server.store.log("mqtt")
        log.configure(retention_bytes=1, segment_entries=10)
        with member(server.address, "gone", "$queue/q/gap", room=2) as client:
            publish(server, "gap", range(5))
            held = client.receive(2, acknowledge=False)
            for number in range(5, 100):
                publish(server, "gap", range(number, number + 1))
            wait_for(lambda: log.apply_retention() is not None and log.start_offset >= 80)
            client.send(*[packets.Puback(one.packet_id) for one in held])
            rest = [int(client.receive(1)[0].payload)]
            while rest[-1] < 99:
                rest.append(int(client.receive(1)[0].payload))
            assert rest == sorted(rest)


def test_too_many_groups_are_refused(tmp_path: Path) -> None:
    with (
        mqtt_server(tmp_path, shared_count=2, user_share_percent=100) as server,
        member(server.address, "c") as client,
    ):
        assert client.subscribe("$share/a/x", "$queue/b/x", "$share/c/x", "$share/a/x") == (1, 1, 0x97, 1)
        assert server.status()["shared_subscriptions"] == 2
        assert server.status()["over_shared_count"] == 1


def test_position_of_a_group_is_visible_in_metrics(tmp_path: Path) -> None:
    with (
        mqtt_server(tmp_path, session_save_ms=20) as server,
        member(server.address, "seen", "$queue/q/lag") as client,
    ):
        publish(server, "lag", range(10))
        first = client.receive(10, acknowledge=False)
        client.send(*[packets.Puback(one.packet_id) for one in first[:4]])
        wait_for(
            lambda: (
                [
                    one.offset
                    for reader, one in server.store.readers().items()
                    if reader.name == "$queue/q/lag"
                ]
                == [4]
            )
        )


@pytest.mark.parametrize("level_", [4, 5])
def test_paho_uses_a_shared_subscription(server: MqttServer, level_: int) -> None:
    topic = f"paho-shared/{level_}"
    with PahoClient(f"sa{level_}", level=level_) as a, PahoClient(f"sb{level_}", level=level_) as b:
        for client in (a, b):
            assert client.connect(server.address) == 0
            assert client.subscribe(f"$share/g/{topic}") == 1
        for number in range(40):
            a.publish(topic, b"%d" % number)
        got: list[int] = []
        while len(got) < 40:
            for client in (a, b):
                try:
                    got.append(int(client.messages.get(timeout=0.2).payload))
                except queue.Empty:
                    continue
        assert sorted(got) == list(range(40)) and a.messages.empty() and b.messages.empty()
