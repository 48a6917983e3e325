"""Parsing: every record becomes a message or a reject with its reason."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import timestone
from tests.support.spark import batch
from timestone_pipeline import good, parse, rejected

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
    (b"\xff\xfe\x00", "not the JSON that was expected"),
    (b'{"ts": "2026-01-01T00:00:00Z"}', "no device"),
    (b'{"device": "d1"}', "no time"),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with timestone.open(tmp_path) as opened:
        opened.log("mqtt").append_many([value for value, _ in CASES], topic="site/1")
    return tmp_path


def test_every_record_is_a_message_or_has_a_reason(spark: SparkSession, store: Path) -> None:
    rows = parse(batch(spark, store)).orderBy("offset").collect()
    assert [(bytes(row["value"]), row["problem"]) for row in rows] == CASES


def test_a_good_message_has_its_fields_and_its_origin(spark: SparkSession, store: Path) -> None:
    row = good(parse(batch(spark, store))).where("offset = 0").collect()[0].asDict()
    assert row.pop("received_at") is not None
    # PySpark hands out local times without a zone; the session's is UTC, the machine's may be another.
    assert row.pop("ts").astimezone(UTC) == datetime(2026, 1, 1, 0, 0, 7, 250_000, tzinfo=UTC)
    assert row == {
        "log": "mqtt", "partition": 0, "offset": 0, "topic": "site/1", "value": bytearray(GOOD),
        "device": "d1", "seq": 7, "temperature": 21.5, "humidity": 48.0,
    }  # fmt: skip


def test_rejects_keep_their_bytes(spark: SparkSession, store: Path) -> None:
    rows = rejected(parse(batch(spark, store))).orderBy("offset").collect()
    assert [(row["offset"], bytes(row["value"])) for row in rows] == [
        (offset, value) for offset, (value, problem) in enumerate(CASES) if problem is not None
    ]


def test_the_schema_may_be_the_users(spark: SparkSession, store: Path) -> None:
    parsed = good(parse(batch(spark, store), "device string, ts timestamp, unknown array<string>"))
    assert parsed.where("offset = 2").select("unknown").first() == (["1", '{"a":2}'],)
