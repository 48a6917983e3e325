"""Records of a log that match conditions, forwards or backwards, bounded in time and size. Conditions are values, never
code."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from timestone.errors import CorruptRecord, InvalidName, OffsetOutOfRange
from timestone.filters import validate_filter
from timestone.reading.topic_mask import TopicMask
from timestone.record import Record, parse_time
from timestone.settings_schema import parse_duration
from timestone.view import LogView

from ..problems import Problem

SEARCH_S = 2.0
"""A search ends after this, and returns where to continue."""
_READ_BYTES = 1 << 20
_BACK_RECORDS = 4096
"""Records of one step backwards."""


class Damage(NamedTuple):
    """Record that cannot be read."""

    offset: int
    reason: str
    next_offset: int


class Found(NamedTuple):
    """Result of a search. next: where to continue in the same order; None at the end of the log in that direction."""

    items: list[Record | Damage]
    next: int | None
    examined: int
    is_complete: bool
    """False if the search ended because of its time."""


class Conditions(NamedTuple):
    """What a record has to match; each that is given."""

    topics: Sequence[str] = ()
    header: str | None = None
    """`name`, or `name=value`."""
    text: str | None = None
    """Part of the payload."""
    path: str | None = None
    """Place in a JSON payload: names and numbers with dots between."""
    value: str | None = None
    """What is there: as JSON, or else as text."""

    def test(self) -> Callable[[Record], bool] | None:
        """Return the test of all but the topics; None if there is nothing to test. Raises Problem."""
        if self.value is not None and self.path is None:
            raise Problem("invalid-request", "invalid value: expected a path beside it")
        tests: list[Callable[[Record], bool]] = []
        if self.header is not None:
            tests.append(_header_test(self.header))
        if self.text is not None:
            part = self.text.encode()
            tests.append(lambda record: part in record.payload)
        if self.path is not None:
            tests.append(_path_test(self.path, self.value))
        return (lambda record: all(one(record) for one in tests)) if tests else None


def position(log: LogView, text: str | None, time_us: int | None, default: int) -> int:
    """Return the offset of a place: an offset, `earliest`, `latest`, a time before now such as `-15m`, or a time in
    ISO 8601 with its zone. Offsets outside the log become its nearest end. Raises Problem."""
    if time_us is not None:
        return log.offset_at(time_us)
    start, end = log.start_offset, log.end_offset
    if text is None:
        return default
    if text == "earliest":
        return start
    if text == "latest":
        return end
    if text.isascii() and text.isdigit() and len(text) < 20:
        return min(max(int(text), start), end)
    try:
        if text.startswith("-"):
            return log.offset_at(time.time_ns() // 1000 - parse_duration(text[1:], "us"))
        return log.offset_at(parse_time(text))
    except (ValueError, OverflowError):
        expected = (
            "an offset, earliest, latest, a time before now such as -15m, or a time in ISO 8601 with its zone"
        )
        raise Problem("invalid-request", f"invalid from: expected {expected}, got {text!r:.60}") from None


def search_forwards(log: LogView, start: int, limit: int, conditions: Conditions) -> Found:
    """Return the records from an offset on. Raises Problem."""
    test, choice = conditions.test(), _choice(log, conditions.topics)
    until_s = time.monotonic() + SEARCH_S
    items: list[Record | Damage] = []
    at, end, first = max(start, log.start_offset), log.end_offset, start
    while at < end and len(items) < limit:
        if time.monotonic() > until_s:
            return Found(items, at, at - first, is_complete=False)
        at = _read_step(log, at, end, limit - len(items), choice, test, items)
    return Found(items, at if at < end else None, max(0, at - first), is_complete=True)


def search_backwards(log: LogView, before: int, limit: int, conditions: Conditions) -> Found:
    """Return the records below an offset, the newest first. Raises Problem."""
    test, choice = conditions.test(), _choice(log, conditions.topics)
    until_s = time.monotonic() + SEARCH_S
    items: list[Record | Damage] = []
    start, at = log.start_offset, min(before, log.end_offset)
    size = limit if test is None and choice is None else _BACK_RECORDS
    while at > start and len(items) < limit:
        if time.monotonic() > until_s:
            return Found(items, at, before - at, is_complete=False)
        first = max(start, at - size)
        step: list[Record | Damage] = []
        place = first
        while place < at:
            place = _read_step(log, place, at, size, choice, test, step)
        room = limit - len(items)
        newest = step[::-1][:room]
        items += newest
        at = newest[-1].offset if len(newest) < len(step) else first
        size = max(size, 16)
    return Found(items, at if at > start else None, before - at, is_complete=True)


def _read_step(
    log: LogView,
    at: int,
    end: int,
    limit: int,
    choice: TopicMask | None,
    test: Callable[[Record], bool] | None,
    items: list[Record | Damage],
) -> int:
    """Add what one read finds below `end`, and return where to read on."""
    count = min(end - at, limit if test is None else 4096)
    try:
        if choice is None:
            batch = log.read(at, max_records=count, max_bytes=_READ_BYTES)
        else:
            batch = log.read_matching(
                at, choice, max_records=count, max_bytes=_READ_BYTES, max_scan=min(end - at, 65_536)
            )
    except CorruptRecord as error:
        items.append(Damage(error.offset, error.reason, error.next_offset))
        return error.next_offset
    except OffsetOutOfRange as error:  # retention was faster
        return max(at + 1, error.start)
    for record in batch:
        if record.offset >= end:
            return end
        if test is None or test(record):
            items.append(record)
            if len(items) >= limit and test is not None:
                return record.offset + 1
    return max(at + 1, batch.next_offset)


def _choice(log: LogView, topics: Sequence[str]) -> TopicMask | None:
    try:
        for one in topics:
            validate_filter(one)
    except InvalidName as error:
        raise Problem("invalid-request", str(error)) from None
    return TopicMask(log.topics, topics) if topics else None


def _header_test(text: str) -> Callable[[Record], bool]:
    name, equals, value = text.partition("=")
    wanted = value.encode()
    return lambda record: any(
        item.name == name and (not equals or item.value == wanted) for item in record.block
    )


def _path_test(path: str, value: str | None) -> Callable[[Record], bool]:
    parts = path.split(".")
    wanted = _json_or_text(value) if value is not None else None

    def test(record: Record) -> bool:
        try:
            found = at_path(msgspec.json.decode(record.payload), parts)
        except (msgspec.DecodeError, RecursionError, LookupError):
            return False
        return value is None or found in (wanted, value)

    return test


def at_path(document: Any, parts: Sequence[str]) -> Any:
    """Return what is at a place of a JSON document. Raises LookupError if there is nothing."""
    for part in parts:
        if isinstance(document, list):
            if not (part.isascii() and part.isdigit() and len(part) < 10):
                raise KeyError(part)
            document = document[int(part)]
        elif isinstance(document, dict):
            document = document[part]
        else:
            raise KeyError(part)
    return document


def numbers_in(document: Any, prefix: str = "", depth: int = 3) -> Iterator[tuple[str, float]]:
    """Yield path and value of each number in a JSON document, down to some depth."""
    if isinstance(document, bool):
        return
    if isinstance(document, int | float):
        yield prefix, float(document)
    elif isinstance(document, dict) and depth:
        for key, value in document.items():
            yield from numbers_in(value, f"{prefix}.{key}" if prefix else str(key), depth - 1)
    elif isinstance(document, list) and depth:
        for number, value in enumerate(document[:20]):
            yield from numbers_in(value, f"{prefix}.{number}" if prefix else str(number), depth - 1)


def _json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
