"""CONNECT from outside: accepted clients, the content of CONNACK, the owner of a session."""

from pathlib import Path

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.packets import Connack, Connect, Disconnect, Packet, Puback, Publish, Will
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import wait_for

CONNECT_LEVEL_2 = bytes.fromhex("10 0e 0004 4d515454 02 02 003c 0002 6964")
CONNECT_LEVEL_6 = bytes.fromhex("10 0f 0004 4d515454 06 02 003c 00 0002 6964")
WRONG_NAME = bytes.fromhex("10 0e 0004 58585454 04 02 003c 0002 6964")


@pytest.mark.parametrize("level", [3, 4, 5])
def test_client_of_each_version_is_accepted(server: MqttServer, level: int) -> None:
    with RawClient(server.address, level) as client:
        answer = client.connect("id")
        assert (answer.session_present, answer.reason) == (False, 0)


def test_unknown_version_is_refused_in_its_own_framing(server: MqttServer) -> None:
    with RawClient(server.address, 4) as old, RawClient(server.address, 5) as new:
        old.send_bytes(CONNECT_LEVEL_2)
        assert old.expect(Connack).reason == 1
        old.expect_closed()
        new.send_bytes(CONNECT_LEVEL_6)
        assert new.expect(Connack).reason == 0x84
        new.expect_closed()


REFUSED = {
    "wrong protocol name": (4, WRONG_NAME, None),
    "reserved flag, MQTT 3": (4, bytes.fromhex("10 0e 0004 4d515454 04 03 003c 0002 6964"), None),
    "reserved flag, MQTT 5": (5, bytes.fromhex("10 0f 0004 4d515454 05 03 003c 00 0002 6964"), 0x81),
    "empty id without clean session": (4, bytes.fromhex("10 0c 0004 4d515454 04 00 003c 0000"), 2),
    "receive maximum 0": (5, bytes.fromhex("10 12 0004 4d515454 05 02 003c 03 210000 0002 6964"), 0x82),
    "enhanced authentication": (
        5,
        bytes.fromhex("10 13 0004 4d515454 05 02 003c 04 15000161 0002 6964"),
        0x8C,
    ),
}


@pytest.mark.parametrize(("level", "data", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_client_gets_only_a_reason_if_its_version_has_one(
    server: MqttServer, level: int, data: bytes, reason: int | None
) -> None:
    with RawClient(server.address, level) as client, RawClient(server.address) as good:
        good.connect("good")
        received = server.status()["publishes_received"]
        client.send_bytes(data + bytes.fromhex("30 05 0001 74 7878"))
        if reason is not None:
            assert client.expect(Connack).reason == reason
        client.expect_closed()
        good.expect_silence()
        assert server.status()["publishes_received"] == received


def test_packets_pipelined_behind_connect_are_served_in_order(server: MqttServer) -> None:
    with RawClient(server.address) as client:
        client.send(
            Connect("pipe", 4),
            packets.Subscribe(1, (packets.Request("pipe", 1),)),
            Publish("pipe", b"x", 1, packet_id=9),
        )
        client.expect(Connack)
        client.expect(packets.Suback)
        kinds = {type(client.next_packet()) for _ in range(2)}
        assert kinds == {Publish, Puback}


@pytest.mark.parametrize("level", [4, 5])
def test_client_without_id_gets_one_that_connack_reports_in_mqtt_5(server: MqttServer, level: int) -> None:
    with RawClient(server.address, level) as one, RawClient(server.address, level) as other:
        ids = [client.connect("").properties.assigned_client_identifier for client in (one, other)]
        if level == 5:
            assert all(ids) and ids[0] != ids[1]
        one.expect_silence()


@pytest.mark.parametrize(
    "client_id", ["0123456789abcdefABCDEF0", "x" * 65_535, "straße/ß ☃", "a/b#+", "../../x"]
)
def test_any_valid_client_id_is_accepted(server: MqttServer, client_id: str) -> None:
    for present in (False, True):
        with RawClient(server.address, 4) as client:
            assert client.connect(client_id, clean=False).session_present is present


def test_connack_announces_the_enforced_limits(tmp_path: Path) -> None:
    with (
        mqtt_server(tmp_path, packet_bytes=1000, receive_maximum=7, topic_alias_maximum=3) as server,
        RawClient(server.address, 5) as client,
    ):
        told = client.connect("a", keep_alive=60, properties=Properties(session_expiry_interval=5)).properties
        assert told == Properties(
            receive_maximum=7, maximum_packet_size=1000, topic_alias_maximum=3,
        )  # fmt: skip


def test_connack_announces_time_limits(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, keep_alive_max_s=30, session_expiry_max_s=100) as server:
        for asked, told in ((10, None), (30, None), (31, 30), (0, 30)):
            with RawClient(server.address, 5) as client:
                assert client.connect("a", keep_alive=asked).properties.server_keep_alive == told
        with RawClient(server.address, 5) as client:
            wanted = Properties(session_expiry_interval=1000)
            assert client.connect("b", properties=wanted).properties.session_expiry_interval == 100


@pytest.mark.parametrize("first", [4, 5])
@pytest.mark.parametrize("second", [4, 5])
def test_second_connection_of_a_client_takes_over(server: MqttServer, first: int, second: int) -> None:
    with RawClient(server.address, first) as old, RawClient(server.address, second) as new:
        old.connect("takeover")
        new.connect("takeover")
        if first == 5:
            assert old.expect(Disconnect).reason == 0x8E
        old.expect_closed()
        new.expect_silence()


def test_session_moves_to_the_connection_that_takes_over(server: MqttServer) -> None:
    with (
        RawClient(server.address, 4) as old,
        RawClient(server.address, 4) as new,
        RawClient(server.address) as other,
    ):
        old.connect("mover", clean=False)
        old.subscribe("mover/#")
        other.connect("other")
        other.publish("mover/1", b"in flight")
        (first,) = old.receive(1, acknowledge=False)
        assert new.connect("mover", clean=False).session_present
        (again,) = new.receive(1)
        assert (again.packet_id, again.payload, again.duplicate) == (first.packet_id, b"in flight", True)


def test_session_present_is_set_when_a_session_is_resumed(server: MqttServer) -> None:
    def visit(clean: bool, expiry_s: int | None) -> bool:
        with RawClient(server.address, 5) as client:
            wanted = Properties(session_expiry_interval=expiry_s)
            present = client.connect("presence", clean=clean, properties=wanted).session_present
            client.send(Disconnect())
            client.expect_closed()
            return present

    assert not visit(clean=False, expiry_s=100), "there was none"
    assert visit(clean=False, expiry_s=100), "it exists although it never subscribed"
    assert not visit(clean=True, expiry_s=100), "a clean start ends the old one"
    assert visit(clean=False, expiry_s=None), "and begins a new one, which outlives its connection"
    assert not visit(clean=False, expiry_s=None), "without an expiry it ends with the connection"


def test_disconnect_may_change_the_expiry_unless_it_was_0(server: MqttServer) -> None:
    def leave(at_connect: int | None, at_disconnect: int) -> tuple[Packet | None, bool]:
        client = RawClient(server.address, 5)
        client.connect("expiry", clean=True, properties=Properties(session_expiry_interval=at_connect))
        client.send(Disconnect(0, Properties(session_expiry_interval=at_disconnect)))
        answer = client.next_packet()
        client.close()
        with RawClient(server.address, 5) as again:
            return answer, again.connect("expiry", clean=False).session_present

    assert leave(10, 0) == (None, False)
    assert leave(10, 1000) == (None, True)
    assert leave(None, 0) == (None, False)
    answer, present = leave(None, 10)
    assert isinstance(answer, Disconnect) and answer.reason == 0x82 and not present


@pytest.mark.slow
def test_session_expires_after_its_interval(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server:
        with RawClient(server.address, 5) as client:
            client.connect("short", properties=Properties(session_expiry_interval=1))
        wait_for(lambda: server.status()["sessions"] == 0)
        with RawClient(server.address, 5) as client:
            assert not client.connect("short", clean=False).session_present


@pytest.mark.parametrize(("room", "told"), [(4, None), (6, 0x95)])
def test_answer_larger_than_the_clients_maximum_is_not_sent(
    server: MqttServer, room: int, told: int | None
) -> None:
    asked = Properties(maximum_packet_size=room, session_expiry_interval=60)
    with RawClient(server.address, 5) as client:
        client.send(Connect("small", 5, False, will=Will("small", b"x"), properties=asked))
        if told is not None:
            assert client.expect(Connack) == Connack(False, told)
        client.expect_closed()
    with RawClient(server.address, 5) as client:
        assert client.connect("small", clean=False).session_present, "it is not connected any more"
        client.expect_silence()


def test_client_over_the_connection_limit_is_refused_and_others_stay_connected(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, connection_count=2) as server:
        inside = [RawClient(server.address) for _ in range(2)]
        for number, client in enumerate(inside):
            client.connect(f"inside-{number}")
        for level, reason in ((4, 3), (5, 0x97)):
            with RawClient(server.address, level) as outside:
                assert outside.connect("outside").reason == reason
                outside.expect_closed()
        for client in inside:
            client.expect_silence()
        inside[0].close()
        wait_for(lambda: server.status()["connections"] == 1)
        with RawClient(server.address) as client:
            assert client.connect("now").reason == 0


def test_session_limit_refuses_only_new_sessions(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, session_count=1) as server:
        for client_id, clean, reason in (("a", False, 0), ("b", False, 3), ("a", False, 0), ("c", True, 0)):
            with RawClient(server.address) as client:
                assert client.connect(client_id, clean=clean).reason == reason
