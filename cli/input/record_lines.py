"""Lines that `timestone read` prints, back to records: one function a format.

The reverse of `output/record_formats.py`. Nothing here reads a file or knows a log.
"""

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from timestone.filters import validate_topic
from timestone.record import FLAG_REMOVED, NUMBER_BYTES, Header, HeaderKind, encode_headers

_SERVER_NOTES = frozenset((HeaderKind.PUBLISHER, HeaderKind.PACKET_ID, HeaderKind.POSTING, HeaderKind.WILL))
"""What a server notes about how a record arrived, in one store. In another one it would be taken for its own."""


class RecordLine(NamedTuple):
    """A record to append."""

    payload: bytes
    headers: bytes = b""
    """The header block."""
    topic: str | None = None
    flags: int = 0


Parser = Callable[[bytes], RecordLine]


def hex_line(line: bytes) -> RecordLine:
    """Return the payload of a line of `--format hex`. Raises ValueError."""
    return RecordLine(bytes.fromhex(line.decode("ascii")))


def json_line(line: bytes) -> RecordLine:
    """Return the record of a line of `--format json`; offset and time are not read. Raises ValueError."""
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, got {line[:40]!r}")
    topic = found.get("topic")
    if topic is not None:
        validate_topic(_text(topic, "topic"))
    flags = found.get("flags", 0)
    if not isinstance(flags, int) or not 0 <= flags <= 0xFFFF or flags & FLAG_REMOVED:
        raise ValueError(f"invalid flags: expected a whole number of 16 bits, got {flags!r}")
    headers = found.get("headers", [])
    if not isinstance(headers, list):
        raise ValueError(f"invalid headers: expected a list, got {headers!r}")
    items = [item for item in map(_header, headers) if item.kind not in _SERVER_NOTES]
    return RecordLine(_value(found), encode_headers(items), topic, flags)


PARSERS: dict[str, Parser] = {"json": json_line, "hex": hex_line}
"""By the name of the format; a line of text needs none."""


def _header(found: Any) -> Header:
    if not isinstance(found, dict):
        raise ValueError(f"invalid header: expected an object, got {found!r}")
    kind = _kind(found.get("kind"))
    name, value = _text(found.get("name", ""), "name of a header"), found.get("value")
    if not isinstance(value, int):
        return Header(kind, name, _value(found))
    try:
        return Header(kind, name, value.to_bytes(NUMBER_BYTES[kind], "little"))
    except (KeyError, OverflowError):
        raise ValueError(f"invalid value of a header: expected a text, got {value}") from None


def _kind(name: Any) -> int:
    text = _text(name, "kind of a header")
    if text.isdecimal() and int(text) <= 0xFF:
        return int(text)  # of a newer Timestone
    try:
        return HeaderKind[text.upper()]
    except KeyError:
        raise ValueError(f"invalid kind of a header: {text!r}") from None


def _value(found: dict[str, Any]) -> bytes:
    if "value_base64" in found:
        return base64.b64decode(_text(found["value_base64"], "value_base64"), validate=True)
    if "value" not in found:
        raise ValueError("expected a value or a value_base64")
    return _text(found["value"], "value").encode()


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"invalid {what}: expected a text, got {value!r}")
    return value
