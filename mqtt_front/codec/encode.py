"""Encoding of one packet, either direction, all versions. Batches of deliveries and PUBACKs go through `frame`."""

from collections.abc import Callable
from typing import Any

from mqtt_front.codec import packets
from mqtt_front.codec.fields import binary, text, varint
from mqtt_front.codec.packets import BRIDGE_BIT, MQTT_3_1, MQTT_5, PROTOCOL_NAMES, Packet, PacketType
from mqtt_front.codec.properties import NO_PROPERTIES, Properties, write_properties


def encode_packet(packet: Packet, level: int) -> bytes:
    """Return the bytes of `packet` for a connection of protocol `level`; CONNECT has its own."""
    packet_type, encode = _ENCODERS[type(packet)]
    flags, body = encode(packet, level)
    return bytes((packet_type << 4 | flags,)) + varint(len(body)) + body


def _connect(packet: packets.Connect, _: int) -> tuple[int, bytes]:
    level, will = packet.level, packet.will
    bits = packet.clean_start << 1 | (packet.user_name is not None) << 7 | (packet.password is not None) << 6
    payload = text(packet.client_id)
    if will is not None:
        bits |= 4 | will.qos << 3 | will.retain << 5
        payload += _properties(will.properties, level) + text(will.topic) + binary(will.payload)
    if packet.user_name is not None:
        payload += text(packet.user_name)
    if packet.password is not None:
        payload += binary(packet.password)
    head = (
        text(PROTOCOL_NAMES[level])
        + bytes((level | packet.bridge * BRIDGE_BIT, bits))
        + packet.keep_alive.to_bytes(2, "big")
    )
    return 0, head + _properties(packet.properties, level) + payload


def _connack(packet: packets.Connack, level: int) -> tuple[int, bytes]:
    present = packet.session_present and level != MQTT_3_1  # which has no such flag
    return 0, bytes((present, packet.reason)) + _properties(packet.properties, level)


def _publish(packet: packets.Publish, level: int) -> tuple[int, bytes]:
    packet_id = packet.packet_id.to_bytes(2, "big") if packet.qos else b""
    body = text(packet.topic) + packet_id + _properties(packet.properties, level) + packet.payload
    return packet.duplicate << 3 | packet.qos << 1 | packet.retain, body


def _acknowledgement(packet: packets.Acknowledgement, level: int) -> tuple[int, bytes]:
    flags = 2 if isinstance(packet, packets.Pubrel) else 0
    return flags, packet.packet_id.to_bytes(2, "big") + _ending(packet.reason, packet.properties, level)


def _subscribe(packet: packets.Subscribe, level: int) -> tuple[int, bytes]:
    body = packet.packet_id.to_bytes(2, "big") + _properties(packet.properties, level)
    for request in packet.requests:
        options = (
            request.qos
            | request.no_local << 2
            | request.retain_as_published << 3
            | request.retain_handling << 4
        )
        body += text(request.topic_filter) + bytes((options,))
    return 2, body


def _suback(packet: packets.Suback, level: int) -> tuple[int, bytes]:
    return 0, packet.packet_id.to_bytes(2, "big") + _properties(packet.properties, level) + bytes(
        packet.reasons
    )


def _unsubscribe(packet: packets.Unsubscribe, level: int) -> tuple[int, bytes]:
    head = packet.packet_id.to_bytes(2, "big") + _properties(packet.properties, level)
    return 2, head + b"".join(map(text, packet.topic_filters))


def _unsuback(packet: packets.Unsuback, level: int) -> tuple[int, bytes]:
    reasons = bytes(packet.reasons) if level == MQTT_5 else b""
    return 0, packet.packet_id.to_bytes(2, "big") + _properties(packet.properties, level) + reasons


def _empty(packet: packets.Pingreq | packets.Pingresp, level: int) -> tuple[int, bytes]:
    return 0, b""


def _disconnect(packet: packets.Disconnect | packets.Auth, level: int) -> tuple[int, bytes]:
    return 0, _ending(packet.reason, packet.properties, level)


def _properties(properties: Properties, level: int) -> bytes:
    return write_properties(properties) if level == MQTT_5 else b""


def _ending(reason: int, properties: Properties, level: int) -> bytes:
    """Encode reason and properties at the end of a packet; MQTT 5 omits default values."""
    if level < MQTT_5 or (reason == 0 and properties == NO_PROPERTIES):
        return b""
    return bytes((reason,)) + (b"" if properties == NO_PROPERTIES else write_properties(properties))


_ENCODERS: dict[type, tuple[PacketType, Callable[[Any, int], tuple[int, bytes]]]] = {
    packets.Connect: (PacketType.CONNECT, _connect),
    packets.Connack: (PacketType.CONNACK, _connack),
    packets.Publish: (PacketType.PUBLISH, _publish),
    packets.Puback: (PacketType.PUBACK, _acknowledgement),
    packets.Pubrec: (PacketType.PUBREC, _acknowledgement),
    packets.Pubrel: (PacketType.PUBREL, _acknowledgement),
    packets.Pubcomp: (PacketType.PUBCOMP, _acknowledgement),
    packets.Subscribe: (PacketType.SUBSCRIBE, _subscribe),
    packets.Suback: (PacketType.SUBACK, _suback),
    packets.Unsubscribe: (PacketType.UNSUBSCRIBE, _unsubscribe),
    packets.Unsuback: (PacketType.UNSUBACK, _unsuback),
    packets.Pingreq: (PacketType.PINGREQ, _empty),
    packets.Pingresp: (PacketType.PINGRESP, _empty),
    packets.Disconnect: (PacketType.DISCONNECT, _disconnect),
    packets.Auth: (PacketType.AUTH, _disconnect),
}
