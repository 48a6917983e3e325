"""MQTT 5 properties (section 2.2.2): a table of all properties with the packets that may carry each.

A block is read into a frozen `Properties`; absent ones are None. What the specification forbids is refused here:
unknown identifiers, duplicates, properties of another packet, values out of range."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from mqtt_front.codec import fields
from mqtt_front.codec.fields import Fields
from mqtt_front.errors import MalformedPacket, ProtocolViolation
from mqtt_front.reasons import Reason


class Carrier(enum.Flag):
    """Carriers of properties: the packets, and the will in CONNECT."""

    CONNECT = enum.auto()
    WILL = enum.auto()
    CONNACK = enum.auto()
    PUBLISH = enum.auto()
    PUBACK = enum.auto()
    PUBREC = enum.auto()
    PUBREL = enum.auto()
    PUBCOMP = enum.auto()
    SUBSCRIBE = enum.auto()
    SUBACK = enum.auto()
    UNSUBSCRIBE = enum.auto()
    UNSUBACK = enum.auto()
    DISCONNECT = enum.auto()
    AUTH = enum.auto()

    ACKS = PUBACK | PUBREC | PUBREL | PUBCOMP
    ANSWERS = CONNACK | ACKS | SUBACK | UNSUBACK | DISCONNECT | AUTH
    MESSAGE = PUBLISH | WILL
    ANY = CONNECT | MESSAGE | SUBSCRIBE | UNSUBSCRIBE | ANSWERS


@dataclass(frozen=True, slots=True)
class Properties:
    """Properties of one packet; None where absent. Pairs keep order and duplicates."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None


NO_PROPERTIES = Properties()


class _Kind(NamedTuple):
    """Reader and writer of a data type of section 1.5."""

    read: Callable[[Fields], Any]
    write: Callable[[Any], bytes]


_BYTE = _Kind(Fields.u8, lambda value: value.to_bytes(1, "big"))
_U16 = _Kind(Fields.u16, lambda value: value.to_bytes(2, "big"))
_U32 = _Kind(Fields.u32, lambda value: value.to_bytes(4, "big"))
_VARINT = _Kind(Fields.varint, fields.varint)
_TEXT = _Kind(Fields.text, fields.text)
_BINARY = _Kind(Fields.binary, fields.binary)
_PAIR = _Kind(
    lambda source: (source.text(), source.text()), lambda pair: fields.text(pair[0]) + fields.text(pair[1])
)


def _any(value: Any) -> bool:
    return True


def _flag(value: int) -> bool:
    return value <= 1


def _positive(value: int) -> bool:
    return value > 0


def _no_wildcard(value: str) -> bool:
    return bool(value) and "+" not in value and "#" not in value


class Property(NamedTuple):
    """Row of the table in section 2.2.2.2."""

    identifier: int
    name: str
    kind: _Kind
    carriers: Carrier
    valid: Callable[[Any], bool] = _any
    repeats: Carrier = Carrier(0)
    """Carriers in which the property may occur more than once."""
    reason: Reason = Reason.PROTOCOL_ERROR
    """Reason code for an invalid value."""


_C = Carrier
TABLE = (
    Property(0x01, "payload_format_indicator", _BYTE, _C.MESSAGE, _flag),
    Property(0x02, "message_expiry_interval", _U32, _C.MESSAGE),
    Property(0x03, "content_type", _TEXT, _C.MESSAGE),
    Property(0x08, "response_topic", _TEXT, _C.MESSAGE, _no_wildcard),
    Property(0x09, "correlation_data", _BINARY, _C.MESSAGE),
    Property(0x0B, "subscription_identifiers", _VARINT, _C.PUBLISH | _C.SUBSCRIBE, _positive, _C.PUBLISH),
    Property(0x11, "session_expiry_interval", _U32, _C.CONNECT | _C.CONNACK | _C.DISCONNECT),
    Property(0x12, "assigned_client_identifier", _TEXT, _C.CONNACK),
    Property(0x13, "server_keep_alive", _U16, _C.CONNACK),
    Property(0x15, "authentication_method", _TEXT, _C.CONNECT | _C.CONNACK | _C.AUTH),
    Property(0x16, "authentication_data", _BINARY, _C.CONNECT | _C.CONNACK | _C.AUTH),
    Property(0x17, "request_problem_information", _BYTE, _C.CONNECT, _flag),
    Property(0x18, "will_delay_interval", _U32, _C.WILL),
    Property(0x19, "request_response_information", _BYTE, _C.CONNECT, _flag),
    Property(0x1A, "response_information", _TEXT, _C.CONNACK),
    Property(0x1C, "server_reference", _TEXT, _C.CONNACK | _C.DISCONNECT),
    Property(0x1F, "reason_string", _TEXT, _C.ANSWERS),
    Property(0x21, "receive_maximum", _U16, _C.CONNECT | _C.CONNACK, _positive),
    Property(0x22, "topic_alias_maximum", _U16, _C.CONNECT | _C.CONNACK),
    Property(0x23, "topic_alias", _U16, _C.PUBLISH, _positive, reason=Reason.TOPIC_ALIAS_INVALID),
    Property(0x24, "maximum_qos", _BYTE, _C.CONNACK, _flag),
    Property(0x25, "retain_available", _BYTE, _C.CONNACK, _flag),
    Property(0x26, "user_properties", _PAIR, _C.ANY, _any, _C.ANY),
    Property(0x27, "maximum_packet_size", _U32, _C.CONNECT | _C.CONNACK, _positive),
    Property(0x28, "wildcard_subscription_available", _BYTE, _C.CONNACK, _flag),
    Property(0x29, "subscription_identifier_available", _BYTE, _C.CONNACK, _flag),
    Property(0x2A, "shared_subscription_available", _BYTE, _C.CONNACK, _flag),
)
_BY_IDENTIFIER = {row.identifier: row for row in TABLE}
_PLURAL = frozenset(row.name for row in TABLE if row.repeats)
assert {row.name for row in TABLE} == set(Properties.__slots__)


def read_properties(source: Fields, carrier: Carrier) -> Properties:
    """Read the property block at the cursor: its length, then that many bytes. Raises MalformedPacket for bytes that
    cannot be read and ProtocolViolation for values that are not allowed."""
    length = source.varint()
    return read_block(source.sub(length), carrier) if length else NO_PROPERTIES


def read_block(block: Fields, carrier: Carrier) -> Properties:
    """Read a block without its length. Raises as `read_properties`."""
    found: dict[str, Any] = {}
    while block:
        identifier = block.varint()
        row = _BY_IDENTIFIER.get(identifier)
        if row is None:
            raise MalformedPacket(f"unknown property 0x{identifier:02X}")
        # Read before the check: a truncated property is malformed in any carrier.
        _admit(row, row.kind.read(block), carrier, found)
    return Properties(**found)


def _admit(row: Property, value: Any, carrier: Carrier, found: dict[str, Any]) -> None:
    if not row.carriers & carrier:
        raise ProtocolViolation(f"property {row.name} is not allowed in {carrier.name}")
    if not row.valid(value):
        raise ProtocolViolation(f"property {row.name} has a value that is not allowed", row.reason)
    if row.name in _PLURAL:
        if row.name in found and not row.repeats & carrier:
            raise ProtocolViolation(f"property {row.name} occurs twice in {carrier.name}")
        value = (*found.get(row.name, ()), value)
    elif row.name in found:
        raise ProtocolViolation(f"property {row.name} occurs twice in {carrier.name}")
    found[row.name] = value


def write_properties(properties: Properties) -> bytes:
    """Encode the property block with its length. The caller sets only properties that the packet may carry."""
    if properties is NO_PROPERTIES:
        return b"\0"
    block = write_block(properties)
    return fields.varint(len(block)) + block


def write_block(properties: Properties) -> bytes:
    """Encode the property block without its length."""
    parts: list[bytes] = []
    for row in TABLE:
        value = getattr(properties, row.name)
        if value is None:
            continue
        for item in value if row.name in _PLURAL else (value,):
            parts += (bytes((row.identifier,)), row.kind.write(item))
    return b"".join(parts)
