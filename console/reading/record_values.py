"""Payloads and headers as people read them: JSON, text, MessagePack or hexadecimal; bounded in size."""

from collections.abc import Iterable

import msgspec

from timestone.record import FLAG_RETAIN, FLAG_TOMBSTONE, NUMBER_BYTES, Header, HeaderKind, Record

PREVIEW_BYTES = 1024
"""Of a value in a list."""
VALUE_BYTES = 64 << 10
"""Of a value by itself."""
_PARSED_BYTES = 1 << 20
"""Largest payload that is decoded to find out what it is."""
_JSON_STARTS = frozenset(b'{["-0123456789tfn \t\r\n')


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Payload. kind: `json`: `text` is its JSON as sent; `text`; `messagepack`: `text` is the same value as JSON;
    `binary`: `text` is its bytes in hexadecimal; `empty`."""

    kind: str
    text: str
    is_cut: bool = False
    """Whether `text` is only the beginning."""


class HeaderRow(msgspec.Struct, frozen=True, kw_only=True):
    """Header of a record. kind: `user`, `key`, `content_type`, …; value: text, or hexadecimal with `is_binary`."""

    kind: str
    name: str
    value: str
    is_binary: bool = False


class RecordRow(msgspec.Struct, frozen=True, kw_only=True):
    """Record. value: null if it is damaged, or if this login may not read its topic."""

    offset: int
    timestamp_us: int
    topic: str | None
    bytes: int
    qos: int
    is_retained: bool
    is_tombstone: bool
    headers: list[HeaderRow]
    value: Value | None
    is_hidden: bool = False
    damage: str | None = None
    """Why it cannot be read; the next record is at `offset_after`."""
    offset_after: int | None = None


def value_of(payload: bytes, limit: int) -> Value:
    """Return a payload as people read it, with at most `limit` bytes of it."""
    if not payload:
        return Value(kind="empty", text="")
    text = _utf8(payload, limit)
    if text is not None:
        kind = "json" if payload[0] in _JSON_STARTS and _is_json(payload) else "text"
        return Value(kind=kind, text=text, is_cut=len(payload) > limit)
    packed = _messagepack(payload)
    if packed is not None:
        return Value(kind="messagepack", text=packed[:limit], is_cut=len(packed) > limit)
    half = limit // 2
    return Value(kind="binary", text=payload[:half].hex(), is_cut=len(payload) > half)


def row_of(record: Record, limit: int, *, is_hidden: bool = False) -> RecordRow:
    """Return a record as a row."""
    return RecordRow(
        offset=record.offset,
        timestamp_us=record.timestamp_us,
        topic=record.topic,
        bytes=len(record.payload),
        qos=record.qos,
        is_retained=bool(record.flags & FLAG_RETAIN),
        is_tombstone=bool(record.flags & FLAG_TOMBSTONE),
        headers=[] if is_hidden else list(_headers(record.block, limit)),
        value=None if is_hidden else value_of(record.payload, limit),
        is_hidden=is_hidden,
    )


def damaged_row(offset: int, reason: str, offset_after: int) -> RecordRow:
    """Return the row for a record that cannot be read."""
    return RecordRow(
        offset=offset,
        timestamp_us=0,
        topic=None,
        bytes=0,
        qos=0,
        is_retained=False,
        is_tombstone=False,
        headers=[],
        value=None,
        damage=reason,
        offset_after=offset_after,
    )


def _headers(block: Iterable[Header], limit: int) -> Iterable[HeaderRow]:
    for item in block:
        kinds = {kind.value for kind in HeaderKind}
        kind = HeaderKind(item.kind).name.lower() if item.kind in kinds else str(item.kind)
        if item.kind in NUMBER_BYTES:
            yield HeaderRow(kind=kind, name=item.name, value=str(int.from_bytes(item.value, "little")))
            continue
        text = _utf8(item.value, limit)
        if text is None:
            yield HeaderRow(kind=kind, name=item.name, value=item.value[: limit // 2].hex(), is_binary=True)
        else:
            yield HeaderRow(kind=kind, name=item.name, value=text)


def _utf8(data: bytes, limit: int) -> str | None:
    """Return at most `limit` bytes as text; None for what is not UTF-8 or has control characters of binary data."""
    try:
        text = data[:limit].decode()
    except UnicodeDecodeError as error:
        if len(data) <= limit or error.start < limit - 3:
            return None
        text = data[: error.start].decode()  # the limit has cut a character
    return None if "\0" in text else text


def _is_json(payload: bytes) -> bool:
    if len(payload) > _PARSED_BYTES:
        return payload[:1] in (b"{", b"[")
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _messagepack(payload: bytes) -> str | None:
    if len(payload) > _PARSED_BYTES or payload[0] < 0x80:
        return None
    try:
        found = msgspec.msgpack.decode(payload)
        return msgspec.json.encode(found).decode() if isinstance(found, dict | list) else None
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError):
        return None
