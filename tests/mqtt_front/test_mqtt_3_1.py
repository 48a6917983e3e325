"""Differences of MQTT 3.1 from 3.1.1: DUP in repeated packets, unused bits, CONNACK without Session Present. Section
numbers are those of the specification of MQTT 3.1."""

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Pubcomp, Publish, Pubrec, Pubrel, Request, Suback, Unsuback
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer

LEVEL = 3
DUP = 0x08
CONNECT_HEAD = bytes.fromhex("0006 4d5149736470 03")


def repeated(packet: packets.Packet, bits: int = DUP) -> bytes:
    """A packet as it is sent again, or with other bits in its first byte."""
    encoded = encode_packet(packet, LEVEL)
    return bytes((encoded[0] | bits,)) + encoded[1:]


def connect_packet(flags: int, *fields: bytes) -> bytes:
    body = CONNECT_HEAD + bytes((flags, 0, 0)) + b"".join(len(one).to_bytes(2, "big") + one for one in fields)
    return bytes((0x10, len(body))) + body


@pytest.mark.parametrize("bits", [DUP, 0x0D], ids=["DUP", "DUP and bits without a meaning"])
def test_repeated_requests_are_served(server: MqttServer, bits: int) -> None:
    """Section 2.1: DUP is set when PUBREL, SUBSCRIBE or UNSUBSCRIBE is sent again."""
    with RawClient(server.address, LEVEL) as client:
        client.connect(f"requests{bits}")
        for _ in range(2):
            client.send_bytes(repeated(packets.Subscribe(5, (Request("requests/#", 1),)), bits))
            assert client.expect(Suback) == Suback(5, (1,))
        client.send(Publish("other", b"x", 2, packet_id=7))
        assert client.expect(Pubrec) == Pubrec(7)
        for _ in range(2):
            client.send_bytes(repeated(Pubrel(7), bits))
            assert client.expect(Pubcomp) == Pubcomp(7)
        for _ in range(2):
            client.send_bytes(repeated(packets.Unsubscribe(6, ("requests/#",)), bits))
            assert client.expect(Unsuback) == Unsuback(6)


def test_reserved_bits_are_ignored(server: MqttServer) -> None:
    with RawClient(server.address, LEVEL) as client:
        client.send_bytes(
            connect_packet(0x03 | 0x38, b"bits")
        )  # bit 0; will QoS 3 and will retain without a will
        assert client.expect(packets.Connack).reason == 0
        encoded = bytearray(encode_packet(packets.Subscribe(5, (Request("bits", 1),)), LEVEL))
        encoded[-1] |= 0xFC
        client.send_bytes(bytes(encoded))
        assert client.expect(Suback) == Suback(5, (1,))
        client.send_bytes(repeated(packets.Pingreq(), 0x0F) * 2)
        for _ in range(2):
            client.expect(packets.Pingresp)
        client.publish("bits", b"x")
        (delivery,) = client.receive(1, acknowledge=False)
        client.send_bytes(repeated(packets.Puback(delivery.packet_id), 0x0F))
        client.expect_silence()
        client.send_bytes(repeated(packets.Disconnect(), 0x0F))
        client.expect_closed()


def test_user_name_may_be_missing_where_its_bit_is_set(server: MqttServer) -> None:
    """Section 3.1: the remaining length takes precedence over the bits, for clients older than MQTT 3.1."""
    for fields in ((b"user",), (b"user", b"name")):
        with RawClient(server.address, LEVEL) as client:
            client.send_bytes(connect_packet(0xC2, *fields))
            assert client.expect(packets.Connack).reason == 0


@pytest.mark.parametrize("level", [3, 4])
def test_session_present_is_not_sent(server: MqttServer, level: int) -> None:
    for present in (False, level == 4):
        with RawClient(server.address, level) as client:
            assert client.connect(f"present{level}", clean=False).session_present is present


@pytest.mark.parametrize("level", [3, 4])
def test_repeated_release_has_dup(server: MqttServer, level: int) -> None:
    """Section 2.1 binds servers, too; MQTT 3.1.1 reserves the bit [MQTT-3.6.1-1]."""
    name = f"release{level}"
    with RawClient(server.address, level) as client:
        client.connect(name, clean=False)
        client.subscribe(Request(name, 2))
        with RawClient(server.address) as publisher:
            publisher.connect("publisher")
            publisher.send(Publish(name, b"x", 2, packet_id=1))
            publisher.expect(Pubrec)
        delivery = client.expect(Publish)
        client.send(Pubrec(delivery.packet_id))
        assert client.expect(Pubrel) == Pubrel(delivery.packet_id)
    with RawClient(server.address, level) as client:
        client.send(packets.Connect(name, level, clean_start=False))
        received = b""
        while len(received) < 8:
            received += client.socket.recv(8)
        released = bytes((0x6A if level == 3 else 0x62, 2)) + delivery.packet_id.to_bytes(2, "big")
        assert received == bytes((0x20, 2, level > 3, 0)) + released


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize(
    "packet", [packets.Subscribe(5, (Request("a", 1),)), packets.Unsubscribe(6, ("a",)), Pubrel(7)]
)
def test_dup_is_refused_by_later_versions(server: MqttServer, level: int, packet: packets.Packet) -> None:
    with RawClient(server.address, level) as client:
        client.connect(f"later{level}")
        encoded = encode_packet(packet, level)
        client.send_bytes(bytes((encoded[0] | DUP,)) + encoded[1:])
        if level == 5:
            assert client.expect(packets.Disconnect).reason == 0x81
        client.expect_closed()
