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
import struct
from collections.abc import Iterable
from typing import NamedTuple

from timestone.errors import RecordTooLarge

FLAG_RETAIN = 1 << 0
"""The publish asked for the record to be retained."""
FLAG_QOS_SHIFT = 1
FLAG_QOS_MASK = 0b11 << FLAG_QOS_SHIFT
"""Two bits: the quality of service of the publish."""
FLAG_TOMBSTONE = 1 << 3
"""The record deletes its topic's earlier ones when the log is compacted; so does one with an empty payload."""
FLAG_REMOVED = 1 << 4
"""Compaction has removed the record: only its index entry is left, without topic and bytes, so that offsets stay what
they are. Never shown by a read, and not for anybody else to set."""

HEADER_BLOCK_BYTES_MAX = 0xFFFF
_ITEM = struct.Struct("<BHI")
assert _ITEM.size == 7


class HeaderKind(enum.IntEnum):
    """What a header item is. Numbers are on disk: never change one."""

    USER = 0
    """An MQTT 5 user property or a Kafka header: any name, any value, duplicates and order kept."""
    KEY = 1
    CONTENT_TYPE = 2
    RESPONSE_TOPIC = 3
    CORRELATION_DATA = 4
    PAYLOAD_FORMAT = 5
    MESSAGE_EXPIRY = 6
    PUBLISHER = 7
    """The client id of the publisher; only where a No Local subscription needs it."""
    PACKET_ID = 8
    """The packet id of a QoS 2 publish, kept with the append so that exactly once survives a crash."""
    POSTING = 9
    """In the first record of each frame of a posting: which one, so that it is appended once."""
    WILL = 10
    """Which will the record is, so that a server that is killed while it publishes it does so once."""


class Header(NamedTuple):
    """One item of a header block."""

    kind: int
    name: str
    value: bytes


class Record(NamedTuple):
    """One record as read from a log. `headers` are the user headers; `block` has the items of all kinds."""

    offset: int
    timestamp_us: int
    topic: str | None
    payload: bytes
    block: tuple[Header, ...] = ()
    flags: int = 0

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Name and value of the user headers, in order."""
        return tuple((item.name, item.value) for item in self.block if item.kind == HeaderKind.USER)

    @property
    def key(self) -> bytes | None:
        """The key of a record that came from Kafka, or None."""
        return next((item.value for item in self.block if item.kind == HeaderKind.KEY), None)

    @property
    def qos(self) -> int:
        """The quality of service of the publish that made this record."""
        return (self.flags & FLAG_QOS_MASK) >> FLAG_QOS_SHIFT


def user_headers(pairs: Iterable[tuple[str, bytes]]) -> list[Header]:
    """The items for pairs of a name and a value. Raises TypeError for anything else."""
    items = []
    for pair in pairs:
        match pair:
            case (str(name), bytes(value)):
                items.append(Header(HeaderKind.USER, name, value))
            case _:
                raise TypeError(f"a header is a pair of a name (str) and a value (bytes), not {pair!r}")
    return items


def encode_headers(items: Iterable[Header]) -> bytes:
    """The header block of `items`, in order; empty for no items.

    Raises RecordTooLarge when the block is over 65,535 bytes: its length is a u16 in the index entry.
    """
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
    """The items of a header block.

    Raises ValueError when the bytes are not a whole block; every length is checked before it is used.
    """
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
