"""Parsing: every record becomes a message or a reject with its reason."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import timestone
from tests.support.spark import batch
from timestone_pipeline import MessageConfig, good, parse, rejected
from timestone_pipeline.steps.clean import SEEN_AT, without_repetitions

pytestmark = pytest.mark.spark

GOOD = b'{"device": "d1", "seq": 7, "ts": "2026-01-01T00:00:07.250Z", "temperature": 21.5, "humidity": 48.0}'
CASES = [
    (GOOD, None),
    (b'{"device": "d2", "ts": "2026-01-01T00:00:00Z"}', None),
    (b'{"device": "d3", "ts": "2026-01-01T00:00:00Z", "unknown": [1, {"a": 2}]}', None),
    (b"", "not the JSON that was expected"),
    (b"temperature=21", "not the JSON that was expected"),
    (b'{"device": "d1", "ts": "2026-01-01T00:0', "not the JSON that was expected"),
    (
        b'{"device": "d1", "ts": "2026-01-01T00:00:00Z", "temperature": "warm"}',
        "not the JSON that was expected",
    ),
    *(
        (
            b'{"device": "d1", "ts": "2026-01-01T00:00:00Z", "temperature": %s}' % number,
            "not the JSON that was expected",
        )
        for number in (b"1e400", b"-1e400", b"1" + b"0" * 400, b"NaN", b"-Infinity", b'"NaN"', b'"+INF"')
    ),
    (b"\xff\xfe\x00", "not the JSON that was expected"),
    (b'{"ts": "2026-01-01T00:00:00Z"}', "no device"),
    (b'{"device": "d1"}', "no time"),
    (b'{"device": "d1", "ts": "2199-01-01T00:00:00Z"}', "a time in the future"),
    (b'{"device": "d1", "ts": "+294247-01-10T04:00:54.775807Z"}', "a time in the future"),
    (b'{"device": "d1", "ts": "0001-01-01T00:00:00Z"}', "a time before 1900"),
    (b'{"device": "d1", "ts": "1970-01-01T00:00:00Z"}', None),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with timestone.open(tmp_path) as opened:
        opened.log("mqtt").append_many([value for value, _ in CASES], topic="site/1")
    return tmp_path


def test_every_record_is_a_message_or_a_reject_with_a_reason(spark: SparkSession, store: Path) -> None:
    rows = parse(batch(spark, store)).orderBy("offset").collect()
    assert [(bytes(row["value"]), row["problem"]) for row in rows] == CASES


def test_valid_message_has_its_fields_and_its_origin(spark: SparkSession, store: Path) -> None:
    row = good(parse(batch(spark, store))).where("offset = 0").collect()[0].asDict()
    # PySpark returns local times without a zone; the session's is UTC, the machine's may be another.
    received_at = row.pop("received_at").astimezone(UTC)
    assert row.pop("ts").astimezone(UTC) == datetime(2026, 1, 1, 0, 0, 7, 250_000, tzinfo=UTC)
    assert row == {
        "log": "mqtt", "partition": 0, "offset": 0, "topic": "site/1", "value": bytearray(GOOD),
        "device": "d1", "seq": 7, "temperature": 21.5, "humidity": 48.0,
        "ingest_date": received_at.date(),
    }  # fmt: skip


def test_rejects_keep_their_bytes(spark: SparkSession, store: Path) -> None:
    rows = rejected(parse(batch(spark, store))).orderBy("offset").collect()
    assert [(row["offset"], bytes(row["value"])) for row in rows] == [
        (offset, value) for offset, (value, problem) in enumerate(CASES) if problem is not None
    ]


def test_number_too_large_is_found_in_any_field(spark: SparkSession, tmp_path: Path) -> None:
    head = b'{"device": "d", "ts": "2026-01-01T00:00:00Z", '
    bad = [b'"f": 1e39}', b'"l": [null, 1, 1e400]}', b'"s": {"x": [1e400]}}', b'"m": {"a": 1e400}}']
    well = [b'"f": -3.4e38, "l": [null, 1], "s": {"x": null}, "m": {"a": null}}', b'"l": null}', b'"s": {}}']
    with timestone.open(tmp_path) as opened:
        opened.log("mqtt").append_many([head + each for each in bad + well])
    fields = {
        "device": "string", "seq": "int", "ts": "timestamp", "f": "float", "l": "array<double>",
        "s": "struct<x: array<double>>", "m": "map<string, double>",
    }  # fmt: skip
    rows = parse(batch(spark, tmp_path), MessageConfig(fields=fields)).orderBy("offset").collect()
    assert [row["problem"] for row in rows] == ["not the JSON that was expected"] * 4 + [None] * 3


def test_schema_may_be_given_by_the_user(spark: SparkSession, store: Path) -> None:
    fields = {"device": "string", "ts": "timestamp", "unknown": "array<string>", "number": "int"}
    parsed = good(parse(batch(spark, store), MessageConfig(fields=fields, sequence="number")))
    assert parsed.where("offset = 2").select("unknown").first() == (["1", '{"a":2}'],)


def test_field_may_have_any_name_other_than_a_column(spark: SparkSession, tmp_path: Path) -> None:
    names = ("seen_at", "_before", "_malformed", "message", "window")
    known: dict[str, object] = {"device": "d1", "seq": 1, "ts": "2026-01-01T00:00:00Z"}
    value = json.dumps(known | dict.fromkeys(names, 7))
    with timestone.open(tmp_path) as opened:
        opened.log("mqtt").append_many([value.encode()] * 2)
    fields = {"device": "string", "seq": "bigint", "ts": "timestamp"} | dict.fromkeys(names, "bigint")
    message = MessageConfig(fields=fields)
    seen = spark.createDataFrame([], f"device string, seq bigint, `{SEEN_AT}` array<timestamp>")
    found = without_repetitions(parse(batch(spark, tmp_path), message), seen, message, 10)
    rows = found.orderBy("offset").select(*names, "problem").collect()
    assert [tuple(row) for row in rows] == [(7, 7, 7, 7, 7, None), (7, 7, 7, 7, 7, "a repetition")]


def test_repetitions_are_found_in_the_batch_and_in_earlier_rows_within_the_time(spark: SparkSession) -> None:
    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)

    schema = "log string, partition int, offset long, received_at timestamp, device string, seq long, problem string"
    rows = [
        (at(0), "a", 1, None, False),
        (at(0), "b", 1, None, False),  # another device
        (at(5), "a", 1, None, True),
        (at(14), "a", 1, None, True),  # ten seconds after the last repetition, not after the first
        (at(25), "a", 1, None, False),  # eleven after
        (at(6), "a", None, None, False),  # no sequence, nothing to repeat
        (at(7), "a", None, None, False),
        (at(8), "a", 1, "broken", False),  # rejected already, and not counted
        (at(3), "c", 9, None, True),  # seen before the batch
        (at(50), "c", 9, None, False),
        (at(9), "e", 3, None, True),  # seen after it, as a reprocessed letter is
    ]
    frame = spark.createDataFrame(
        [("mqtt", 0, offset, *row[:4]) for offset, row in enumerate(rows)],
        schema,
    )
    seen = spark.createDataFrame(
        [("c", 9, [at(-100), at(-7)]), ("d", 1, [at(0)]), ("e", 3, [at(19)])],
        f"device string, seq long, `{SEEN_AT}` array<timestamp>",
    )
    found = without_repetitions(frame, seen, MessageConfig(), 10).orderBy("offset").collect()
    assert [row["problem"] for row in found] == [
        "a repetition" if repeats else problem for _, _, _, problem, repeats in rows
    ]
