"""Payloads as typed columns, through real Spark."""

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimeType,
    VarcharType,
)

import timestone
from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.payload.formats import check_type
from tests.support.spark import Batches, batch, stream
from tests.support.stores import LOG

FIELDS = "device string, seq bigint, ts timestamp, inner struct<temperature: double>, tags array<string>"
JSON = {"payload": "json", "payloadSchema": FIELDS}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 messages; every hundredth is broken."""
    path = tmp_path_factory.mktemp("payload") / "data"
    with timestone.open(path) as opened:
        opened.log(LOG).append_many([message(number) for number in range(1000)], topic="devices/1/state")
    return path


def message(number: int) -> bytes:
    if number % 100 == 99:
        return b'{"device": '
    return json.dumps(
        {
            "device": f"d{number % 3}",
            "seq": number,
            "ts": f"2026-01-01T00:00:{number % 60:02}Z",
            "inner": {"temperature": number / 2},
            "tags": ["a"] * (number % 3),
            "other": {"ignored": True},
        }
    ).encode()


@pytest.mark.spark
def test_the_source_decodes_what_from_json_decodes(spark: SparkSession, store: Path) -> None:
    decoded = batch(spark, store, badRecords="null", **JSON)
    assert decoded.columns == [
        "log",
        "partition",
        "offset",
        "timestamp",
        "topic",
        "headers",
        "flags",
        "payload",
    ]
    parsed = batch(spark, store).select(
        "offset", f.from_json(f.col("value").cast("string"), FIELDS).alias("payload")
    )
    good = f.col("payload.seq").isNotNull()
    ours, sparks = (frame.where(good).select("offset", "payload.*") for frame in (decoded, parsed))
    assert ours.schema == sparks.schema
    assert ours.count() == 990
    assert ours.exceptAll(sparks).count() == sparks.exceptAll(ours).count() == 0
    assert decoded.where("payload is null").count() == 10


@pytest.mark.spark
def test_bad_records_go_where_they_are_told(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    with pytest.raises(PythonException, match="the payload at offset 99 is not what payload=json"):
        batch(spark, store, **JSON).count()
    told = batch(spark, store, badRecords="column", **JSON).where("payload_error is not null")
    assert [(row["offset"], bytes(row["value"])) for row in told.collect()] == [
        (number, b'{"device": ') for number in range(99, 1000, 100)
    ]
    dead = tmp_path / "dead"
    kept = batch(spark, store, badRecords="dlq", dlqPath=str(dead), minPartitions=3, **JSON)
    for _ in range(2):
        assert kept.count() == 990
    letters = spark.read.parquet(str(dead / f"{LOG}-0"))
    assert sorted(row["offset"] for row in letters.collect()) == list(range(99, 1000, 100))


@pytest.mark.spark
def test_a_stream_has_the_same_columns_and_dead_letters_once(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    dead, sink = tmp_path / "dead", Batches(tmp_path / "out")
    frame = stream(spark, store, badRecords="dlq", dlqPath=dead, maxOffsetsPerTrigger=300, **JSON)
    frame = frame.where("payload.inner.temperature >= 0")
    sink.drain(frame, tmp_path / "checkpoint")
    assert sorted(sink.offsets()) == [number for number in range(1000) if number % 100 != 99]
    assert spark.read.parquet(str(dead / f"{LOG}-0")).count() == 10


@pytest.mark.spark
def test_a_schema_may_be_a_type_and_the_columns_chosen(spark: SparkSession, store: Path) -> None:
    fields = StructType([StructField("seq", LongType())])
    chosen = {"payload": "json", "payloadSchema": fields.json(), "badRecords": "null"}
    frame = batch(spark, store, columns="payload,offset", **chosen)
    assert frame.schema.simpleString() == "struct<payload:struct<seq:bigint>,offset:bigint>"
    assert frame.where("payload.seq = offset").count() == 990


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"payload": "json", "payloadSchema": "seq bigint not null"},
            "got payload.seq NOT NULL, which a payload may lack",
        ),
        (
            {"payload": "xml", "payloadSchema": "x int"},
            "invalid payload: expected json or avro or protobuf or msgpack",
        ),
        (
            {"payload": "json", "payloadSchema": "seq bigint, seq bigint"},
            "expected each field once, got payload.seq twice",
        ),
        (
            {"payload": "json", "payloadSchema": StructType().json()},
            "invalid payloadSchema: expected at least one field, got none",
        ),
    ],
    ids=["not null", "format", "twice", "none"],
)
def test_what_cannot_be_decoded_is_said_before_it_is_read(
    spark: SparkSession, store: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        batch(spark, store, **options).count()
    assert said in str(caught.value)


@pytest.mark.spark
def test_a_schema_that_spark_cannot_read_is_named_and_quoted(spark: SparkSession, store: Path) -> None:
    with pytest.raises(AnalysisException, match=r"invalid payloadSchema: .* got 'seq frobnicate'"):
        batch(spark, store, payload="json", payloadSchema="seq frobnicate")


@pytest.mark.spark
def test_it_does_not_depend_on_what_a_session_calls_a_timestamp(spark: SparkSession, store: Path) -> None:
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = batch(spark, store, badRecords="null", **JSON)
        assert dict(frame.dtypes)["timestamp"] == "timestamp"
        assert frame.where("payload.ts = timestamp'2026-01-01T00:00:01'").count() == 17
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_any_field_has_to_be_allowed_to_be_null() -> None:
    deep = StructType(
        [StructField("a", MapType(StringType(), StructType([StructField("b", LongType(), False)])))]
    )
    with pytest.raises(InvalidOption, match=r"got payload\.a\.b NOT NULL"):
        check_type(deep)


@pytest.mark.parametrize("kind", [VarcharType(3), TimeType(6)], ids=lambda kind: kind.typeName())
def test_a_type_that_nothing_is_decoded_into_is_refused(kind: DataType) -> None:
    deep = StructType([StructField("a", MapType(StringType(), kind))])
    with pytest.raises(InvalidOption, match=rf"for payload\.a, got {kind.typeName()}\("):
        check_type(deep)
