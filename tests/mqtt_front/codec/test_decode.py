"""Decoding of single packets.

The invariant of the fuzz: for any bytes, `decode_packet` returns a packet or raises MalformedPacket or
ProtocolViolation, and no other exception.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.codec import packets
from mqtt_front.codec.decode import connect_level, decode_packet, packet_end
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Packet
from mqtt_front.errors import MalformedPacket, MqttError, ProtocolViolation
from mqtt_front.reasons import Reason
from tests.support.mqtt_packets import any_packet

CONNECT_3 = "10 0e 0004 4d515454 04 02 003c 0002 6964"
CONNECT_5 = "10 0f 0004 4d515454 05 02 003c 00 0002 6964"
GOOD = {
    "CONNECT 3.1.1": (4, CONNECT_3, packets.Connect("id", 4, True, 60)),
    "CONNECT 5": (4, CONNECT_5, packets.Connect("id", 5, True, 60)),
    "CONNECT 3.1": (4, "10 10 0006 4d5149736470 03 02 003c 0002 6964", packets.Connect("id", 3, True, 60)),
    "CONNECT 3.1.1 of a bridge": (
        4, "10 0e 0004 4d515454 84 02 003c 0002 6964", packets.Connect("id", 4, True, 60, bridge=True),
    ),
    "CONNECT 3.1 of a bridge": (
        4, "10 10 0006 4d5149736470 83 02 003c 0002 6964", packets.Connect("id", 3, True, 60, bridge=True),
    ),
    "CONNECT 5 with a password and no user name": (
        5, "10 10 0004 4d515454 05 42 0000 00 0000 0001 70", packets.Connect("", 5, True, 0, None, None, b"p"),
    ),
    "CONNECT 3.1.1 with everything": (
        4, "10 1b 0004 4d515454 04 ee 0001 0002 6964 0001 74 0001 6d 0001 75 0002 7077",
        packets.Connect("id", 4, True, 1, packets.Will("t", b"m", 1, True), "u", b"pw"),
    ),
    "PUBLISH at QoS 0": (4, "30 04 0001 61 78", packets.Publish("a", b"x")),
    "PUBLISH at QoS 1, empty, retained, again": (
        4, "3b 05 0001 61 0001", packets.Publish("a", b"", 1, True, True, 1),
    ),
    "PUBLISH 5 with an alias instead of a topic": (5, "30 07 0000 03 23 0001 78", None),
    "PUBACK": (4, "40 02 0001", packets.Puback(1)),
    "PUBACK 5 with a reason": (5, "40 03 0001 10", packets.Puback(1, 0x10)),
    "PUBACK 5 with a reason and no properties": (5, "40 04 0001 10 00", packets.Puback(1, 0x10)),
    "PUBREL": (4, "62 02 0001", packets.Pubrel(1)),
    "SUBSCRIBE": (4, "82 06 0001 0001 61 01", packets.Subscribe(1, (packets.Request("a", 1),))),
    "SUBSCRIBE 5 with all options": (
        5, "82 07 0001 00 0001 61 2e", packets.Subscribe(1, (packets.Request("a", 2, True, True, 2),)),
    ),
    "UNSUBSCRIBE": (4, "a2 05 0001 0001 61", packets.Unsubscribe(1, ("a",))),
    "PINGREQ": (4, "c0 00", packets.Pingreq()),
    "DISCONNECT": (4, "e0 00", packets.Disconnect()),
    "DISCONNECT 5 with will": (5, "e0 01 04", packets.Disconnect(4)),
    "UNSUBACK 3": (4, "b0 02 0001", packets.Unsuback(1)),
}  # fmt: skip


def decode(encoded: str, level: int) -> Packet:
    data = bytes.fromhex(encoded)
    place = packet_end(data, 0, len(data))
    assert place is not None
    assert place[1] == len(data), "the table has a wrong length"
    return decode_packet(data[0], data[place[0] :], level)


@pytest.mark.parametrize(("level", "encoded", "packet"), GOOD.values(), ids=GOOD.keys())
def test_decode_accepts_valid_packets(level: int, encoded: str, packet: Packet | None) -> None:
    decoded = decode(encoded, level)
    assert packet is None or decoded == packet


BAD = {
    "packet type 0": (4, "00 00", 0x81),
    "AUTH before MQTT 5": (4, "f0 00", 0x81),
    "CONNECT with flags": (4, "11 0e 0004 4d515454 04 02 003c 0002 6964", 0x81),
    "wrong protocol name": (4, "10 0e 0004 4d515455 04 02 003c 0002 6964", 0x81),
    "level 2": (4, "10 0e 0004 4d515454 02 02 003c 0002 6964", 0x84),
    "level 6": (4, "10 0e 0004 4d515454 06 02 003c 0002 6964", 0x84),
    "a bridge's level 2": (4, "10 0e 0004 4d515454 82 02 003c 0002 6964", 0x84),
    "a bridge's level 5": (5, "10 0f 0004 4d515454 85 02 003c 00 0002 6964", 0x84),
    "name and level of different versions": (4, "10 10 0006 4d5149736470 04 02 003c 0002 6964", 0x84),
    "reserved CONNECT flag": (4, "10 0e 0004 4d515454 04 03 003c 0002 6964", 0x81),
    "will QoS without a will": (4, "10 0e 0004 4d515454 04 0a 003c 0002 6964", 0x81),
    "will retain without a will": (4, "10 0e 0004 4d515454 04 22 003c 0002 6964", 0x81),
    "invalid will QoS: expected 0 to 2, got 3": (
        4,
        "10 14 0004 4d515454 04 1e 003c 0002 6964 0001 74 0001 6d",
        0x81,
    ),
    "will topic with a wildcard": (4, "10 14 0004 4d515454 04 06 003c 0002 6964 0001 23 0001 6d", 0x81),
    "password without user name in MQTT 3": (4, "10 11 0004 4d515454 04 42 003c 0002 6964 0001 70", 0x81),
    "bytes behind CONNECT": (4, "10 0f 0004 4d515454 04 02 003c 0002 6964 00", 0x81),
    "CONNECT cut short": (4, "10 0d 0004 4d515454 04 02 003c 0002 69", 0x81),
    "empty id without clean session": (4, "10 0c 0004 4d515454 04 00 003c 0000", 0x85),
    "empty id in MQTT 3.1": (4, "10 0e 0006 4d5149736470 03 02 003c 0000", 0x85),
    "client id with U+0000": (4, "10 0e 0004 4d515454 04 02 003c 0002 6900", 0x81),
    "authentication data without an authentication method": (
        5,
        "10 13 0004 4d515454 05 02 003c 04 16000161 0002 6964",
        0x82,
    ),
    "PUBLISH with QoS 3": (4, "36 06 0001 61 0001 78", 0x81),
    "DUP at QoS 0": (4, "38 04 0001 61 78", 0x81),
    "PUBLISH with packet id 0": (4, "32 06 0001 61 0000 78", 0x82),
    "PUBLISH without a packet id": (4, "32 03 0001 61", 0x81),
    "PUBLISH without a topic": (4, "30 03 0000 78", 0x81),
    "PUBLISH 5 without topic and alias": (5, "30 04 0000 00 78", 0x81),
    "PUBLISH with a topic longer than it": (4, "30 04 0009 61 78", 0x81),
    "PUBLISH 5 with properties longer than it": (5, "30 05 0001 61 09 78", 0x81),
    "PUBACK with packet id 0": (4, "40 02 0000", 0x82),
    "PUBACK with flags": (4, "41 02 0001", 0x81),
    "PUBACK too long for MQTT 3": (4, "40 03 0001 00", 0x81),
    "PUBACK 5 with a reason it may not have": (5, "40 03 0001 8e", 0x82),
    "PUBREL without its flags": (4, "60 02 0001", 0x81),
    "SUBSCRIBE without its flags": (4, "80 06 0001 0001 61 01", 0x81),
    "SUBSCRIBE without a filter": (4, "82 02 0001", 0x82),
    "SUBSCRIBE with QoS 3": (4, "82 06 0001 0001 61 03", 0x81),
    "SUBSCRIBE 3 with options of MQTT 5": (4, "82 06 0001 0001 61 04", 0x81),
    "SUBSCRIBE 5 with reserved options": (5, "82 07 0001 00 0001 61 41", 0x81),
    "SUBSCRIBE 5 with retain handling 3": (5, "82 07 0001 00 0001 61 30", 0x81),
    "SUBSCRIBE with packet id 0": (4, "82 06 0000 0001 61 01", 0x82),
    "UNSUBSCRIBE without its flags": (4, "a0 05 0001 0001 61", 0x81),
    "UNSUBSCRIBE without a filter": (4, "a2 02 0001", 0x82),
    "PINGREQ with a body": (4, "c0 01 00", 0x81),
    "DISCONNECT of MQTT 3 with a body": (4, "e0 01 00", 0x81),
    "DISCONNECT 5 with an unknown reason": (5, "e0 01 7f", 0x82),
    "CONNACK with reserved flags": (4, "20 02 02 00", 0x81),
}


@pytest.mark.parametrize(("level", "encoded", "reason"), BAD.values(), ids=BAD.keys())
def test_decode_refuses_packets_that_the_specification_forbids(level: int, encoded: str, reason: int) -> None:
    with pytest.raises(MqttError) as caught:
        decode(encoded, level)
    assert caught.value.reason == reason


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5])
@given(st.data())
def test_decode_reverses_encode(level: int, data: st.DataObject) -> None:
    packet = data.draw(any_packet(level))
    encoded = encode_packet(packet, level)
    place = packet_end(encoded, 0, len(encoded))
    assert place is not None and place[1] == len(encoded)
    assert decode_packet(encoded[0], encoded[place[0] :], level) == packet


@pytest.mark.slow
@pytest.mark.parametrize("level", [3, 4, 5])
@given(st.data())
def test_changed_packet_is_decoded_or_refused(level: int, data: st.DataObject) -> None:
    encoded = bytearray(encode_packet(data.draw(any_packet(max(level, 4))), level))
    for _ in range(data.draw(st.integers(0, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    body = bytes(encoded[2:])[: data.draw(st.integers(0, len(encoded)))]
    decoded_or_refused(encoded[0], body, level)


@given(st.integers(0, 255), st.binary(max_size=60), st.sampled_from([3, 4, 5]))
def test_random_bytes_are_decoded_or_refused(first: int, body: bytes, level: int) -> None:
    decoded_or_refused(first, body, level)


def decoded_or_refused(first: int, body: bytes, level: int) -> None:
    with contextlib.suppress(MalformedPacket, ProtocolViolation):
        decode_packet(first, body, level)


@pytest.mark.parametrize(
    ("body", "level"),
    [("0004 4d515454 05", 5), ("0004 4d515454 07", 7), ("0006 4d5149736470 03", 3), ("0004 4d515454", None),
     ("0004 58585858 05", None), ("", None), ("ffff", None)],
)  # fmt: skip
def test_protocol_level_of_a_connect_is_known_before_it_is_validated(body: str, level: int | None) -> None:
    assert connect_level(bytes.fromhex(body)) == level


def test_incomplete_fixed_header_has_no_packet_end() -> None:
    assert packet_end(b"\x30", 0, 1) is None
    assert packet_end(b"\x30\x80", 0, 2) is None
    assert packet_end(b"\x30\x80\x01", 0, 3) == (3, 131)
    with pytest.raises(MalformedPacket):
        packet_end(b"\x30\xff\xff\xff\xff\x01", 0, 6)


def test_violation_has_its_reason_code() -> None:
    assert ProtocolViolation("x").reason is Reason.PROTOCOL_ERROR
