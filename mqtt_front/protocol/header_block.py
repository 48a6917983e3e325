"""Conversion between the MQTT 5 properties of a publish and the header block of its record.

Properties of the message (sections 3.3.2.3.2 to 3.3.2.3.9) are stored in the record and forwarded unaltered and in
order. Topic alias and subscription identifiers belong to one connection and are not stored.

Both directions are cached for small blocks: devices send the same properties with every message."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mqtt_front.codec.fields import Fields
from mqtt_front.codec.properties import Carrier, Properties, read_block, write_block
from mqtt_front.errors import ProtocolViolation
from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.reasons import Reason
from timestone.errors import RecordTooLarge
from timestone.record import HEADER_BLOCK_BYTES_MAX, Header, HeaderKind, decode_headers, encode_headers

_REMEMBERED_BYTES = 256
"""Maximum size of cached blocks, of which 4096 are kept: 1 MiB a cache at most."""


class PublishHeaders(NamedTuple):
    """Result of reading the property block of an incoming publish."""

    block: bytes
    """Header block to store; empty for none."""
    topic_alias: int | None


class StoredHeaders(NamedTuple):
    """Content of a stored header block for a delivery."""

    properties: bytes
    """Encoded properties to forward, without their length and without the expiry interval."""
    expiry_s: int | None
    """Message expiry interval in seconds, counted from the append."""
    publisher: str | None
    """Key of the publisher's session, if stored."""


NO_HEADERS = StoredHeaders(b"", None, None)


def publish_headers(properties: bytes) -> PublishHeaders:
    """Return the header block for the raw property block of a PUBLISH. Raises MalformedPacket or ProtocolViolation,
    also for properties that a client may not send in a PUBLISH [MQTT-3.3.4-6]."""
    if len(properties) <= _REMEMBERED_BYTES:
        return _remembered_headers(properties)
    return _publish_headers(properties)


def _publish_headers(raw: bytes) -> PublishHeaders:
    properties = read_block(Fields(raw), Carrier.PUBLISH)
    if properties.subscription_identifiers:
        raise ProtocolViolation("PUBLISH from a client with a subscription identifier")
    return PublishHeaders(header_block(properties), properties.topic_alias)


_remembered_headers = functools.lru_cache(4096)(_publish_headers)


def header_block(properties: Properties) -> bytes:
    """Return the header block that stores the properties of a message. Raises ProtocolViolation if they are too
    large."""
    found = ((kind, write, getattr(properties, name)) for kind, (name, write, _) in _STORED.items())
    items = [Header(kind, "", write(value)) for kind, write, value in found if value is not None]
    items += (Header(HeaderKind.USER, name, value.encode()) for name, value in properties.user_properties)
    return _encoded(items)


def _encoded(items: Iterable[Header]) -> bytes:
    try:
        return encode_headers(items)
    except RecordTooLarge as error:
        raise ProtocolViolation(f"the properties of a publish: {error}", Reason.PACKET_TOO_LARGE) from None


def with_publisher(run: Publishes, publisher: str, *, only_retained: bool = False) -> Publishes:
    """Return the publishes with the session key of their publisher in each header block. A No Local subscription
    needs it, also one made long after a message was retained. Raises ProtocolViolation for a block that becomes too
    large."""
    item = _encoded([Header(HeaderKind.PUBLISHER, "", publisher.encode())])
    longest = 0 if isinstance(run.header_lengths, int) else max(run.header_lengths, default=0)
    _check_size(longest + len(item))
    rows = (
        row if only_retained and not row.first & 1 else row._replace(headers=item + row.headers)
        for row in run.rows()
    )
    return Publishes.of(rows, run.size_bytes)


def with_packet_id(row: PublishRow, publisher: str) -> PublishRow:
    """Return a publish at QoS 2 with its packet id and its publisher in the header block. Raises ProtocolViolation
    for a block that becomes too large."""
    items = [
        Header(HeaderKind.PUBLISHER, "", publisher.encode()),
        Header(
            HeaderKind.PACKET_ID, "", row.acknowledgement[:1:-1]
        ),  # big endian on the wire, little endian in files
    ]
    block = _encoded(items) + row.headers
    _check_size(len(block))
    return row._replace(headers=block)


def with_will_key(block: bytes, key: str) -> bytes:
    """Return the header block of a will with its unique key; unchanged if the key does not fit."""
    marked = _encoded([Header(HeaderKind.WILL, "", key.encode())]) + block
    return marked if len(marked) <= HEADER_BLOCK_BYTES_MAX else block


def publisher_of(block: bytes) -> str | None:
    """Return the session key of the client that published a message or left it as its will, if it is stored."""
    for kind, _, value in decode_headers(block) if block else ():
        if kind == HeaderKind.PUBLISHER:
            return value.decode("utf-8", "replace")
        if kind == HeaderKind.WILL:
            return value.decode("utf-8", "replace").rpartition("\0")[0]
    return None


def _check_size(length: int) -> None:
    if length > HEADER_BLOCK_BYTES_MAX:
        raise ProtocolViolation("PUBLISH properties are too large", Reason.PACKET_TOO_LARGE)


def stored_headers(block: bytes) -> StoredHeaders:
    """Decode a stored header block for a delivery. Never raises: the block was verified by its checksum and its
    writer, and items of other kinds (a Kafka key, those of a later version) are skipped."""
    if not block:
        return NO_HEADERS
    return _remembered_stored(block) if len(block) <= _REMEMBERED_BYTES else _stored_headers(block)


def _stored_headers(block: bytes) -> StoredHeaders:
    values: dict[HeaderKind, bytes] = {}
    users = []
    for kind, name, value in decode_headers(block):
        if kind == HeaderKind.USER:
            users.append((_printable(name.encode()), _printable(value)))
        elif kind in _STORED or kind == HeaderKind.PUBLISHER:
            values[HeaderKind(kind)] = value
    stored: dict[str, Any] = {
        name: read(values[kind]) for kind, (name, _, read) in _STORED.items() if kind in values
    }
    expiry_s: int | None = stored.pop("message_expiry_interval", None)
    publisher = values.get(HeaderKind.PUBLISHER)
    return StoredHeaders(
        write_block(Properties(user_properties=tuple(users), **stored)),
        expiry_s,
        None if publisher is None else publisher.decode("utf-8", "replace"),
    )


_remembered_stored = functools.lru_cache(4096)(_stored_headers)


def _printable(value: bytes) -> str:
    """Return any bytes as a string that MQTT can carry: headers of other producers need not be text."""
    return value.decode("utf-8", "backslashreplace").replace("\0", "\\x00")[:16_000]


_STORED: dict[HeaderKind, tuple[str, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    HeaderKind.PAYLOAD_FORMAT: (
        "payload_format_indicator",
        lambda value: bytes((value,)),
        lambda value: int(value == b"\x01"),
    ),
    HeaderKind.MESSAGE_EXPIRY: (
        "message_expiry_interval",
        lambda value: value.to_bytes(4, "little"),
        lambda value: int.from_bytes(value, "little"),
    ),
    HeaderKind.CONTENT_TYPE: ("content_type", str.encode, _printable),
    HeaderKind.RESPONSE_TOPIC: ("response_topic", str.encode, _printable),
    HeaderKind.CORRELATION_DATA: ("correlation_data", bytes, bytes),
}
"""Property of each kind of header, and how it is stored and read back."""
