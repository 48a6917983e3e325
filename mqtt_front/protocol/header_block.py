"""MQTT 5 properties of a publish as the header block of its record, and back.

What a publisher says about its message (sections 3.3.2.3.2 to 3.3.2.3.9) is kept in the record and forwarded
unaltered and in order. Topic alias and subscription identifiers belong to one connection and are never
stored. Both directions are remembered for small blocks: devices send the same properties with every message.
"""

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
"""Blocks up to this size are remembered, at most 4096 of them: 1 MiB a cache at the worst."""


class PublishHeaders(NamedTuple):
    """What the property block of an incoming publish comes to."""

    block: bytes
    """The header block to store; empty for none."""
    topic_alias: int | None


class StoredHeaders(NamedTuple):
    """What the header block of a record says to a delivery."""

    properties: bytes
    """The properties to forward, encoded, without their length and without the expiry interval."""
    expiry_s: int | None
    """Seconds the message may live, counted from its append."""
    publisher: str | None
    """The key of the publisher's session, where it was stored."""


NO_HEADERS = StoredHeaders(b"", None, None)


def publish_headers(properties: bytes) -> PublishHeaders:
    """The header block for the raw property block of a PUBLISH.

    Raises MalformedPacket or ProtocolViolation, also for what a client may not send in a PUBLISH
    [MQTT-3.3.4-6].
    """
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
    """The header block that keeps the properties of a message. Raises ProtocolViolation when they are too
    large."""
    items = []
    if properties.payload_format_indicator is not None:
        items.append(Header(HeaderKind.PAYLOAD_FORMAT, "", bytes((properties.payload_format_indicator,))))
    if properties.message_expiry_interval is not None:
        value = properties.message_expiry_interval.to_bytes(4, "little")
        items.append(Header(HeaderKind.MESSAGE_EXPIRY, "", value))
    if properties.content_type is not None:
        items.append(Header(HeaderKind.CONTENT_TYPE, "", properties.content_type.encode()))
    if properties.response_topic is not None:
        items.append(Header(HeaderKind.RESPONSE_TOPIC, "", properties.response_topic.encode()))
    if properties.correlation_data is not None:
        items.append(Header(HeaderKind.CORRELATION_DATA, "", properties.correlation_data))
    items += (Header(HeaderKind.USER, name, value.encode()) for name, value in properties.user_properties)
    return _encoded(items)


def _encoded(items: Iterable[Header]) -> bytes:
    try:
        return encode_headers(items)
    except RecordTooLarge as error:
        raise ProtocolViolation(f"the properties of a publish: {error}", Reason.PACKET_TOO_LARGE) from None


def with_publisher(run: Publishes, publisher: str, *, only_retained: bool = False) -> Publishes:
    """The publishes with the key of their publisher's session in each header block: a No Local subscription needs it,
    also one that is made long after a message was retained.

    Raises ProtocolViolation when a block becomes too large.
    """
    item = _encoded([Header(HeaderKind.PUBLISHER, "", publisher.encode())])
    longest = 0 if isinstance(run.header_lengths, int) else max(run.header_lengths, default=0)
    _check_size(longest + len(item))
    rows = (
        row if only_retained and not row.first & 1 else row._replace(headers=item + row.headers)
        for row in run.rows()
    )
    return Publishes.of(rows, run.size_bytes)


def with_packet_id(row: PublishRow, publisher: str) -> PublishRow:
    """A publish at QoS 2 with its packet id and whose it is in the header block.

    Raises ProtocolViolation when the block becomes too large.
    """
    items = [
        Header(HeaderKind.PUBLISHER, "", publisher.encode()),
        Header(
            HeaderKind.PACKET_ID, "", row.acknowledgement[:1:-1]
        ),  # big endian on the wire, little in files
    ]
    block = _encoded(items) + row.headers
    _check_size(len(block))
    return row._replace(headers=block)


def with_will_key(block: bytes, key: str) -> bytes:
    """The header block of a will with what tells it from all others; as it is when there is no room for that."""
    marked = _encoded([Header(HeaderKind.WILL, "", key.encode())]) + block
    return marked if len(marked) <= HEADER_BLOCK_BYTES_MAX else block


def _check_size(length: int) -> None:
    if length > HEADER_BLOCK_BYTES_MAX:
        raise ProtocolViolation("PUBLISH properties are too large", Reason.PACKET_TOO_LARGE)


def stored_headers(block: bytes) -> StoredHeaders:
    """What a record's header block means to a delivery. Never raises: the block was checked by its crc and
    its writer, and items of other kinds (a Kafka key, a later version's) are passed over."""
    if not block:
        return NO_HEADERS
    return _remembered_stored(block) if len(block) <= _REMEMBERED_BYTES else _stored_headers(block)


def _stored_headers(block: bytes) -> StoredHeaders:
    values: dict[HeaderKind, bytes] = {}
    users = []
    for kind, name, value in decode_headers(block):
        if kind == HeaderKind.USER:
            users.append((_printable(name.encode()), _printable(value)))
        elif kind in _FORWARDED or kind in (HeaderKind.MESSAGE_EXPIRY, HeaderKind.PUBLISHER):
            values[HeaderKind(kind)] = value
    forwarded: dict[str, Any] = {
        name: read(values[kind]) for kind, (name, read) in _FORWARDED.items() if kind in values
    }
    properties = Properties(user_properties=tuple(users), **forwarded)
    expiry = values.get(HeaderKind.MESSAGE_EXPIRY)
    publisher = values.get(HeaderKind.PUBLISHER)
    return StoredHeaders(
        write_block(properties),
        None if expiry is None else int.from_bytes(expiry, "little"),
        None if publisher is None else publisher.decode("utf-8", "replace"),
    )


_remembered_stored = functools.lru_cache(4096)(_stored_headers)


def _printable(value: bytes) -> str:
    """Any bytes as a string that MQTT can carry: headers written by other producers need not be text."""
    return value.decode("utf-8", "backslashreplace").replace("\0", "\\x00")[:16_000]


def _indicator(value: bytes) -> int:
    return 1 if value == b"\x01" else 0


_FORWARDED: dict[HeaderKind, tuple[str, Callable[[bytes], Any]]] = {
    HeaderKind.PAYLOAD_FORMAT: ("payload_format_indicator", _indicator),
    HeaderKind.CONTENT_TYPE: ("content_type", _printable),
    HeaderKind.RESPONSE_TOPIC: ("response_topic", _printable),
    HeaderKind.CORRELATION_DATA: ("correlation_data", bytes),
}
