"""`$SYS`: the values that mosquitto's monitors expect, for permitted clients, without work for others."""

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import timestone
from mqtt_front.codec.packets import Publish, Request, Suback, Subscribe, Unsuback, Unsubscribe
from mqtt_front.codec.properties import Properties
from mqtt_front.delivery.system_topics import SystemTopics
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.sessions.session import Session
from tests.support.mqtt_clients import FakeClient, RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttServer]:
    """A server whose interval does not pass during its tests: each value is sent once."""
    with mqtt_server(tmp_path_factory.mktemp("mqtt"), system_interval_s=86_400) as running:
        yield running


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Counters(dict[str, int]):
    """All counters, and how often they were read."""

    looks = 0

    def __missing__(self, name: str) -> int:
        return 0

    def __call__(self) -> Mapping[str, int]:
        self.looks += 1
        return self


def monitor(*filters: str, level: int = 4, **options: object) -> tuple[Session, FakeClient]:
    session, client = Session("monitor"), FakeClient(level)
    session.client = client
    for one in filters:
        session.subscribe(Subscription(one, 1, **options), [])  # type: ignore[arg-type]
    return session, client


def test_subscriber_gets_all_values_first_and_then_changes() -> None:
    clock, counters = Clock(), Counters(sessions_connected=3)
    system = SystemTopics(counters, "1.2", 10, clock)
    session, client = monitor("$SYS/broker/clients/+", "$SYS/broker/version")
    system.greet(session, "$SYS/broker/clients/+")
    told = {one.topic: (one.payload, one.retain, one.qos) for one in client.take()}
    assert told["$SYS/broker/clients/connected"] == (b"3", True, 0)
    assert len(told) == 5
    clock.now += 10
    system.tick([session])
    assert len(client.take()) == 6, "the first interval with a subscriber tells everything"
    counters["sessions_connected"] = 4
    clock.now += 9
    system.tick([session])
    assert client.take() == []
    clock.now += 1
    system.tick([session])
    assert [(one.topic, one.payload, one.retain) for one in client.take()] == [
        ("$SYS/broker/clients/connected", b"4", False)
    ]


def test_system_messages_are_not_made_without_a_subscriber() -> None:
    clock, counters = Clock(), Counters()
    system = SystemTopics(counters, "1", 10, clock)
    session, client = monitor("#", "+/broker/version")
    for _ in range(100):
        clock.now += 1
        system.tick([session])
    assert client.take() == []
    assert counters.looks == 10, "only the averages are kept up to date"


def test_slow_or_limited_subscriber_gets_the_values_that_fit() -> None:
    clock = Clock()
    system = SystemTopics(Counters(), "1", 10, clock)
    session, client = monitor("$SYS/#")
    client.writable = False
    system.greet(session, "$SYS/#")
    assert client.take() == []
    client.writable = True
    client.target = client.target._replace(packet_bytes=40)
    system.greet(session, "$SYS/#")
    topics = {one.topic for one in client.take()}
    assert "$SYS/broker/uptime" in topics and all(len(topic) < 40 for topic in topics)


def test_system_messages_carry_subscription_identifiers() -> None:
    system = SystemTopics(Counters(), "1", 10)
    session, client = monitor("$SYS/broker/uptime", level=5, identifier=7)
    system.greet(session, "$SYS/broker/uptime")
    assert [one.properties.subscription_identifiers for one in client.take()] == [(7,)]


@pytest.mark.parametrize("level", [4, 5])
def test_system_topics_are_readable_over_mqtt(server: MqttServer, level: int) -> None:
    with RawClient(server.address, level) as other, RawClient(server.address, level) as client:
        other.connect(f"other-{level}")
        other.publish("t", b"x" * 1000)
        client.connect(f"monitor-{level}")
        assert client.subscribe("$SYS/#", "#") == (1, 1)
        values: dict[str, str] = {}
        while "$SYS/broker/timestone/records" not in values:
            packet = client.expect(Publish)
            values[packet.topic] = packet.payload.decode()
        assert values["$SYS/broker/version"] == f"timestone {timestone.__version__}"
        assert re.fullmatch(r"\d+ seconds", values["$SYS/broker/uptime"])
        assert values["$SYS/broker/clients/connected"] == "2"
        assert int(values["$SYS/broker/messages/received"]) >= 4
        assert int(values["$SYS/broker/publish/messages/received"]) >= 1
        assert int(values["$SYS/broker/bytes/received"]) > 1000
        assert int(values["$SYS/broker/store/messages/count"]) >= 1
        assert int(values["$SYS/broker/subscriptions/count"]) == 2
        assert float(values["$SYS/broker/load/messages/received/1min"]) >= 0
        client.send(Unsubscribe(9, ("$SYS/#",)))
        client.expect(Unsuback)
        client.expect_silence()


def test_retain_handling_determines_the_initial_values(server: MqttServer) -> None:
    topic = "$SYS/broker/uptime"
    with RawClient(server.address, 5) as client:
        client.connect("retain-handling")
        brought = []
        for handling in (2, 1, 1, 0):
            client.send(Subscribe(1, (Request(topic, 0, retain_handling=handling),)))
            client.expect(Suback)
            client.send(Subscribe(2, (Request("nothing"),)))
            packet, count = client.next_packet(), 0
            while isinstance(packet, Publish):
                count += 1
                packet = client.next_packet()
            brought.append(count)
            if handling == 2:
                client.send(Unsubscribe(3, (topic,)))
                client.expect(Unsuback)
        assert brought == [0, 1, 0, 1]


@pytest.mark.slow
def test_changes_are_sent_while_connected_and_the_subscription_is_kept(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, system_interval_s=10) as server:
        clock, broker = Clock(), server.front._broker
        assert broker is not None
        clock.now = time.monotonic()
        broker.system._clock = clock
        with RawClient(server.address) as client:
            client.connect("monitor", clean=False)
            client.subscribe("$SYS/broker/uptime")
            clock.now += 10  # the next tick will notice
            first, second = (int(one.payload.split()[0]) for one in client.receive(2))
            assert second == first + 10
        with RawClient(server.address) as client:
            assert client.connect("monitor", clean=False).session_present
            clock.now += 10
            assert client.receive(1)[0].topic == "$SYS/broker/uptime"


def test_system_topics_follow_access_rules_and_can_be_turned_off(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite #\nuser monitor\ntopic read $SYS/broker/clients/#\n")
    with mqtt_server(tmp_path / "rules", acl_file=acl) as server, RawClient(server.address) as client:
        client.connect("anybody")
        assert client.subscribe("$SYS/#") == (0x80,)
        client.expect_silence()
    with mqtt_server(tmp_path / "off", system_interval_s=0) as server, RawClient(server.address, 5) as client:
        client.connect("monitor", properties=Properties())
        assert client.subscribe("$SYS/#") == (1,)
        client.expect_silence()
