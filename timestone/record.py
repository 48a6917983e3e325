"""One record as a value, its flag bits, and the header block that may lie in front of its payload.

Plain telemetry has no header block and pays nothing for this. A block is only written for records that carry
MQTT 5 properties, a Kafka key or headers. Layout of an item, repeated to the end of the block
(docs/formats/record.md):

    0  1  kind          one of HeaderKind
    1  2  name length   little endian
    3  4  value length  little endian
    7  .  name (UTF-8), then value

The version of the format is the version of the index that points to the record.
"""

import enum
import operator
import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from timestone.errors import RecordTooLarge

FLAG_RETAIN = 1 << 0
"""The publish had RETAIN."""
FLAG_QOS_SHIFT = 1
FLAG_QOS_MASK = 0b11 << FLAG_QOS_SHIFT
"""Two bits: the QoS of the publish."""
FLAG_TOMBSTONE = 1 << 3
"""The record deletes earlier ones of its topic when the log is compacted; so does a record with an empty payload."""
FLAG_REMOVED = 1 << 4
"""Compaction has removed the record: only its index entry is left, without topic and bytes, so that offsets do not
change. Reads skip it. Set by the engine only."""

HEADER_BLOCK_BYTES_MAX = 0xFFFF
_SHOWN_BYTES = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ITEM = struct.Struct("<BHI")
assert _ITEM.size == 7


class HeaderKind(enum.IntEnum):
    """Kind of a header item. The numbers are on disk: never change one."""

    USER = 0
    """MQTT 5 user property or Kafka header: any name, any value; duplicates and order are kept."""
    KEY = 1
    CONTENT_TYPE = 2
    RESPONSE_TOPIC = 3
    CORRELATION_DATA = 4
    PAYLOAD_FORMAT = 5
    MESSAGE_EXPIRY = 6
    PUBLISHER = 7
    """Client id of the publisher; only where a No Local subscription needs it."""
    PACKET_ID = 8
    """Packet id of a QoS 2 publish, stored with the record so that it is appended exactly once across a crash."""
    POSTING = 9
    """In the first record of each frame of a posting: its identity, so that it is appended once."""
    WILL = 10
    """Identity of a will, so that a server killed while publishing it publishes it once."""


NUMBER_BYTES: Mapping[int, int] = {
    HeaderKind.PAYLOAD_FORMAT: 1,
    HeaderKind.MESSAGE_EXPIRY: 4,
    HeaderKind.PACKET_ID: 2,
}
"""The items that are numbers, little endian, and their size."""


class Header(NamedTuple):
    """Item of a header block."""

    kind: int
    name: str
    value: bytes


class Record(NamedTuple):
    """Record as read from a log. headers: the user headers; block: the items of all kinds."""

    offset: int
    timestamp_us: int
    topic: str | None
    payload: bytes
    block: tuple[Header, ...] = ()
    flags: int = 0

    def __repr__(self) -> str:
        try:
            time = f"{self.timestamp:%Y-%m-%dT%H:%M:%S.%f}Z"
        except OverflowError:
            time = f"{self.timestamp_us} us"
        shown = repr(self.payload[:_SHOWN_BYTES]) + ("…" if len(self.payload) > _SHOWN_BYTES else "")
        topic = "" if self.topic is None else f", topic {self.topic!r}"
        headers = f", headers {self.headers}" if self.headers else ""
        flags = f", flags {self.flags:#x}" if self.flags else ""
        return f"<Record {self.offset}: {time}{topic}, {len(self.payload):,} bytes {shown}{headers}{flags}>"

    @property
    def timestamp(self) -> datetime:
        """Return the append time, in UTC. Raises OverflowError for one that no calendar has."""
        return _EPOCH + timedelta(microseconds=self.timestamp_us)

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Return name and value of the user headers, in order."""
        return tuple((item.name, item.value) for item in self.block if item.kind == HeaderKind.USER)

    @property
    def key(self) -> bytes | None:
        """Return the key of a record that came from Kafka; None if it has none."""
        return next((item.value for item in self.block if item.kind == HeaderKind.KEY), None)

    @property
    def qos(self) -> int:
        """Return the QoS of the publish that made this record."""
        return (self.flags & FLAG_QOS_MASK) >> FLAG_QOS_SHIFT


def as_bytes(value: Any, what: str) -> bytes:
    """Return a bytes-like object as bytes: a copy, unless it is `bytes`. Raises TypeError, also for text."""
    if type(value) is bytes:
        return value
    try:
        return memoryview(value).tobytes()
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"invalid {what}: expected bytes, bytearray or memoryview, got {kind}") from None


def as_whole(value: Any, what: str) -> int:
    """Return an integer of any type, such as one of numpy's, as `int`. Raises TypeError."""
    if type(value) is int:
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"invalid {what}: expected a whole number, got {value!r:.60}") from None


def time_us(moment: datetime) -> int:
    """Return the microseconds since 1970 of a time. Raises ValueError for one without a time zone."""
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(f"invalid time: expected a datetime with a time zone, got {moment!r}")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def parse_time(text: str) -> datetime:
    """Return the time in a text as in RFC 3339. Raises ValueError, also for one without a time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"expected an RFC 3339 time such as 2026-07-01T08:00:00Z, got {text!r:.60}"
        ) from None
    if moment.tzinfo is None:
        # Guessing the zone would silently move a read by hours.
        raise ValueError(
            f"expected a time zone in {text!r}: {moment.isoformat()}Z for UTC, or an offset such as +02:00 instead of Z"
        )
    return moment


def user_headers(pairs: Iterable[tuple[str, bytes | bytearray | memoryview]]) -> list[Header]:
    """Return the items for pairs of a name and a value. Raises TypeError for anything else."""
    if not isinstance(pairs, Iterable):
        raise TypeError(f"invalid headers: expected pairs of a name and a value, got {pairs!r:.60}")
    items = []
    for pair in pairs:
        match pair:
            case (str(name), value):
                items.append(Header(HeaderKind.USER, name, as_bytes(value, f"value of header {name!r}")))
            case _:
                raise TypeError(
                    f"invalid header: expected a pair of a name (str) and a value (bytes), got {pair!r}"
                )
    return items


def encode_headers(items: Iterable[Header]) -> bytes:
    """Encode a header block in order; empty for no items. Raises RecordTooLarge for a block over 65,535 bytes,
    because its length is a u16 in the index entry."""
    parts: list[bytes] = []
    for kind, name, value in items:
        encoded = name.encode()
        if len(encoded) > 0xFFFF:
            raise RecordTooLarge(len(encoded), 0xFFFF, "header name")
        parts += (_ITEM.pack(kind, len(encoded), len(value)), encoded, value)
    block = b"".join(parts)
    if len(block) > HEADER_BLOCK_BYTES_MAX:
        raise RecordTooLarge(len(block), HEADER_BLOCK_BYTES_MAX, "header block")
    return block


def decode_headers(block: bytes | memoryview) -> tuple[Header, ...]:
    """Decode a header block. Raises ValueError for malformed bytes; every length is checked before it is used."""
    items: list[Header] = []
    data, at = bytes(block), 0
    while at < len(data):
        if at + _ITEM.size > len(data):
            raise ValueError(f"header block ends inside an item at byte {at}")
        kind, name_length, value_length = _ITEM.unpack_from(data, at)
        name_end = at + _ITEM.size + name_length
        end = name_end + value_length
        if end > len(data):
            raise ValueError(f"header item at byte {at} runs past the end of its block")
        items.append(Header(kind, data[at + _ITEM.size : name_end].decode(), data[name_end:end]))
        at = end
    return tuple(items)
