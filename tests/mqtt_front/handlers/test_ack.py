"""QoS 2 from outside, in both directions and across every interruption: exactly once."""

from pathlib import Path

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Request
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import MqttServer, mqtt_server


@pytest.fixture(params=[4, 5])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def lasting(server: MqttServer, client_id: str, level: int = 4) -> RawClient:
    """A connection of a client whose session outlives it."""
    client = RawClient(server.address, level)
    wanted = Properties(session_expiry_interval=1000) if level == 5 else None
    client.connect(client_id, clean=False, properties=wanted)
    return client


def stored(server: MqttServer, topic: str) -> list[bytes]:
    return [record.payload for record in server.store.log("mqtt").reader(topics=topic)]


def test_publish_at_qos_2_completes_the_exchange(server: MqttServer, level: int) -> None:
    topic = f"exchange/{level}"
    with lasting(server, f"exchange{level}", level) as client:
        client.send(Publish(topic, b"1", 2, packet_id=5))
        assert client.expect(Pubrec) == Pubrec(5)
        assert stored(server, topic) == [b"1"], "stored when it is received"
        client.send(Pubrel(5))
        assert client.expect(Pubcomp) == Pubcomp(5)
        client.send(Publish(topic, b"2", 2, packet_id=5))
        assert client.expect(Pubrec) == Pubrec(5)
        assert stored(server, topic) == [b"1", b"2"], "the id was free again"


def test_publish_repeated_before_its_release_is_stored_once(server: MqttServer, level: int) -> None:
    topic = f"again/{level}"
    with lasting(server, f"again{level}", level) as client:
        client.send(*[Publish(topic, b"x", 2, duplicate=bool(n), packet_id=5) for n in range(3)])
        assert [client.expect(Pubrec).packet_id for _ in range(3)] == [5, 5, 5]
    with lasting(server, f"again{level}", level) as client:
        client.send(
            Publish(topic, b"x", 2, duplicate=True, packet_id=5), Publish(topic, b"y", 2, packet_id=6)
        )
        assert [client.expect(Pubrec).packet_id for _ in range(2)] in ([5, 6], [6, 5])
        client.send(Pubrel(5), Pubrel(6), Pubrel(5))
        answers = [client.expect(Pubcomp) for _ in range(3)]
        assert answers == [Pubcomp(5), Pubcomp(6), Pubcomp(5, 0x92 if level == 5 else 0)]
    assert stored(server, topic) == [b"x", b"y"]


def test_answers_keep_their_type_and_order_among_mixed_publishes(server: MqttServer) -> None:
    with lasting(server, "mixed") as client:
        client.send(*[Publish("mixed", b"%d" % n, n % 3, packet_id=n if n % 3 else 0) for n in range(1, 10)])
        answers = [client.next_packet() for _ in range(6)]
        assert answers == [Puback(1), Pubrec(2), Puback(4), Pubrec(5), Puback(7), Pubrec(8)]
    assert stored(server, "mixed") == [b"%d" % n for n in range(1, 10)]


def test_refused_publish_frees_its_packet_id(server: MqttServer) -> None:
    with lasting(server, "refused", 5) as client:
        client.send(Publish("$SYS/x", b"", 2, packet_id=5))
        assert client.expect(Pubrec) == Pubrec(5, 0x87)
        client.send(Publish("refused", b"1", 2, packet_id=5))
        assert client.expect(Pubrec) == Pubrec(5)
    assert stored(server, "refused") == [b"1"]


def test_run_ended_by_an_invalid_topic_takes_no_later_packet_ids(server: MqttServer) -> None:
    with lasting(server, "broken") as client:
        client.send(Publish("broken", b"1", 2, packet_id=5), Publish("#", b"", 2, packet_id=6))
        while client.next_packet() is not None:
            pass
    with lasting(server, "broken") as client:
        client.send(Publish("broken", b"2", 2, packet_id=6))
        assert client.expect(Pubrec) == Pubrec(6)
    assert stored(server, "broken") == [b"1", b"2"]


def test_delivery_at_qos_2_completes_the_exchange(server: MqttServer, level: int) -> None:
    topic = f"out/{level}"
    with lasting(server, f"out{level}", level) as client, lasting(server, f"from{level}") as other:
        assert client.subscribe(Request(topic, 2)) == (2,)
        other.send(Publish(topic, b"1", 2, packet_id=1))
        other.expect(Pubrec)
        delivery = client.expect(Publish)
        assert (delivery.qos, delivery.payload, delivery.duplicate) == (2, b"1", False)
        client.send(Pubrec(delivery.packet_id))
        assert client.expect(Pubrel) == Pubrel(delivery.packet_id)
        client.send(Pubrec(delivery.packet_id))
        assert client.expect(Pubrel) == Pubrel(delivery.packet_id), "asked again, answered again"
        client.send(Pubcomp(delivery.packet_id))
        client.expect_silence()


def test_delivery_continues_at_its_step_after_a_reconnect(server: MqttServer, level: int) -> None:
    topic, name = f"resume/{level}", f"resume{level}"
    with lasting(server, name, level) as client, lasting(server, f"{name}-from") as other:
        client.subscribe(Request(topic, 2))
        for packet_id in (1, 2, 3):
            other.send(Publish(topic, b"%d" % packet_id, 2, packet_id=packet_id))
            other.expect(Pubrec)
        first, second, third = (client.expect(Publish) for _ in range(3))
        client.send(Pubrec(first.packet_id), Pubrec(second.packet_id))
        client.expect(Pubrel)
        client.expect(Pubrel)
        client.send(Pubcomp(first.packet_id))
        client.expect_silence()
    with lasting(server, name, level) as client:
        released = client.expect(Pubrel)
        assert released.packet_id == second.packet_id
        again = client.expect(Publish)
        assert (again.packet_id, again.payload, again.duplicate) == (third.packet_id, b"3", True)
        client.send(Pubcomp(second.packet_id), Pubrec(third.packet_id))
        client.expect(Pubrel)
        client.send(Pubcomp(third.packet_id))
        client.expect_silence()
    with lasting(server, name, level) as client:
        client.expect_silence()


def test_pubrec_with_a_failure_ends_the_delivery(server: MqttServer) -> None:
    with RawClient(server.address, 5) as client, lasting(server, "failing-from") as other:
        client.connect("failing", properties=Properties(receive_maximum=1))
        client.subscribe(Request("failing", 2))
        for packet_id in (1, 2):
            other.send(Publish("failing", b"%d" % packet_id, 2, packet_id=packet_id))
            other.expect(Pubrec)
        client.send(Pubrec(client.expect(Publish).packet_id, 0x80))
        assert client.expect(Publish).payload == b"2"


def test_window_is_freed_by_pubcomp_and_not_before(server: MqttServer) -> None:
    with RawClient(server.address, 5) as client, lasting(server, "window-from") as other:
        client.connect("window2", properties=Properties(receive_maximum=1))
        client.subscribe(Request("window2", 2))
        for packet_id in (1, 2):
            other.send(Publish("window2", b"%d" % packet_id, 2, packet_id=packet_id))
            other.expect(Pubrec)
        delivery = client.expect(Publish)
        client.send(Pubrec(delivery.packet_id))
        client.expect(Pubrel)
        client.expect_silence()
        client.send(Pubcomp(delivery.packet_id))
        assert client.expect(Publish).payload == b"2"


def test_both_directions_survive_a_restart_of_the_server(tmp_path: Path, level: int) -> None:
    with mqtt_server(tmp_path) as server, lasting(server, "a", level) as client:
        client.subscribe(Request("t", 2))
        client.send(Publish("t", b"1", 2, packet_id=5), Publish("t", b"2", 2, packet_id=6))
        received = [client.next_packet() for _ in range(4)]
        deliveries = [one for one in received if isinstance(one, Publish)]
        assert len(deliveries) == 2
        client.send(Pubrec(deliveries[0].packet_id), Pubrel(5))
        assert {type(client.next_packet()) for _ in range(2)} == {Pubrel, Pubcomp}
    with mqtt_server(tmp_path) as server, lasting(server, "a", level) as client:
        assert client.expect(Pubrel).packet_id == deliveries[0].packet_id
        again = client.expect(Publish)
        assert (again.packet_id, again.payload, again.duplicate) == (deliveries[1].packet_id, b"2", True)
        client.send(Publish("t", b"2", 2, duplicate=True, packet_id=6), Publish("t", b"3", 2, packet_id=5))
        answers = [client.next_packet() for _ in range(3)]
        assert sorted(one.packet_id for one in answers if isinstance(one, Pubrec)) == [5, 6]
        assert stored(server, "t") == [b"1", b"2", b"3"]
        client.send(packets.Disconnect())


@pytest.mark.crash
def test_a_delivery_is_made_once_when_the_server_is_killed_at_each_step(tmp_path: Path) -> None:
    """Kill -9 after PUBLISH, after PUBREC and after PUBCOMP: the exchange continues where it was, under the same id."""
    server = MqttProcess(tmp_path)
    with RawClient(server.address) as client:
        client.connect("c", clean=False)
        assert client.subscribe(Request("t", 2)) == (2,)
        client.send(Publish("t", b"once", 2, packet_id=5))
        received = [client.next_packet(), client.next_packet()]
        (delivery,) = [one for one in received if isinstance(one, Publish)]
        server.kill()
    server = MqttProcess(tmp_path)
    with RawClient(server.address) as client:
        assert client.connect("c", clean=False).session_present
        again = client.expect(Publish)
        assert (again.packet_id, again.payload, again.duplicate) == (delivery.packet_id, b"once", True)
        client.send(Pubrec(again.packet_id))
        client.expect(Pubrel)
        server.kill()
    server = MqttProcess(tmp_path)
    with RawClient(server.address) as client:
        assert client.connect("c", clean=False).session_present
        assert client.expect(Pubrel).packet_id == delivery.packet_id
        client.send(Pubcomp(delivery.packet_id))
        client.expect_silence()
        server.kill()
    server = MqttProcess(tmp_path)
    with RawClient(server.address) as client:
        client.connect("c", clean=False)
        packet = None
        client.send(packets.Pingreq())
        while not isinstance(packet := client.next_packet(), packets.Pingresp):
            assert packet == Pubrel(delivery.packet_id), "at most the release again, never the message"
    server.kill()


PAYLOADS = [b"0", b"1", b"2"]
WRONG = {
    "PUBREC for QoS 1": (1, [Pubrec], "expected PUBACK, got PUBREC"),
    "PUBCOMP for QoS 1": (1, [Pubcomp], "expected PUBACK, got PUBCOMP"),
    "PUBACK for QoS 2": (2, [Puback], "expected PUBREC, got PUBACK"),
    "PUBCOMP before PUBREC": (2, [Pubcomp], "expected PUBREC, got PUBCOMP"),
    "PUBACK after PUBREC": (2, [Pubrec, Puback], "expected PUBCOMP, got PUBACK"),
}


@pytest.mark.parametrize(("qos", "kinds", "said"), WRONG.values(), ids=WRONG)
def test_acknowledgement_of_the_wrong_kind_ends_the_connection(
    server: MqttServer, level: int, qos: int, kinds: list[type[Puback | Pubrec | Pubcomp]], said: str
) -> None:
    """It was ignored, and the delivery waited for the right one permanently."""
    name = f"wrong/{level}/{said}".replace(" ", "-")
    with lasting(server, name, level) as client, RawClient(server.address) as publisher:
        client.subscribe(Request(name, 2))
        publisher.connect("publisher")
        publisher.send(
            *[Publish(name, payload, qos, packet_id=number + 1) for number, payload in enumerate(PAYLOADS)]
        )
        received = [client.expect(Publish) for _ in PAYLOADS]
        *right, wrong = kinds
        for kind in right:
            client.send(kind(received[1].packet_id))
            assert client.expect(Pubrel) == Pubrel(received[1].packet_id)
        if qos == 1:  # in one run with one that is right
            client.send(Puback(received[0].packet_id), wrong(received[1].packet_id))
        else:
            client.send(wrong(received[1].packet_id))
        if level == 5:
            ended = client.expect(packets.Disconnect)
            assert ended.reason == 0x82
            assert said in (ended.properties.reason_string or "")
        client.expect_closed()
    with lasting(server, name, level) as client:
        left = PAYLOADS[1:] if qos == 1 else PAYLOADS  # the first was acknowledged as it should be
        if right:
            assert client.expect(Pubrel) == Pubrel(received[1].packet_id)
            left = [b"0", b"2"]
        again = client.receive(len(left), acknowledge=False)
        assert [one.payload for one in again] == left, "the session is what it was"
        assert all(one.duplicate for one in again)


def test_acknowledgement_that_no_delivery_waits_for_is_ignored_and_logged(
    server: MqttServer, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in (Puback, Pubcomp):
        caplog.clear()
        with lasting(server, f"unmatched{kind.__name__}{level}", level) as client:
            client.send(kind(9))
            client.expect_silence()
            client.send(kind(9))
            client.expect_silence()
        lines = [line for line in caplog.messages if "that no delivery has; ignored" in line]
        assert len(lines) == 1 and f"sent {kind.__name__.upper()} for a packet id" in lines[0]
