"""Decoding of one packet, either direction, all versions.

Strict: what sections 2 and 3 forbid is refused here. Wildcards in topic names and malformed topic filters are
checked by the handlers instead: an invalid filter is answered in SUBACK and does not end the connection."""

from collections.abc import Callable
from typing import TypeVar

from mqtt_front.codec import packets
from mqtt_front.codec.fields import Fields, read_varint, text
from mqtt_front.codec.packets import BRIDGE_BIT, MQTT_3_1, MQTT_5, PROTOCOL_NAMES, Packet, PacketType
from mqtt_front.codec.properties import NO_PROPERTIES, Carrier, Properties, read_properties
from mqtt_front.errors import MalformedPacket, ProtocolViolation
from mqtt_front.reasons import (
    AUTH_REASONS,
    DISCONNECT_REASONS,
    PUBLISH_REASONS,
    RELEASE_REASONS,
    Reason,
)

Ack = TypeVar("Ack", packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp)
Item = TypeVar("Item")

_ANY_NUMBER = 1 << 32
_USER_NAME, _PASSWORD, _WILL_RETAIN, _WILL_QOS = 0x80, 0x40, 0x20, 0x18
_WILL, _CLEAN, _RESERVED = 0x04, 0x02, 0x01


def packet_end(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """Return start and end of the body of the packet at `at`; None while its fixed header is incomplete. If the end
    lies after `end`, the packet is incomplete. Raises MalformedPacket for an invalid length."""
    found = read_varint(data, at + 1, end)
    if found is None:
        return None
    length, body = found
    return body, body + length


def decode_packet(first: int, body: bytes, level: int, filters_max: int = _ANY_NUMBER) -> Packet:
    """Decode the packet with first byte `first`.

    level: protocol level of the connection; CONNECT has its own. filters_max: maximum number of topic filters in
    SUBSCRIBE and UNSUBSCRIBE. Raises MalformedPacket and ProtocolViolation only.

    MQTT 3.1 sets DUP in repeated packets (section 2.1) and leaves unused bits undefined; 3.1.1 reserved them all."""
    row = _DECODERS.get(first >> 4)
    if row is None:
        raise MalformedPacket(f"packet type {first >> 4}")
    flags, decode = row
    if flags is not None and first & 0x0F != flags and level != MQTT_3_1:
        raise MalformedPacket(f"{PacketType(first >> 4).name} with reserved flags {first & 0x0F:04b}")
    source = Fields(body)
    if decode is _subscribe:
        return _subscribe(flags, source, level, filters_max)
    if decode is _unsubscribe:
        return _unsubscribe(flags, source, level, filters_max)
    return decode(first & 0x0F, source, level)


def connect_level(body: bytes) -> int | None:
    """Return the protocol level in a CONNECT, so that a refusal is encoded for it; None if the packet is not MQTT."""
    for name in {encoded for encoded in map(text, PROTOCOL_NAMES.values()) if body.startswith(encoded)}:
        return _without_bridge_bit(body[len(name)]) if len(body) > len(name) else None
    return None


def _without_bridge_bit(claimed: int) -> int:
    """Return the protocol level of a CONNECT without the bit that marks a bridge."""
    level = claimed & ~BRIDGE_BIT
    return level if level < MQTT_5 else claimed


def _connect(flags: int, source: Fields, level: int) -> packets.Connect:
    name = source.text()
    if name not in PROTOCOL_NAMES.values():
        raise MalformedPacket(f"protocol name {name[:16]!r}")
    claimed = source.u8()
    level = _without_bridge_bit(claimed)
    if PROTOCOL_NAMES.get(level) != name:
        raise ProtocolViolation(f"protocol {name} level {level}", Reason.UNSUPPORTED_PROTOCOL_VERSION)
    bits = source.u8()
    _check_connect_bits(bits, level)
    keep_alive = source.u16()
    properties = _properties(source, Carrier.CONNECT, level)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolViolation("authentication data without an authentication method")
    client_id = source.text()
    will = _will(bits, source, level) if bits & _WILL else None
    # A client of MQTT 3.1 may set these bits and omit the fields, as older clients did (section 3.1).
    required = level != MQTT_3_1
    user_name = source.text() if bits & _USER_NAME and (source or required) else None
    password = source.binary() if bits & _PASSWORD and (source or required) else None
    source.finish()
    clean = bool(bits & _CLEAN)
    if not client_id and (level == MQTT_3_1 or (level < MQTT_5 and not clean)):
        raise ProtocolViolation(
            "invalid client id: expected at least one character", Reason.CLIENT_IDENTIFIER_NOT_VALID
        )
    return packets.Connect(
        client_id, level, clean, keep_alive, will, user_name, password, properties, bridge=claimed != level
    )


def _check_connect_bits(bits: int, level: int) -> None:
    if level == MQTT_3_1:
        bits &= ~_RESERVED if bits & _WILL else ~(_RESERVED | _WILL_QOS | _WILL_RETAIN)
    if bits & _RESERVED:
        raise MalformedPacket("the reserved CONNECT flag is set")
    if bits & _WILL_QOS == _WILL_QOS:
        raise MalformedPacket("invalid will QoS: expected 0 to 2, got 3")
    if not bits & _WILL and bits & (_WILL_QOS | _WILL_RETAIN):
        raise MalformedPacket("will QoS or will retain without a will")
    if level < MQTT_5 and bits & _PASSWORD and not bits & _USER_NAME:
        raise MalformedPacket("a password without a user name")


def _will(bits: int, source: Fields, level: int) -> packets.Will:
    properties = _properties(source, Carrier.WILL, level)
    topic = source.text()
    if not topic or "+" in topic or "#" in topic:
        raise MalformedPacket("invalid will topic: expected at least one character and no wildcard")
    qos = (bits & _WILL_QOS) >> 3
    return packets.Will(topic, source.binary(), qos, bool(bits & _WILL_RETAIN), properties)


def _connack(flags: int, source: Fields, level: int) -> packets.Connack:
    present = source.u8()
    if present > 1:
        raise MalformedPacket("reserved CONNACK flags are set")
    reason = source.u8()
    properties = _properties(source, Carrier.CONNACK, level)
    source.finish()
    return packets.Connack(bool(present), reason, properties)


def _publish(flags: int, source: Fields, level: int) -> packets.Publish:
    qos, duplicate = flags >> 1 & 3, bool(flags & 8)
    if qos == 3:
        raise MalformedPacket("QoS 3")
    if duplicate and qos == 0:
        raise MalformedPacket("DUP at QoS 0")
    topic = source.text()
    packet_id = source.packet_id() if qos else 0
    properties = _properties(source, Carrier.PUBLISH, level)
    if not topic and properties.topic_alias is None:
        raise MalformedPacket("PUBLISH without a topic")
    return packets.Publish(topic, source.rest(), qos, bool(flags & 1), duplicate, packet_id, properties)


def _acknowledgement(
    kind: type[Ack], carrier: Carrier, reasons: frozenset[int]
) -> Callable[[int, Fields, int], Ack]:
    def decode(flags: int, source: Fields, level: int) -> Ack:
        packet_id = source.packet_id()
        return kind(packet_id, *_ending(source, level, carrier, reasons))

    return decode


def _subscribe(
    flags: int | None, source: Fields, level: int, filters_max: int = _ANY_NUMBER
) -> packets.Subscribe:
    packet_id = source.packet_id()
    properties = _properties(source, Carrier.SUBSCRIBE, level)
    requests = _each_filter(Carrier.SUBSCRIBE, source, filters_max, lambda: _request(source, level))
    return packets.Subscribe(packet_id, requests, properties)


def _request(source: Fields, level: int) -> packets.Request:
    topic_filter, options = source.text(), source.u8()
    if level == MQTT_3_1:
        options &= 3
    qos, retain_handling = options & 3, options >> 4 & 3
    if qos == 3 or retain_handling == 3 or options & (0xC0 if level == MQTT_5 else 0xFC):
        raise MalformedPacket(f"subscription options {options:08b}")
    return packets.Request(topic_filter, qos, bool(options & 4), bool(options & 8), retain_handling)


def _suback(flags: int, source: Fields, level: int) -> packets.Suback:
    packet_id = source.packet_id()
    properties = _properties(source, Carrier.SUBACK, level)
    return packets.Suback(packet_id, tuple(source.rest()), properties)


def _each_filter(
    carrier: Carrier, source: Fields, filters_max: int, read: Callable[[], Item]
) -> tuple[Item, ...]:
    """Return what `read` reads for each topic filter at the end of a packet."""
    items: list[Item] = []
    while source:
        if len(items) == filters_max:
            message = f"more than {filters_max} topic filters in one packet"
            raise ProtocolViolation(message, Reason.QUOTA_EXCEEDED, "packet_filter_count")
        items.append(read())
    if not items:
        raise ProtocolViolation(f"{carrier.name} without a topic filter")
    return tuple(items)


def _unsubscribe(
    flags: int | None, source: Fields, level: int, filters_max: int = _ANY_NUMBER
) -> packets.Unsubscribe:
    packet_id = source.packet_id()
    properties = _properties(source, Carrier.UNSUBSCRIBE, level)
    topic_filters = _each_filter(Carrier.UNSUBSCRIBE, source, filters_max, source.text)
    return packets.Unsubscribe(packet_id, topic_filters, properties)


def _unsuback(flags: int, source: Fields, level: int) -> packets.Unsuback:
    packet_id = source.packet_id()
    properties = _properties(source, Carrier.UNSUBACK, level)
    reasons = tuple(source.rest()) if level == MQTT_5 else ()
    source.finish()
    return packets.Unsuback(packet_id, reasons, properties)


def _pingreq(flags: int, source: Fields, level: int) -> packets.Pingreq:
    source.finish()
    return packets.Pingreq()


def _pingresp(flags: int, source: Fields, level: int) -> packets.Pingresp:
    source.finish()
    return packets.Pingresp()


def _disconnect(flags: int, source: Fields, level: int) -> packets.Disconnect:
    return packets.Disconnect(*_ending(source, level, Carrier.DISCONNECT, DISCONNECT_REASONS))


def _auth(flags: int, source: Fields, level: int) -> packets.Auth:
    if level < MQTT_5:
        raise MalformedPacket("AUTH before MQTT 5")
    return packets.Auth(*_ending(source, level, Carrier.AUTH, AUTH_REASONS))


def _properties(source: Fields, carrier: Carrier, level: int) -> Properties:
    return read_properties(source, carrier) if level == MQTT_5 else NO_PROPERTIES


def _ending(source: Fields, level: int, carrier: Carrier, reasons: frozenset[int]) -> tuple[int, Properties]:
    """Decode reason and properties at the end of a packet. Both may be omitted, and before MQTT 5 they must be."""
    reason, properties = 0, NO_PROPERTIES
    if level == MQTT_5 and source:
        reason = source.u8()
        if reason not in reasons:
            raise ProtocolViolation(f"reason code 0x{reason:02X} in {carrier.name}")
        properties = read_properties(source, carrier) if source else NO_PROPERTIES
    source.finish()
    return reason, properties


# Packet type: required flags of its first byte (None: the flags have a meaning), and decoder.
_DECODERS: dict[int, tuple[int | None, Callable[[int, Fields, int], Packet]]] = {
    PacketType.CONNECT: (0, _connect),
    PacketType.CONNACK: (0, _connack),
    PacketType.PUBLISH: (None, _publish),
    PacketType.PUBACK: (0, _acknowledgement(packets.Puback, Carrier.PUBACK, PUBLISH_REASONS)),
    PacketType.PUBREC: (0, _acknowledgement(packets.Pubrec, Carrier.PUBREC, PUBLISH_REASONS)),
    PacketType.PUBREL: (2, _acknowledgement(packets.Pubrel, Carrier.PUBREL, RELEASE_REASONS)),
    PacketType.PUBCOMP: (0, _acknowledgement(packets.Pubcomp, Carrier.PUBCOMP, RELEASE_REASONS)),
    PacketType.SUBSCRIBE: (2, _subscribe),
    PacketType.SUBACK: (0, _suback),
    PacketType.UNSUBSCRIBE: (2, _unsubscribe),
    PacketType.UNSUBACK: (0, _unsuback),
    PacketType.PINGREQ: (0, _pingreq),
    PacketType.PINGRESP: (0, _pingresp),
    PacketType.DISCONNECT: (0, _disconnect),
    PacketType.AUTH: (0, _auth),
}
