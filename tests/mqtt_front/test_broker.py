"""Publishing, acknowledging and disconnecting as a client of the broker sees them, over raw sockets."""

import logging
import random
from pathlib import Path

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connack, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Will
from mqtt_front.codec.properties import NO_PROPERTIES, Properties
from mqtt_front.settings import Route
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for

FULL = Properties(
    payload_format_indicator=1, content_type="text/plain", response_topic="answers", correlation_data=b"\x00\xff",
    user_properties=(("z", "1"), ("a", "2"), ("z", "1")),
)  # fmt: skip


def client(server: MqttServer, name: str, level: int = 4, *filters: str) -> RawClient:
    made = RawClient(server.address, level)
    made.connect(name)
    if filters:
        made.subscribe(*filters)
    return made


def test_properties_reach_subscribers_unaltered_and_in_order(server: MqttServer) -> None:
    with (
        client(server, "rich", 5) as publisher,
        client(server, "new", 5, "rich") as new,
        client(server, "old", 4, "rich") as old,
    ):
        publisher.send(Publish("rich", b"x", 1, packet_id=1, properties=FULL))
        publisher.expect(Puback)
        assert new.receive(1)[0].properties == FULL
        assert old.receive(1)[0].payload == b"x"


VIOLATIONS = {
    "second CONNECT": (packets.Connect("x", 5), 0x82),
    "topic with a wildcard": (Publish("a/#", b""), 0x81),
    "a packet from servers": (packets.Suback(1, (0,)), 0x82),
    "AUTH": (packets.Auth(0x18, Properties(authentication_method="x")), 0x82),
    "an alias over the maximum": (Publish("a", b"", properties=Properties(topic_alias=60_000)), 0x94),
}


@pytest.mark.parametrize(("packet", "reason"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_mqtt_5_client_gets_the_reason_before_the_connection_ends(
    server: MqttServer, packet: packets.Packet, reason: int
) -> None:
    with client(server, "bad", 5) as bad, client(server, "bystander") as bystander:
        bad.send(packet)
        assert bad.expect(Disconnect).reason == reason
        bad.expect_closed()
        bystander.expect_silence()


@pytest.mark.parametrize(
    "data", ["10 0e 0004 4d515454 04 02 003c 0002 6964", "30 05 0003 612f23", "90 03 0001 00", "ff"]
)
def test_mqtt_3_connection_is_closed_without_a_packet(server: MqttServer, data: str) -> None:
    with client(server, "bad3") as bad:
        bad.send_bytes(bytes.fromhex(data + " 00 00 00 00 00"))
        bad.expect_closed()


def test_packet_over_the_limit_is_refused_and_one_at_the_limit_accepted(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, packet_bytes=1000) as server:
        with client(server, "fits", 5) as fits:
            fits.send(Publish("t", b"x" * (1000 - 3 - 3 - 2 - 1), 1, packet_id=1))
            fits.expect(Puback)
        with client(server, "large", 5) as large:
            large.send(Publish("t", b"x" * 1000, 1, packet_id=1))
            assert large.expect(Disconnect).reason == 0x95
            large.expect_closed()


def test_exceeding_the_receive_maximum_ends_an_mqtt_5_connection(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, receive_maximum=5) as server, client(server, "eager", 5) as eager:
        eager.send(*[Publish("t", b"", 1, packet_id=n) for n in range(1, 6)])
        assert [eager.expect(Puback).packet_id for _ in range(5)] == [1, 2, 3, 4, 5]
        eager.send(*[Publish("t", b"", 1, packet_id=n) for n in range(1, 8)])
        assert eager.expect(Disconnect).reason == 0x93


@pytest.mark.slow
def test_receive_maximum_counts_a_publish_at_qos_2_until_it_is_released(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, receive_maximum=2) as server, client(server, "eager", 5) as eager:
        for _ in range(3):
            for packet_id in (1, 2):
                eager.send(Publish("t", b"", 2, packet_id=packet_id))
                assert eager.expect(Pubrec) == Pubrec(packet_id)
            eager.send(Pubrel(1), Pubrel(2))
            assert [eager.expect(Pubcomp).packet_id for _ in range(2)] == [1, 2]
        for packet_id in (1, 2):
            eager.send(Publish("t", b"", 2, packet_id=packet_id))
            eager.expect(Pubrec)
        eager.send(Publish("t", b"", 1, packet_id=3))
        assert eager.expect(Disconnect).reason == 0x93
    with mqtt_server(tmp_path / "other", receive_maximum=2) as server, client(server, "three", 4) as three:
        for packet_id in (1, 2, 3):
            three.send(Publish("t", b"", 2, packet_id=packet_id))
            three.expect(Pubrec)


@pytest.mark.parametrize("limit", [1, 3])
def test_deliveries_in_flight_stay_within_the_clients_receive_maximum(server: MqttServer, limit: int) -> None:
    with RawClient(server.address, 5) as reader, client(server, f"window-{limit}") as publisher:
        reader.connect(f"windowed-{limit}", properties=Properties(receive_maximum=limit))
        reader.subscribe(f"window/{limit}")
        for number in range(7):
            publisher.publish(f"window/{limit}", b"%d" % number)
        received: list[bytes] = []
        while len(received) < 7:
            batch = reader.receive(min(limit, 7 - len(received)), acknowledge=False)
            reader.expect_silence()
            received += [one.payload for one in batch]
            reader.send(*[Puback(one.packet_id) for one in batch])
        assert received == [b"%d" % number for number in range(7)]


def test_acknowledgement_with_a_failure_frees_the_window(server: MqttServer) -> None:
    with RawClient(server.address, 5) as reader, client(server, "failing") as publisher:
        reader.connect("refuser", properties=Properties(receive_maximum=1))
        reader.subscribe("refused")
        for payload in (b"1", b"2"):
            publisher.publish("refused", payload)
        (first,) = reader.receive(1, acknowledge=False)
        reader.send(Puback(first.packet_id, 0x80))
        assert reader.receive(1)[0].payload == b"2"


def test_message_too_large_for_a_client_is_skipped(server: MqttServer) -> None:
    with RawClient(server.address, 5) as reader, client(server, "sizes") as publisher:
        reader.connect("small", properties=Properties(maximum_packet_size=50))
        reader.subscribe("sizes")
        for size in (10, 100, 11):
            publisher.publish("sizes", b"x" * size)
        assert [len(one.payload) for one in reader.receive(2)] == [10, 11]


def test_acknowledgement_without_state_is_answered_with_packet_id_not_found(server: MqttServer) -> None:
    for level, reason in ((4, 0), (5, 0x92)):
        with client(server, "stray", level) as stray:
            stray.send(packets.Puback(9), packets.Pubcomp(9), packets.Pubrel(8), packets.Pubrec(7))
            assert stray.expect(packets.Pubcomp) == packets.Pubcomp(8, reason)
            assert stray.expect(packets.Pubrel) == packets.Pubrel(7, reason)
            stray.expect_silence()


def test_routes_send_topics_to_their_logs_and_subscriptions_read_all(tmp_path: Path) -> None:
    routes = (Route(filter="alarms/#", log="alarms"), Route(filter="+/temperature", log="temperatures"))
    with mqtt_server(tmp_path, routes=routes) as server, client(server, "all", 4, "#") as reader:
        with client(server, "publisher") as publisher:
            publisher.send(*[
                Publish(topic, b"%d" % number, 1, packet_id=number + 1)
                for number, topic in enumerate(["alarms/temperature", "a/temperature", "other", "alarms/x"])
            ])  # fmt: skip
            assert [publisher.expect(Puback).packet_id for _ in range(4)] == [1, 2, 3, 4]
        assert sorted(one.payload for one in reader.receive(4)) == [b"0", b"1", b"2", b"3"]
        topics = {
            name: [r.topic for r in server.store.log(name).reader()]
            for name in ("alarms", "temperatures", "mqtt")
        }
        assert topics == {
            "alarms": ["alarms/temperature", "alarms/x"], "temperatures": ["a/temperature"], "mqtt": ["other"],
        }  # fmt: skip


def will_watcher(server: MqttServer, topic: str) -> RawClient:
    return client(server, f"watcher of {topic}", 5, topic)


@pytest.mark.parametrize("level", [4, 5])
def test_will_is_published_when_the_connection_is_lost(server: MqttServer, level: int) -> None:
    with will_watcher(server, f"will/{level}") as watcher:
        with RawClient(server.address, level) as mortal:
            mortal.connect("mortal", will=Will(f"will/{level}", b"bye", 1))
        (received,) = watcher.receive(1)
        assert (received.payload, received.qos) == (b"bye", 1)


def test_will_is_published_after_a_disconnect_only_on_request(server: MqttServer) -> None:
    with will_watcher(server, "wills/+") as watcher:
        for name, reason in (("quiet", 0), ("loud", 4)):
            with RawClient(server.address, 5) as mortal:
                mortal.connect(name, will=Will(f"wills/{name}", b"bye", 1))
                mortal.send(Disconnect(reason))
                mortal.expect_closed()
        assert [one.topic for one in watcher.receive(1)] == ["wills/loud"]
        watcher.expect_silence()


def test_a_will_is_published_on_takeover_and_on_a_protocol_error(server: MqttServer) -> None:
    with will_watcher(server, "ended/+") as watcher:
        with RawClient(server.address, 5) as first, RawClient(server.address, 5) as second:
            first.connect("one", will=Will("ended/takeover", b""))
            second.connect("one")
            assert [one.topic for one in watcher.receive(1)] == ["ended/takeover"]
        with RawClient(server.address, 4) as bad:
            bad.connect("bad", will=Will("ended/error", b""))
            bad.send(packets.Connect("bad", 4))
            assert [one.topic for one in watcher.receive(1)] == ["ended/error"]


def test_delayed_will_is_cancelled_by_a_reconnect(tmp_path: Path) -> None:
    lasting = Properties(session_expiry_interval=60)
    with (
        mqtt_server(tmp_path, clock=StepClock()) as server,
        will_watcher(server, "delayed/+") as watcher,
    ):
        for name, returns in (("back", True), ("gone", False)):
            will = Will(f"delayed/{name}", b"", properties=Properties(will_delay_interval=10))
            with RawClient(server.address, 5) as mortal:
                mortal.connect(name, will=will, properties=lasting)
            wait_for(lambda: server.status()["connections"] == 1)
            if returns:
                with RawClient(server.address, 5) as again:
                    assert again.connect(name, clean=False, properties=lasting).session_present
                    again.send(Disconnect())
                    again.expect_closed()
        server.pass_time(9)
        watcher.expect_silence()
        server.pass_time(2)
        assert [one.topic for one in watcher.receive(1)] == ["delayed/gone"]
        watcher.expect_silence()


def test_keep_alive_ends_a_silent_client_and_no_other(server: MqttServer) -> None:
    with (
        server.standing_still(),
        RawClient(server.address, 5) as silent,
        RawClient(server.address, 5) as patient,
        RawClient(server.address) as pinging,
    ):
        pinging.connect("pinging", keep_alive=60)
        silent.connect("silent", keep_alive=60)
        patient.connect("patient", keep_alive=0)
        for _ in range(4):  # for longer than the one that pings could have been silent
            server.pass_time(25)
            pinging.expect_silence()
        assert silent.expect(Disconnect).reason == 0x8D
        silent.expect_closed()
        patient.expect_silence()
        pinging.expect_silence()


def test_connections_are_logged_with_address_and_id_and_a_normal_end_not_as_an_error(
    server: MqttServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="timestone.mqtt"):
        with client(server, "logged\u2028id") as one:
            host, port = one.socket.getsockname()
            one.send(Publish("t", b"secret payload"), Disconnect())
            one.expect_closed()
        wait_for(lambda: any("logged" in line and "disconnected" in line for line in caplog.messages))
    lines = [record for record in caplog.records if "logged" in record.getMessage()]
    assert [record.levelname for record in lines] == ["INFO", "INFO"]
    assert all(f"client 'logged\\u2028id' at {host}:{port}" in record.getMessage() for record in lines)
    assert "secret" not in caplog.text


def test_refusals_and_violations_are_logged_as_warnings(
    server: MqttServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="timestone.mqtt"):
        with RawClient(server.address, 5) as refused:
            refused.send(packets.Connect("refused", 5, properties=Properties(authentication_method="none")))
            assert refused.expect(Connack).reason == 0x8C
            refused.expect_closed()
        with client(server, "breaker") as breaker:
            breaker.send(packets.Connect("breaker"))
            breaker.expect_closed()
        wait_for(lambda: len(caplog.messages) == 2)
    assert "client 'refused'" in caplog.messages[0]
    assert "refused: " in caplog.messages[0]
    assert "client 'breaker'" in caplog.messages[1]
    assert "disconnected: second CONNECT on one connection" in caplog.messages[1]


def test_a_connack_comes_before_anything_else(server: MqttServer) -> None:
    with RawClient(server.address) as sleeper, client(server, "waker") as publisher:
        sleeper.connect("sleeper", clean=False)
        sleeper.subscribe("sleep")
        sleeper.close()
        publisher.publish("sleep", b"x")
        with RawClient(server.address) as awake:
            awake.send(packets.Connect("sleeper", 4, False))
            assert awake.expect(Connack).session_present
            assert awake.receive(1)[0].payload == b"x"


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_plain_and_other_publishes_of_a_client_keep_their_order(
    server: MqttServer, level: int, seed: int
) -> None:
    """Most are taken from the receive buffer at once; some need the general path, with pings in between."""
    rng, topic = random.Random(seed), f"mixed/{level}/{seed}"
    sent: list[packets.Packet] = []
    for number in range(1, 400):
        qos, payload = rng.choice([0, 1, 1, 1, 2]), b"%d" % number * rng.choice([1, 10, 300])
        rich = level == 5 and rng.random() < 0.1
        properties = Properties(user_properties=(("n", "1"),)) if rich else NO_PROPERTIES
        retain = rng.random() < 0.05
        sent.append(
            Publish(topic, payload, qos, retain, packet_id=number if qos else 0, properties=properties)
        )
        if rng.random() < 0.05:
            sent.append(packets.Pingreq())
    sent.append(
        Publish(topic, b"last", 1, packet_id=400)
    )  # when this is answered, all before it are in the log
    published = [one for one in sent if isinstance(one, Publish)]
    data = b"".join(encode_packet(one, level) for one in sent)
    with client(server, f"mixed-{level}-{seed}", level) as mixed:
        mixed.send(Publish(topic, b"first", 1, packet_id=1))
        mixed.expect(Puback)
        while data:
            size = rng.choice([1, 7, 200, 5000, 30_000])
            mixed.send_bytes(data[:size])
            data = data[size:]
        answers: list[int] = []
        while len(answers) < sum(1 for one in published if one.qos):
            answer = mixed.next_packet()
            if isinstance(answer, Puback | Pubrec):
                answers.append(answer.packet_id)
    assert answers == [one.packet_id for one in published if one.qos]
    reader = server.store.log("mqtt").reader(topics=topic)
    assert [one.payload for one in reader] == [b"first", *(one.payload for one in published)]
