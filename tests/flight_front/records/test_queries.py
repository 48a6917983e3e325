import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from flight_front.errors import InvalidRequest
from flight_front.records.queries import (
    COMMAND_BYTES_MAX,
    Query,
    query_of_command,
    query_of_descriptor,
    query_of_ticket,
)


def asked(**values: object) -> Query:
    return query_of_command(json.dumps(values).encode())


def test_path_names_a_log_and_a_partition() -> None:
    assert query_of_descriptor(fl.FlightDescriptor.for_path("a").serialize()) == Query("a")
    assert query_of_descriptor(fl.FlightDescriptor.for_path("a", "3").serialize()) == Query("a", 3)
    assert Query("a").name == "a" and Query("a", 3).name == "a-3"


def test_command_says_what_is_read() -> None:
    query = asked(
        version=1, log="a", **{"from": 5}, to="2026-01-31T12:00:00Z", topics=["x/#"], columns=["offset", "key"],
        decode="json", schema="t double, unit string",
    )  # fmt: skip
    assert (query.start, query.end) == (5, datetime(2026, 1, 31, 12, tzinfo=UTC))
    assert query.topics == ("x/#",)
    assert query.schema.names == ["offset", "key", "t", "unit"]
    assert query.schema.field("t").type == pa.float64()


def test_ticket_of_a_range_is_read_back_as_the_same_query() -> None:
    query = asked(
        log="a", partition=2, topics=["x"], columns=["value"], decode="json", schema="n bigint, b boolean"
    ).between(3, 9)
    assert query_of_ticket(fl.Ticket(query.ticket()).serialize()) == query


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({}, "log: expected text"),
        ({"log": 3}, "log: expected text"),
        ({"log": "a", "version": 2}, "expected version 1, got 2"),
        ({"log": "a", "form": 1}, "got 'form'"),
        ({"log": "a", "from": -1}, "expected 0 to"),
        (
            {"log": "a", "from": "soon"},
            "expected an offset or a time: expected an RFC 3339 time such as .* got 'soon'",
        ),
        ({"log": "a", "to": "2026-01-31T12:00:00"}, "expected a time zone in"),
        ({"log": "a", "from": 1.5}, "expected a whole number"),
        ({"log": "a", "topics": "x"}, "expected a list"),
        ({"log": "a", "topics": ["x/#/y"]}, "invalid"),
        ({"log": "a", "columns": ["payload"]}, "columns: expected a list of log"),
        ({"log": "a", "columns": ["value", "value"]}, "each name once"),
        ({"log": "a", "decode": "avro"}, "decode: expected json"),
        ({"log": "a", "decode": "json", "schema": "t decimal"}, "schema: expected"),
        ({"log": "a", "decode": "json", "schema": "value double"}, "schema: expected"),
        ({"log": "a", "follow": "yes"}, "follow: expected true"),
        ({"log": "a", "follow": True, "to": 3}, "follow: expected true without `to`"),
    ],
)
def test_invalid_command_is_refused_with_the_reason(values: dict[str, object], error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        asked(**values)


@pytest.mark.parametrize(
    "command", [b"", b"[]", b"\xff", b"{" * 5000, b"[" * 60_000, b" " * (COMMAND_BYTES_MAX + 1)]
)
def test_hostile_command_is_refused(command: bytes) -> None:
    with pytest.raises(InvalidRequest):
        query_of_command(command)


@pytest.mark.parametrize("path", [(), ("a", "x"), ("a", "1", "2"), ("a", "-1")])
def test_invalid_path_is_refused(path: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest):
        query_of_descriptor(fl.FlightDescriptor.for_path(*path).serialize())


def test_garbage_is_refused() -> None:
    for read in (query_of_descriptor, query_of_ticket):
        with pytest.raises(InvalidRequest):
            read(b"\xff\xff")
