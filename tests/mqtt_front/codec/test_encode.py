"""Encoding of packets: the formats that differ between MQTT 3 and MQTT 5. test_decode tests the round trip."""

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Packet
from mqtt_front.codec.properties import Properties

CASES = {
    "CONNACK 3": (4, packets.Connack(True), "20 02 0100"),
    "CONNACK 5": (5, packets.Connack(False, 0x87), "20 03 0087 00"),
    "PUBACK 5 without a word": (5, packets.Puback(258), "40 02 0102"),
    "PUBACK 5 with a reason": (5, packets.Puback(1, 0x97), "40 03 0001 97"),
    "PUBACK 3 has no reason": (4, packets.Puback(1, 0x97), "40 02 0001"),
    "PUBREL": (5, packets.Pubrel(1), "62 02 0001"),
    "SUBACK": (4, packets.Suback(1, (0, 1, 0x80)), "90 05 0001 000180"),
    "UNSUBACK 3 has no reasons": (4, packets.Unsuback(1, (0,)), "b0 02 0001"),
    "UNSUBACK 5": (5, packets.Unsuback(1, (0, 0x11)), "b0 05 0001 00 0011"),
    "DISCONNECT 5": (5, packets.Disconnect(0x8E), "e0 01 8e"),
    "DISCONNECT 5 normal": (5, packets.Disconnect(), "e0 00"),
    "DISCONNECT 5 with a property and no reason": (
        5, packets.Disconnect(0, Properties(reason_string="a")), "e0 06 00 04 1f000161",
    ),
    "PINGRESP": (4, packets.Pingresp(), "d0 00"),
    "PUBLISH over 127 bytes": (4, packets.Publish("a", b"x" * 125), "30 8001 0001 61" + "78" * 125),
}  # fmt: skip


@pytest.mark.parametrize(("level", "packet", "encoded"), CASES.values(), ids=CASES.keys())
def test_encode_uses_the_format_of_the_protocol_version(level: int, packet: Packet, encoded: str) -> None:
    assert encode_packet(packet, level) == bytes.fromhex(encoded)
