"""Documents of retained messages, stored in the catalogue under their topics (docs/formats/retained.md).

Layout (little endian): magic "TRET", version u8, bytes of the log's name u8, bytes of the header block u16, offset u64,
timestamp i64 (microseconds since 1970), flags u16, six zero bytes, then the log's name, header block, payload."""

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

from mqtt_front.retained.messages import RetainedMessage
from timestone.disk.json_document import integer, json_object
from timestone.errors import TimestoneError

VERSION = 1
CHECKPOINT_KEY = ""
"""Key of the checkpoint: no topic is empty."""
_MAGIC = b"TRET"
_HEADER = struct.Struct("<4sBBHQqH6x")
assert _HEADER.size == 32
_LOG_ID_MAX = (1 << 64) - 1


class UndecodableRetained(TimestoneError):
    """The document was written by a newer version, or is damaged. It is kept unchanged, and its message is not
    delivered."""


class Place(NamedTuple):
    """Identity of a log, and the offset below which it is contained in the documents."""

    log_id: int
    offset: int


def encode_retained(log: str, message: RetainedMessage) -> bytes:
    """Return the document of a message; its topic is the key."""
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
    """Return the log and the message of a document. Raises UndecodableRetained."""
    if len(document) < _HEADER.size:
        raise UndecodableRetained(f"invalid document: {len(document)} bytes")
    magic, version, name_length, block_length, offset, timestamp_us, flags = _HEADER.unpack_from(document)
    if magic != _MAGIC or version != VERSION:
        raise UndecodableRetained(f"a document of version {version}; this server reads version {VERSION}")
    block_at = _HEADER.size + name_length
    payload_at = block_at + block_length
    if payload_at > len(document):
        raise UndecodableRetained(
            f"invalid document: expected at least {payload_at} bytes, got {len(document)}"
        )
    try:
        log = document[_HEADER.size : block_at].decode()
    except UnicodeDecodeError as error:
        raise UndecodableRetained(f"invalid name of a log: {error}") from error
    block, payload = document[block_at:payload_at], document[payload_at:]
    return log, RetainedMessage(offset, timestamp_us, topic, flags, block, payload)


def encode_checkpoint(places: Mapping[str, Place]) -> bytes:
    """Return the checkpoint: how much of each log is in the documents."""
    return json.dumps(places).encode()


def decode_checkpoint(document: bytes | None) -> dict[str, Place]:
    """Return the places by log; empty without a checkpoint. Raises UndecodableRetained."""
    if document is None:
        return {}
    try:
        return {
            name: Place(integer(log_id, most=_LOG_ID_MAX), integer(offset))
            for name, (log_id, offset) in json_object(document).items()
        }
    except (ValueError, TypeError) as error:
        raise UndecodableRetained(f"invalid checkpoint: {error}") from error
