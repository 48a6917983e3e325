"""Queries of clients: what a descriptor, a ticket or the first message of an exchange asks for, as JSON or as a path.

    {"version": 1, "log": "telemetry", "partition": 0, "from": "earliest", "to": 5000, "topics": ["site/+/boiler"],
     "columns": ["offset", "value"], "decode": "json", "schema": "t double, unit string", "follow": true}

`from` and `to` are offsets or times (RFC 3339); `from` may be "earliest" or "latest"."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from flight_front.errors import InvalidRequest
from timestone.disk.json_document import integer, json_object
from timestone.filters import validate_filter
from timestone.reading.arrow import SCHEMA
from timestone.record import parse_time

VERSION = 1
COMMAND_BYTES_MAX = 64 * 1024
_TOPICS_MAX = 1000
_KEYS = (
    "version", "log", "partition", "from", "to", "topics", "columns", "decode", "schema", "follow", "reader",
    "ack", "producer", "stage",
)  # fmt: skip
KEY_FIELD = pa.field("key", pa.binary())
_TYPES = {
    "string": pa.string(), "double": pa.float64(), "bigint": pa.int64(), "long": pa.int64(), "int": pa.int32(),
    "boolean": pa.bool_(),
}  # fmt: skip

Bound = int | datetime | str


@dataclass(frozen=True, slots=True)
class Query:
    """What a call reads, or where a DoPut appends."""

    log: str
    partition: int = 0
    start: Bound = "earliest"
    end: int | datetime | None = None
    """Offset or time in front of which the range ends; None: the end of the log at the time of the call."""
    topics: tuple[str, ...] | None = None
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    decode: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Columns taken from JSON objects in the payload."""
    follow: bool = False
    reader: str | None = None
    ack: str | None = None
    producer: str | None = None
    stage: str | None = None
    """Group of the parts that a DoPut stages, to be posted later."""

    @property
    def name(self) -> str:
        """Return log and partition as users write them."""
        return self.log if self.partition == 0 else f"{self.log}-{self.partition}"

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the batches."""
        return _schema(self.columns, tuple(self.decode.items()))

    def between(self, first: int, end: int) -> "Query":
        """Return the same query for a fixed range of offsets."""
        return replace(self, start=first, end=end, follow=False)

    def ticket(self) -> bytes:
        """Return the ticket of a fixed range."""
        command: dict[str, Any] = {"version": VERSION, "log": self.log, "from": self.start, "to": self.end}
        if self.partition:
            command["partition"] = self.partition
        if self.topics is not None:
            command["topics"] = self.topics
        if self.columns != tuple(SCHEMA.names):
            command["columns"] = self.columns
        if self.decode:
            names = {kind: name for name, kind in reversed(_TYPES.items())}
            schema = ", ".join(f"{name} {names[kind]}" for name, kind in self.decode.items())
            command |= {"decode": "json", "schema": schema}
        return json.dumps(command).encode()


@functools.lru_cache(maxsize=64)
def _schema(columns: tuple[str, ...], decode: tuple[tuple[str, pa.DataType], ...]) -> pa.Schema:
    """Return a schema; cached, because each batch needs it."""
    own = {**{each.name: each for each in SCHEMA}, KEY_FIELD.name: KEY_FIELD}
    return pa.schema([*(own[name] for name in columns), *(pa.field(name, kind) for name, kind in decode)])


def query_of_descriptor(message: bytes) -> Query:
    """Return the query of a FlightDescriptor. Raises InvalidRequest."""
    try:
        descriptor = fl.FlightDescriptor.deserialize(message)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidRequest(f"invalid descriptor: {error}") from None
    if descriptor.descriptor_type == fl.DescriptorType.CMD:
        return query_of_command(descriptor.command)
    if descriptor.descriptor_type != fl.DescriptorType.PATH or not 1 <= len(descriptor.path) <= 2:
        raise InvalidRequest("invalid descriptor: expected a path [log] or [log, partition], or a command")
    try:
        log, *rest = (part.decode() for part in descriptor.path)
        return Query(log, partition=integer(int(rest[0])) if rest else 0)
    except (UnicodeDecodeError, ValueError):
        raise InvalidRequest("invalid path: expected a log and the number of a partition") from None


def query_of_ticket(message: bytes) -> Query:
    """Return the query of a Ticket. Raises InvalidRequest."""
    try:
        ticket = fl.Ticket.deserialize(message).ticket
    except (pa.ArrowException, ValueError) as error:
        raise InvalidRequest(f"invalid ticket: {error}") from None
    return query_of_command(ticket)


def query_of_command(command: bytes) -> Query:
    """Return the query of a command in JSON. Raises InvalidRequest."""
    if len(command) > COMMAND_BYTES_MAX:
        raise InvalidRequest(
            f"invalid command: expected at most {COMMAND_BYTES_MAX} bytes, got {len(command)}"
        )
    try:
        values = json_object(command)
        unknown = sorted(set(values) - set(_KEYS))
        if unknown:
            raise ValueError(f"expected {', '.join(_KEYS)}, got {unknown[0]!r:.60}")
        if values.get("version", VERSION) != VERSION:
            raise ValueError(f"expected version {VERSION}, got {values['version']!r:.40}")
        topics, follow = values.get("topics"), values.get("follow", False)
        if type(follow) is not bool or (follow and "to" in values):
            raise ValueError("follow: expected true without `to`, or false")
        return Query(
            log=_text(values, "log"),
            partition=integer(values.get("partition", 0)),
            start=_bound(values.get("from", "earliest"), ("earliest", "latest")),
            end=_end(values.get("to")),
            topics=None if topics is None else _topics(topics),
            columns=_columns(values.get("columns")),
            decode=_decode(values),
            follow=follow,
            **{
                name: _text(values, name) for name in ("reader", "ack", "producer", "stage") if name in values
            },
        )
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"invalid command: {error}") from None


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected text, got {value!r:.60}")
    return value


def _bound(value: object, words: tuple[str, ...]) -> Bound:
    if not isinstance(value, str):
        return integer(value)
    if value in words:
        return value
    try:
        return parse_time(value)
    except ValueError as error:
        raise ValueError(f"invalid place: expected an offset or a time: {error}") from None


def _end(value: object) -> int | datetime | None:
    found = None if value is None else _bound(value, ())
    assert not isinstance(found, str)
    return found


def _topics(values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) > _TOPICS_MAX:
        raise TypeError(f"topics: expected a list of at most {_TOPICS_MAX} filters")
    for each in values:
        if not isinstance(each, str):
            raise TypeError(f"topics: expected filters, got {each!r:.60}")
        validate_filter(each)
    return tuple(values)


def _columns(values: object) -> tuple[str, ...]:
    known = [*SCHEMA.names, KEY_FIELD.name]
    if values is None:
        return tuple(SCHEMA.names)
    if not isinstance(values, list) or not all(each in known for each in values):
        raise ValueError(f"columns: expected a list of {', '.join(known)}, got {values!r:.80}")
    if len(set(values)) != len(values):
        raise ValueError("columns: expected each name once")
    return tuple(values)


def _decode(values: Mapping[str, Any]) -> Mapping[str, pa.DataType]:
    if "decode" not in values:
        return {}
    if values["decode"] != "json":
        raise ValueError(f"decode: expected json, got {values['decode']!r:.40}")
    found: dict[str, pa.DataType] = {}
    for part in _text(values, "schema").split(","):
        name, _, kind = part.strip().rpartition(" ")
        if kind not in _TYPES or not name or name in (*found, *SCHEMA.names, KEY_FIELD.name):
            expected = f"`name type` with a new name and one of {', '.join(_TYPES)}"
            raise ValueError(f"schema: expected {expected}, got {part.strip()!r:.60}")
        found[name] = _TYPES[kind]
    return found
