"""Avro payloads."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.payload.avro import payload_format, spark_type
from tests.support.payloads import options_of, rows

POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "seq", "type": ["null", "long"]},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "points", "type": {"type": "array", "items": POINT}},
        {"name": "again", "type": ["null", "Point"]},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}
ROW: dict[str, Any] = {
    "device": "d1", "seq": None, "raw": b"\x01\x02", "kind": "B", "ts": datetime(2026, 1, 31, tzinfo=UTC),
    "day": date(2026, 1, 31), "price": Decimal("12.50"), "id": UUID(int=7), "points": [{"x": 1}, {"x": 2}],
    "again": {"x": 3}, "tags": {"a": 1.5},
}  # fmt: skip


def encoded(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def found(schema: dict[str, Any], payloads: list[bytes]) -> list[Any]:
    options = options_of(payload="avro", payloadSchema=json.dumps(schema))
    return rows(payload_format(options, to_arrow_type(spark_type(options), timezone="UTC")), payloads)


def test_every_type_comes_through() -> None:
    assert found(SCHEMA, [encoded(SCHEMA, ROW)]) == [ROW | {"id": str(UUID(int=7)), "tags": [("a", 1.5)]}]


def test_a_uuid_is_text_wherever_it_is() -> None:
    kind = {"type": "string", "logicalType": "uuid"}
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": kind}]}
    fields = {
        "many": {"type": "array", "items": kind},
        "named": {"type": "map", "values": kind},
        "inner": inner,
    }
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": one} for name, one in fields.items()],
    }
    row = {"many": [UUID(int=1)], "named": {"a": UUID(int=2)}, "inner": {"x": UUID(int=3)}}
    texts = [str(UUID(int=number)) for number in (1, 2, 3)]
    assert found(schema, [encoded(schema, row)]) == [
        {"many": texts[:1], "named": [("a", texts[1])], "inner": {"x": texts[2]}}
    ]


def test_names_mean_what_they_mean_in_their_namespaces() -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    other = {"type": "record", "name": "other.R", "fields": [{"name": "x", "type": "int"}]}
    fields = {"kind": kind, "again": "plant.Kind", "short": "Kind", "other": other, "one_more": "other.R"}
    schema = {
        "type": "record",
        "name": "R",
        "namespace": "plant",
        "fields": [{"name": name, "type": one} for name, one in fields.items()],
    }
    row = {"kind": "A", "again": "B", "short": "A", "other": {"x": 1}, "one_more": {"x": 2}}
    assert found(schema, [encoded(schema, row)]) == [row]


def test_a_logical_type_of_another_type_than_its_own_is_passed_over() -> None:
    schema = in_record({"type": "string", "logicalType": "date"})
    assert found(schema, [encoded(schema, {"f": "today"})]) == [{"f": "today"}]


def test_bytes_of_another_schema_are_bad() -> None:
    simple = {"type": "record", "name": "S", "fields": [{"name": "device", "type": "string"}]}
    good = encoded(simple, {"device": "d1"})
    bad = [b"", good[:-1], good + b"x", b"\x04\xff\xfe"]
    result = found(simple, [good, *bad, good])
    assert [isinstance(one, str) for one in result] == [False, True, True, True, True, False]
    assert "1 bytes too many" in result[3]


def in_record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "expected an Avro schema, got "),
        (json.dumps({"type": "array", "items": "int"}), "expected an Avro record, got "),
        (json.dumps(in_record(["int", "string"])), "expected unions of null and one type, got"),
        (json.dumps(in_record(["null", "R"])), "expected records that do not contain themselves, got R"),
        (json.dumps(in_record("nonsense")), "expected an Avro schema, got "),
        ('{"type": "record", "name": "R"}', "expected records with fields, got R without"),
        ("[" * 100_000, "expected an Avro schema, got "),
        (
            json.dumps(in_record({"type": "record", "name": "E", "fields": []})),
            "expected records with fields, got E without",
        ),
        (
            json.dumps(in_record({"type": "fixed", "name": "F", "size": 0})),
            "expected fixed types of at least one byte, got F",
        ),
        (json.dumps(in_record({"type": "bytes", "logicalType": "decimal"})), "a precision from 1 to 38"),
        (json.dumps(in_record({"type": "bytes", "logicalType": "decimal", "precision": 39})), "from 1 to 38"),
        (
            json.dumps(in_record({"type": "int", "logicalType": "time-millis"})),
            "got the logical type time-millis",
        ),
    ],
    ids=[
        "json",
        "array",
        "union",
        "recursion",
        "unknown",
        "no fields",
        "deep",
        "empty record",
        "empty fixed",
        "decimal without precision",
        "decimal over Spark's",
        "time of day",
    ],
)
def test_schemas_that_spark_cannot_hold_are_refused(schema: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=f"^invalid payloadSchema: .*{said}"):
        spark_type(options_of(payload="avro", payloadSchema=schema))
