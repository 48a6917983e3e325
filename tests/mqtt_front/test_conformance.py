"""Statements of the specification that no other file tests, each from outside. docs/conformance.md lists which test
covers which statement."""

import time

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.packets import (
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Request,
    Suback,
    Subscribe,
    Unsuback,
)
from mqtt_front.codec.properties import Properties
from mqtt_front.runtime.clocks import PassingTime
from tests.mqtt_front.feeds.test_shared_feed import collect, numbers
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer
from tests.support.waiting import wait_for

LEVELS = pytest.mark.parametrize("level", [3, 4, 5])
LASTING = Properties(session_expiry_interval=600)


def connected(server: MqttServer, name: str, level: int = 5, **options: object) -> RawClient:
    client = RawClient(server.address, level)
    client.connect(name, **options)  # type: ignore[arg-type]
    return client


@LEVELS
def test_packet_id_is_a_new_message_after_puback_with_and_without_dup(server: MqttServer, level: int) -> None:
    with connected(server, "same-id", level) as client:
        client.subscribe(f"same/{level}")
        for number in range(3):
            client.send(Publish(f"same/{level}", b"%d" % number, 1, duplicate=number > 0, packet_id=5))
            answers = [client.next_packet(), client.next_packet()]
            assert Puback(5) in answers
            (delivery,) = [one for one in answers if isinstance(one, Publish)]
            assert (delivery.payload, delivery.duplicate) == (b"%d" % number, False), (
                "DUP is about one connection"
            )
            client.send(Puback(delivery.packet_id))


@LEVELS
def test_packet_id_is_a_new_message_after_pubcomp(server: MqttServer, level: int) -> None:
    before = server.store.log("mqtt").end_offset
    with connected(server, "released", level) as client:
        for _ in range(2):
            client.send(
                Publish("once", b"", 2, packet_id=5), Publish("once", b"", 2, duplicate=True, packet_id=5)
            )
            assert [client.expect(Pubrec).packet_id for _ in range(2)] == [5, 5]
            client.send(Pubrel(5))
            assert client.expect(Pubcomp).packet_id == 5
    assert server.store.log("mqtt").end_offset == before + 2


@LEVELS
def test_messages_of_one_publisher_keep_their_order_across_all_qos(server: MqttServer, level: int) -> None:
    with connected(server, "orderly", level) as subscriber, connected(server, "sender", level) as publisher:
        subscriber.subscribe(Request(f"order/{level}", 2))
        publisher.send(*[
            Publish(f"order/{level}", b"%d" % n, n % 3, packet_id=n + 1 if n % 3 else 0) for n in range(60)
        ])  # fmt: skip
        received: list[int] = []
        while len(received) < 60:
            packet = subscriber.next_packet()
            if isinstance(packet, Publish):
                received.append(int(packet.payload))
                subscriber.send(
                    *[Puback(packet.packet_id)] * (packet.qos == 1),
                    *[Pubrec(packet.packet_id)] * (packet.qos == 2),
                )
            elif isinstance(packet, Pubrel):
                subscriber.send(Pubcomp(packet.packet_id))
        assert received == list(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
def test_delivery_is_not_resent_on_the_same_connection(server: MqttServer, level: int) -> None:
    with connected(server, "slow", level) as client:
        client.subscribe(f"again/{level}")
        client.publish(f"again/{level}", b"x")
        assert not client.receive(1, acknowledge=False)[0].duplicate
        time.sleep(1.2)
        client.expect_silence()


@pytest.mark.slow
def test_a_session_with_little_time_is_kept_while_its_client_is_connected(server: MqttServer) -> None:
    short = Properties(session_expiry_interval=1)
    with connected(server, "short", clean=False, properties=short) as client:
        client.subscribe("kept")
        time.sleep(1.7)
        client.publish("kept", b"x")
        assert len(client.receive(1)) == 1
        with RawClient(server.address, 5) as again:  # before the first is gone: from then on a second counts
            assert again.connect("short", clean=False, properties=short).session_present


def test_delivery_in_flight_is_resent_after_it_expired(
    server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(server, "late", clean=False, properties=LASTING) as client:
        client.subscribe("expiring")
        client.send(
            Publish("expiring", b"x", 1, packet_id=1, properties=Properties(message_expiry_interval=1000))
        )
        (first,) = [one for one in (client.next_packet(), client.next_packet()) if isinstance(one, Publish)]
    monkeypatch.setattr(PassingTime, "age_us", lambda self, timestamp_us: 1_001_000_000)
    with RawClient(server.address, 5) as client:
        assert client.connect("late", clean=False, properties=LASTING).session_present
        (again,) = client.receive(1)
        assert (again.packet_id, again.duplicate, again.payload) == (first.packet_id, True, b"x")


def test_problem_information_0_omits_reason_strings_except_where_always_allowed(
    server: MqttServer,
) -> None:
    silent = Properties(request_problem_information=0)
    with connected(server, "silent", properties=silent) as client:
        client.send(Publish("$SYS/x", b"", 1, packet_id=1))
        assert client.expect(Puback) == Puback(1, 0x87)
        client.send(Subscribe(2, (Request("a/#/b"),)))
        assert client.expect(Suback) == Suback(2, (0x8F,))
        client.send(Pubrel(9))
        assert client.expect(Pubcomp) == Pubcomp(9, 0x92)
        client.send(Pubrec(9))
        assert client.expect(Pubrel) == Pubrel(9, 0x92)


def test_packets_other_than_publishes_are_sent_at_a_quota_of_zero(server: MqttServer) -> None:
    with connected(server, "full", properties=Properties(receive_maximum=1)) as client:
        client.subscribe("quota")
        client.publish("quota", b"1")
        client.receive(1, acknowledge=False)
        client.publish("quota", b"2", packet_id=2)
        assert client.subscribe("other") == (1,)
        client.expect_silence()


def test_aliases_end_with_their_connection_and_up_to_the_maximum_are_accepted(server: MqttServer) -> None:
    with RawClient(server.address, 5) as client:
        offered = client.connect("aliases", clean=False, properties=LASTING).properties.topic_alias_maximum
        assert offered
        for alias in range(1, offered + 1):
            client.send(
                Publish(f"alias/{alias}", b"", 1, packet_id=1, properties=Properties(topic_alias=alias))
            )
            client.send(Publish("", b"", 1, packet_id=1, properties=Properties(topic_alias=alias)))
            assert [client.expect(Puback).reason for _ in range(2)] == [0, 0]
    with RawClient(server.address, 5) as client:
        assert client.connect("aliases", clean=False, properties=LASTING).session_present
        client.send(Publish("", b"", 1, packet_id=1, properties=Properties(topic_alias=1)))
        assert client.expect(Disconnect).reason == 0x82
        client.expect_closed()


@LEVELS
def test_topics_are_compared_code_point_by_code_point(server: MqttServer, level: int) -> None:
    with connected(server, "code-points", level) as client:
        composed, decomposed, marked = "caf\u00e9", "cafe\u0301", "\ufeffcaf\u00e9"
        client.subscribe(composed)
        for number, topic in enumerate((decomposed, marked, "CAF\u00c9", composed), 1):
            client.publish(topic, b"%d" % number, packet_id=number)
        assert [(one.topic, one.payload) for one in client.receive(1)] == [(composed, b"4")]
        client.subscribe(marked)
        client.publish(marked, b"5")
        assert client.receive(1)[0].topic == marked, "U+FEFF is not stripped"


@LEVELS
def test_unsubscribe_ends_exactly_the_filter_that_it_names(server: MqttServer, level: int) -> None:
    with connected(server, "exact", level) as client:
        client.subscribe("exact/b", "exact/c")
        client.send(packets.Unsubscribe(1, ("exact/+", "exact/c")))
        answer = client.expect(Unsuback)
        assert answer.reasons == ((0x11, 0) if level == 5 else ())
        client.publish("exact/c", b"no", packet_id=2)
        client.publish("exact/b", b"yes", packet_id=3)
        assert [one.payload for one in client.receive(1)] == [b"yes"]


@LEVELS
def test_publish_without_retain_keeps_the_retained_message(server: MqttServer, level: int) -> None:
    topic = f"left/alone/{level}"
    with connected(server, "alone", level) as client:
        client.send(Publish(topic, b"kept", 1, True, packet_id=1))
        client.expect(Puback)
        client.publish(topic, b"live", packet_id=2)
        client.publish(topic, b"", packet_id=3)
        client.subscribe(topic)
        assert [(one.payload, one.retain) for one in client.receive(1)] == [(b"kept", True)]
        client.expect_silence()


def test_client_takes_over_a_session_of_another_protocol_version(server: MqttServer) -> None:
    with connected(server, "mixed", 4, clean=False) as old, RawClient(server.address, 5) as new:
        old.subscribe("mixed")
        old.send(Publish("mixed", b"x", 2, packet_id=9))
        wait_for(lambda: isinstance(old.next_packet(), Pubrec))
        assert new.connect("mixed", clean=False, properties=LASTING).session_present
        while (packet := old.next_packet()) is not None:
            assert not isinstance(packet, Disconnect), "MQTT 3 has no word for it"
        new.send(Publish("mixed", b"x", 2, duplicate=True, packet_id=9))
        answers = [new.next_packet(), new.next_packet()]
        assert Pubrec(9) in answers, "the half-finished exchange moves with the session"
        assert [record.payload for record in server.store.log("mqtt").reader()].count(b"x") >= 1


@LEVELS
def test_burst_for_a_shared_subscription_is_spread_over_members(server: MqttServer, level: int) -> None:
    members = [connected(server, f"member-{number}", level) for number in range(2)]
    for member in members:
        assert member.subscribe(Request(f"$share/burst/burst/{level}", 0)) == (0,)
    with connected(server, "burst", level) as publisher:
        publisher.send(*[Publish(f"burst/{level}", b"%d" % number) for number in range(10)])
        publisher.expect_silence()
    received = collect(10, *members)
    assert all(received)
    assert sorted(number for each in received for number in numbers(each)) == list(range(10))
    for member in members:
        member.close()
