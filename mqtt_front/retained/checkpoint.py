"""A retained message as bytes: how it is kept in the store's catalogue, under its topic (docs/formats/retained.md).

Layout (little endian): magic "TRET", version u8, bytes of the log's name u8, bytes of the header block u16, offset u64,
timestamp i64 (microseconds since 1970), flags u16, six zero bytes, then the log's name, header block, payload.
"""

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

from mqtt_front.retained.messages import RetainedMessage
from timestone.disk.json_document import integer, json_object
from timestone.errors import TimestoneError

VERSION = 1
CHECKPOINT_KEY = ""
"""The key of the checkpoint: no topic is empty."""
_MAGIC = b"TRET"
_HEADER = struct.Struct("<4sBBHQqH6x")
assert _HEADER.size == 32
_LOG_ID_MAX = (1 << 64) - 1


class UnknownRetained(TimestoneError):
    """The document was written by a newer version, or is none. It is left alone, and its message is not delivered."""


class Place(NamedTuple):
    """How much of a log is in the documents: everything below an offset of the log with this identity."""

    log_id: int
    offset: int


def encode_retained(log: str, message: RetainedMessage) -> bytes:
    """The document of a message; its topic is the key."""
    name = log.encode()
    header = _HEADER.pack(
        _MAGIC,
        VERSION,
        len(name),
        len(message.block),
        message.offset,
        message.timestamp_us,
        message.flags,
    )
    return header + name + message.block + message.payload


def decode_retained(topic: str, document: bytes) -> tuple[str, RetainedMessage]:
    """The log and the message of a document. Raises UnknownRetained."""
    if len(document) < _HEADER.size:
        raise UnknownRetained(f"a document of {len(document)} bytes")
    magic, version, name_length, block_length, offset, timestamp_us, flags = _HEADER.unpack_from(document)
    if magic != _MAGIC or version != VERSION:
        raise UnknownRetained(f"a document of version {version}; this server reads version {VERSION}")
    block_at = _HEADER.size + name_length
    payload_at = block_at + block_length
    if payload_at > len(document):
        raise UnknownRetained(f"a document of {len(document)} bytes that says it has {payload_at}")
    try:
        log = document[_HEADER.size : block_at].decode()
    except UnicodeDecodeError as error:
        raise UnknownRetained(f"a log's name that is none: {error}") from error
    block, payload = document[block_at:payload_at], document[payload_at:]
    return log, RetainedMessage(offset, timestamp_us, topic, flags, block, payload)


def encode_checkpoint(places: Mapping[str, Place]) -> bytes:
    """How much of each log is in the documents."""
    return json.dumps(places).encode()


def decode_checkpoint(document: bytes | None) -> dict[str, Place]:
    """Empty when there is none. Raises UnknownRetained."""
    if document is None:
        return {}
    try:
        return {
            name: Place(integer(log_id, most=_LOG_ID_MAX), integer(offset))
            for name, (log_id, offset) in json_object(document).items()
        }
    except (ValueError, TypeError) as error:
        raise UnknownRetained(f"how much of each log is in them cannot be read: {error}") from error
