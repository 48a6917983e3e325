"""SUBSCRIBE and UNSUBSCRIBE from outside: a reason for each filter, no message missed, none after UNSUBACK."""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.packets import Disconnect, Publish, Request, Unsuback
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server


@pytest.fixture(params=[4, 5])
def client(server: MqttServer, request: pytest.FixtureRequest) -> Iterator[RawClient]:
    with RawClient(server.address, request.param) as made:
        made.connect(f"client-{request.node.name}")
        yield made


@pytest.fixture
def other(server: MqttServer, request: pytest.FixtureRequest) -> Iterator[RawClient]:
    with RawClient(server.address) as made:
        made.connect(f"other-{request.node.name}")
        yield made


def test_suback_has_one_reason_for_each_filter_in_order(client: RawClient) -> None:
    new = client.level == 5
    reasons = client.subscribe(
        Request("a", 0),
        Request("a/#/b", 1),
        Request("b", 1),
        Request("c", 2),
        Request("$share/g/t", 1),
        Request("+x", 0),
    )
    assert reasons == ((0, 0x8F, 1, 2, 1, 0x8F) if new else (0, 0x80, 1, 2, 1, 0x80))


def test_unsuback_has_one_reason_for_each_filter(client: RawClient) -> None:
    client.subscribe("u/1", "u/2")
    client.send(packets.Unsubscribe(9, ("u/2", "unknown", "u/1")))
    answer = client.expect(Unsuback)
    assert answer.packet_id == 9
    assert answer.reasons == ((0, 0x11, 0) if client.level == 5 else ())
    client.expect_silence()


def test_empty_filter_ends_the_connection(client: RawClient) -> None:
    client.send(packets.Subscribe(1, (Request(""),)))
    if client.level == 5:
        assert client.expect(Disconnect).reason == 0x81
    client.expect_closed()


def test_subscriber_misses_no_message_published_after_suback(client: RawClient, other: RawClient) -> None:
    topic = f"fresh/{client.level}"
    other.publish(topic, b"too early")
    client.subscribe(topic)
    other.publish(topic, b"in time")
    assert [one.payload for one in client.receive(1)] == [b"in time"]


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("w/#", "w", True), ("w/#", "w/a/b", True), ("w/+", "w/a", True), ("w/+", "w/a/b", False),
        ("w/+", "w/", True), ("+/w", "/w", True), ("/w", "w", False), ("W", "w", False), ("w//a", "w//a", True),
        ("#", "$dollar/w", False), ("$dollar/#", "$dollar/w", True), ("+/w", "$dollar/w", False),
    ],
)  # fmt: skip
def test_filters_match_as_the_specification_says(
    server: MqttServer, other: RawClient, topic_filter: str, topic: str, matches: bool
) -> None:
    with RawClient(server.address) as client:
        client.connect(f"matcher {topic_filter} {topic}")
        client.subscribe(topic_filter, "marker")
        other.publish(topic, b"x")
        other.publish("marker", b"end")
        received: list[bytes] = []
        while received[-1:] != [b"end"]:  # messages retained by other tests may arrive in between
            received += [one.payload for one in client.receive(1) if not one.retain]
        assert received == ([b"x", b"end"] if matches else [b"end"])


def test_overlapping_filters_give_one_copy_at_the_highest_qos(client: RawClient, other: RawClient) -> None:
    base = f"overlap/{client.level}"
    client.subscribe(Request(f"{base}/#", 0), Request(f"{base}/+", 1), Request(f"{base}/x", 0))
    other.publish(f"{base}/x", b"1")
    assert [(one.payload, one.qos) for one in client.receive(1)] == [(b"1", 1)]
    client.expect_silence()


def test_subscribing_to_the_same_filter_replaces_the_subscription(
    client: RawClient, other: RawClient
) -> None:
    topic = f"again/{client.level}"
    assert client.subscribe(Request(topic, 1)) == (1,)
    other.publish(topic, b"1")
    assert [one.qos for one in client.receive(1)] == [1]
    assert client.subscribe(Request(topic, 0)) == (0,)
    other.publish(topic, b"2")
    assert [(one.payload, one.qos) for one in client.receive(1)] == [(b"2", 0)]
    client.expect_silence()


def test_no_message_is_delivered_after_unsuback(client: RawClient, other: RawClient) -> None:
    topic = f"ended/{client.level}"
    client.subscribe(topic)
    client.send(packets.Unsubscribe(1, (topic,)))
    client.expect(Unsuback)
    other.publish(topic, b"x")
    client.expect_silence()


def test_deliveries_in_flight_can_be_acknowledged_after_unsubscribe(
    server: MqttServer, other: RawClient
) -> None:
    with RawClient(server.address) as client:
        client.connect("leaver", clean=False)
        client.subscribe("leave")
        other.publish("leave", b"x")
        (sent,) = client.receive(1, acknowledge=False)
        client.send(packets.Unsubscribe(1, ("leave",)))
        client.expect(Unsuback)
    with RawClient(server.address) as client:
        client.connect("leaver", clean=False)
        (again,) = client.receive(1)
        assert (again.packet_id, again.duplicate) == (sent.packet_id, True)
        client.expect_silence()
    with RawClient(server.address) as client:
        client.connect("leaver", clean=False)
        client.expect_silence()


def test_deliveries_carry_subscription_identifiers(server: MqttServer, other: RawClient) -> None:
    with RawClient(server.address, 5) as client:
        client.connect("identified")
        client.subscribe("id/#", properties=Properties(subscription_identifiers=(5,)))
        client.subscribe("id/+", properties=Properties(subscription_identifiers=(268_435_455,)))
        client.subscribe("id/a/b")
        other.publish("id/a", b"both")
        other.publish("id/a/b", b"one")
        both, one = client.receive(2)
        assert sorted(both.properties.subscription_identifiers) == [5, 268_435_455]
        assert one.properties.subscription_identifiers == (5,)


def test_no_local_compares_client_ids(server: MqttServer, other: RawClient) -> None:
    with RawClient(server.address, 5) as client:
        client.connect("narcissus")
        client.subscribe(Request("pond", 1, no_local=True))
        client.publish("pond", b"mine")
        other.publish("pond", b"yours")
        assert [one.payload for one in client.receive(1)] == [b"yours"]
        client.send(packets.Subscribe(1, (Request("$share/g/pond", 1, no_local=True),)))
        assert client.expect(Disconnect).reason == 0x82


@pytest.mark.parametrize("level", [3, 4])
def test_bridge_gets_retain_flags_and_none_of_its_own_messages(
    server: MqttServer, other: RawClient, level: int
) -> None:
    topic = f"bridged/{level}"
    with RawClient(server.address, level) as client:
        client.send(packets.Connect(f"bridge{level}", level, bridge=True))
        assert client.expect(packets.Connack).reason == 0
        client.subscribe(topic, f"$share/g/{topic}/shared")
        client.publish(topic, b"mine")
        client.send(Publish("$SYS/broker/connection/edge/state", b"1", 1, True, packet_id=2))
        assert client.expect(packets.Puback) == packets.Puback(2)
        other.send(Publish(topic, b"kept", 1, True, packet_id=1))
        other.expect(packets.Puback)
        assert [(one.payload, one.retain) for one in client.receive(1)] == [(b"kept", True)]
        client.publish(f"{topic}/shared", b"to one of the group")
        assert [one.payload for one in client.receive(1)] == [b"to one of the group"]


def test_subscriptions_over_the_limit_are_refused_one_by_one_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        mqtt_server(tmp_path, subscription_count=2, topic_levels=3) as server,
        RawClient(server.address, 5) as client,
    ):
        client.connect("many")
        assert client.subscribe("1", "2", "3", "1") == (1, 1, 0x97, 1)
        assert client.subscribe("a/b/c/d") == (0x8F,)
        client.send(Publish("a/b/c/d", b"", 1, packet_id=1))
        assert client.expect(packets.Puback).reason == 0x90
        assert client.subscribe("$stream/nolog", "$share/g/$SYS/#") == (0x8F, 0x8F)
    for why in (
        "'3': subscription_count is 2",
        "'a/b/c/d': topic_levels is 3",
        "nolog': no log named 'nolog'",
        "$SYS/#': no log has these topics",
    ):
        assert f"{why} (" in caplog.text


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("ack", ["memory", "written", "synced"])
@pytest.mark.parametrize("permitted", [False, True])
def test_subscription_excludes_earlier_publishes_of_the_same_packet_burst(
    tmp_path: Path, ack: str, qos: int, permitted: bool
) -> None:
    """Packets of a connection take effect in their order, whichever way its publishes take."""
    settings: dict[str, Any] = {"client_publishes_per_s": 1_000_000} if permitted else {}
    with mqtt_server(tmp_path, ack=ack, **settings) as server, RawClient(server.address, 5) as client:
        client.connect("both")
        publishes = [Publish("own", b"before", qos, packet_id=qos and number) for number in range(1, 51)]
        request = Request("own", 0, retain_handling=2)
        client.send(*publishes, packets.Subscribe(60, (request,)), Publish("own", b"after"))
        received: list[bytes] = []
        while not received:
            packet = client.next_packet()
            received += [packet.payload] if isinstance(packet, Publish) else []
        assert received == [b"after"]


def test_subscribe_is_dropped_when_a_publish_of_its_burst_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mqtt_server(tmp_path, topic_levels=2) as server, RawClient(server.address, 4) as client:
        client.connect("both")
        client.send(Publish("a/b/c", b"", 1, packet_id=1), packets.Subscribe(2, (Request("own"),)))
        client.expect_closed()
    assert "TOPIC_NAME_INVALID" in caplog.text
    assert "Traceback" not in caplog.text


def calls_counted(server: MqttServer, work: Callable[[], object]) -> int:
    """Calls of functions, compiled ones too, in the thread of the event loop."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    server.call(lambda: sys.setprofile(note))
    work()
    server.call(lambda: sys.setprofile(None))
    return count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prefix", "portion", "growth"),
    [
        ("", 400, 1.2),
        ("", 100, 1.2),
        ("+/", 400, 1.2),
        ("+/", 100, 1.2),
        # Each of these has a separate feed, and a packet examines every feed once.
        ("$share/g/", 400, 3.0),
        ("$queue/q/", 400, 3.0),
        ("$stream/mqtt/", 400, 3.0),
    ],
)
def test_subscribe_and_unsubscribe_cost_the_same_for_each_filter_when_the_session_has_many(
    tmp_path: Path, prefix: str, portion: int, growth: float
) -> None:
    """Also when the filters are there already. Counted in calls of functions."""
    filters = [f"{prefix}d/{number}" for number in range(2400)]
    places = range(0, len(filters), 400)

    def subscribe(gateway: RawClient, place: int) -> None:
        for start in range(place, place + 400, portion):
            requests = tuple(Request(one, 1) for one in filters[start : start + portion])
            gateway.send(packets.Subscribe(1, requests))
            assert set(gateway.expect(packets.Suback).reasons) == {1}

    def unsubscribe(gateway: RawClient, place: int) -> None:
        for start in range(place, place + 400, portion):
            gateway.send(packets.Unsubscribe(1, tuple(filters[start : start + portion])))
            assert set(gateway.expect(Unsuback).reasons) == {0}

    with (
        mqtt_server(tmp_path, subscription_count=2400, session_save_ms=3_600_000) as server,
        server.standing_still(),
        RawClient(server.address, 5) as gateway,
    ):

        def costs(work: Callable[[RawClient, int], None], places: Sequence[int]) -> list[int]:
            return [calls_counted(server, functools.partial(work, gateway, place)) for place in places]

        gateway.connect("gateway", clean=False, properties=Properties(session_expiry_interval=3600))
        subscribing = costs(subscribe, places)
        again = costs(subscribe, [0, 800])
        unsubscribing = costs(unsubscribe, places)
    for found in (subscribing, [*subscribing[:1], *again], unsubscribing[::-1]):
        assert max(found) < growth * found[0], found
