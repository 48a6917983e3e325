"""Batches of records as bytes to print: one function a format, a whole batch a call.

`json` shows everything about a record; `raw`, `text` and `hex` show its value only. Nothing here reads a log or writes
to a stream. Only the first `count` records of a batch are formatted: the caller cuts at its end offset or count.
"""

import base64
import re
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import TypeAlias

from timestone.reading.batch import Batch
from timestone.record import NUMBER_BYTES, Header, HeaderKind

Formatter: TypeAlias = Callable[[Batch, int], bytes]

# JSON allows these inside strings, but terminals and line-splitting programs act on them.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029]")
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def quote(text: str) -> str:
    """Return a JSON string without characters that a terminal or a line splitter would act on."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", encode_basestring(text))


def raw(batch: Batch, count: int) -> bytes:
    """Return the values back to back, with nothing added."""
    return b"".join(batch.payloads()[:count])


def text(batch: Batch, count: int) -> bytes:
    """Return the values, each followed by a newline."""
    return b"\n".join([*batch.payloads()[:count], b""])


def terminal_text(batch: Batch, count: int) -> bytes:
    """Return `text` with everything escaped that is not text: a record must not control the terminal."""
    return printable(text(batch, count))


def printable(data: bytes) -> bytes:
    """Return text with everything escaped that a terminal would act on."""
    lines = data.decode(errors="backslashreplace")
    return _NOT_TEXT.sub(lambda match: f"\\x{ord(match[0]):02x}", lines).encode()


def hexadecimal(batch: Batch, count: int) -> bytes:
    """Return the values in hexadecimal, one a line."""
    return "\n".join([*(payload.hex() for payload in batch.payloads()[:count]), ""]).encode()


class JsonLines:
    """Format of one JSON object a line: log, partition, offset, timestamp_us, topic, flags, headers, value or
    value_base64. Caches the encoded topic names, so use one for one log."""

    def __init__(self) -> None:
        self._topics: dict[int, str] = {}

    def __call__(self, batch: Batch, count: int) -> bytes:
        head = f'{{"log":{quote(batch.log)},"partition":{batch.partition},"offset":'
        lines = [
            f'{head}{offset},"timestamp_us":{timestamp},"topic":{self._topic(batch, topic)},"flags":{flags},'
            f'"headers":{header_list(batch.headers_of(row)) if header_length else "[]"},{value_member(payload)}}}\n'
            for row, offset, timestamp, topic, flags, header_length, payload in zip(
                range(count),
                batch.offsets.tolist(),
                batch.timestamps_us.tolist(),
                batch.topic_ids.tolist(),
                batch.flags.tolist(),
                batch.header_lengths.tolist(),
                batch.payloads(),
                strict=False,  # `count` may be less than the batch has
            )
        ]
        return "".join(lines).encode()

    def _topic(self, batch: Batch, topic_id: int) -> str:
        known = self._topics.get(topic_id)
        if known is None:
            name = batch.topics.name(topic_id)
            known = self._topics[topic_id] = "null" if name is None else quote(name)
        return known


def value_member(payload: bytes) -> str:
    """Return the member of a JSON object that has a payload: as text, or in base64 when it is not UTF-8."""
    try:
        return f'"value":{quote(payload.decode())}'
    except UnicodeDecodeError:
        return f'"value_base64":"{base64.b64encode(payload).decode()}"'


def header_list(items: tuple[Header, ...]) -> str:
    """Return the items of a header block as a JSON list."""
    return "[" + ",".join(_header(item) for item in items) + "]"


def _header(item: Header) -> str:
    try:
        kind = HeaderKind(item.kind).name.lower()
    except ValueError:
        kind = str(item.kind)  # written by a newer Timestone
    if not item.name and NUMBER_BYTES.get(item.kind) == len(item.value):
        return f'{{"kind":"{kind}","value":{int.from_bytes(item.value, "little")}}}'
    name = f'"name":{quote(item.name)},' if item.name or item.kind == HeaderKind.USER else ""
    return f'{{"kind":"{kind}",{name}{value_member(item.value)}}}'


def formatter(name: str, *, terminal: bool) -> Formatter:
    """Return the formatter called `name`: json, raw, text or hex."""
    formats: dict[str, Formatter] = {
        "json": JsonLines(),
        "raw": raw,
        "text": terminal_text if terminal else text,
        "hex": hexadecimal,
    }
    return formats[name]


FORMATS = ("json", "raw", "text", "hex")
