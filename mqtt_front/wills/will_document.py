"""Document of a will, stored while its client is connected or its delay runs, so that it outlives the server.

Layout (little endian): magic "TWIL", version u8, QoS and RETAIN as in the first byte of a PUBLISH u8, bytes of the
session key u16, session expiry u32 (seconds), due f64 (seconds of the store; 0 while the client is connected), bytes of
the topic u16, bytes of the name of a log u16, bytes of the properties u32; then the session key (`session_key`), topic,
the properties as in CONNECT without their length, the log and an offset u64, and the payload. Log and offset are the
place of a will that is being published (version 2); until then both are absent (version 1)."""

import math
import struct
from typing import NamedTuple

from mqtt_front.codec.fields import Fields
from mqtt_front.codec.packets import Will
from mqtt_front.codec.properties import Carrier, read_block, write_block
from mqtt_front.errors import MqttError
from mqtt_front.wills.will_records import Place
from timestone.errors import TimestoneError

VERSION = 2
_MAGIC = b"TWIL"
_HEADER = struct.Struct("<4sBBHIdHHI")
assert _HEADER.size == 28
_OFFSET = struct.Struct("<Q")


class UndecodableWill(TimestoneError):
    """The document was written by a newer version, or is damaged. It is kept unchanged."""


class StoredWill(NamedTuple):
    """Will with its session and due time."""

    session_key: str
    will: Will
    session_expiry_s: int
    due_s: float
    """Seconds of the store (`PassingTime.kept_s`); 0 while the client is connected."""
    place: Place | None = None
    """Where its record is, if it was published; set just before that."""


def encode_will(stored: StoredWill) -> bytes:
    """Return the document of a will."""
    will = stored.will
    session_key, topic, properties = (
        stored.session_key.encode(),
        will.topic.encode(),
        write_block(will.properties),
    )
    log, offset = (
        (stored.place.log.encode(), _OFFSET.pack(stored.place.offset)) if stored.place else (b"", b"")
    )
    header = _HEADER.pack(
        _MAGIC, 2 if log else 1, will.qos << 1 | will.retain, len(session_key), stored.session_expiry_s, stored.due_s,
        len(topic), len(log), len(properties),
    )  # fmt: skip
    return header + session_key + topic + properties + log + offset + will.payload


def decode_will(document: bytes) -> StoredWill:
    """Return the will of a document. Raises UndecodableWill."""
    if len(document) < _HEADER.size:
        raise UndecodableWill(f"invalid will document: {len(document)} bytes")
    magic, version, flags, id_bytes, expiry_s, due_s, topic_bytes, log_bytes, properties_bytes = (
        _HEADER.unpack_from(document)
    )
    if magic != _MAGIC or not 1 <= version <= VERSION:
        raise UndecodableWill(
            f"a will document of version {version}; this server reads versions up to {VERSION}"
        )
    topic_at = _HEADER.size + id_bytes
    properties_at = topic_at + topic_bytes
    log_at = properties_at + properties_bytes
    offset_at = log_at + log_bytes
    payload_at = offset_at + (_OFFSET.size if log_bytes else 0)
    try:
        properties = read_block(Fields(document[properties_at:log_at]), Carrier.WILL)
        log = document[log_at:offset_at].decode()
        session_key, topic = (
            document[_HEADER.size : topic_at].decode(),
            document[topic_at:properties_at].decode(),
        )
    except (MqttError, UnicodeDecodeError) as error:
        raise UndecodableWill(f"invalid will document: {error}") from error
    if len(document) < payload_at:
        raise UndecodableWill(
            f"invalid will document: expected at least {payload_at} bytes, got {len(document)}"
        )
    if flags >> 1 & 3 == 3 or flags >> 3 or not math.isfinite(due_s):
        raise UndecodableWill(f"invalid will document: flags {flags:#x}, due {due_s} s after 1970")
    will = Will(topic, document[payload_at:], flags >> 1 & 3, bool(flags & 1), properties)
    place = Place(log, *_OFFSET.unpack_from(document, offset_at)) if log_bytes else None
    return StoredWill(session_key, will, expiry_s, due_s, place)
