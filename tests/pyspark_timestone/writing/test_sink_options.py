"""The options of the sink, and the frames it takes."""

from pathlib import Path

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_timestone.errors import InvalidOption, SchemaMismatch
from pyspark_timestone.options.columns import HEADERS
from pyspark_timestone.writing.sink_options import check_columns, sink_options


def test_options_are_read_in_whatever_case_they_are_written() -> None:
    given = {"PATH": "/data", "Log": "commands", "QOS": "2", "retain": "TRUE", "checkpointlocation": "/c"}
    options = sink_options(given, streaming=True)
    assert (options.target, options.log, options.partition) == (Path("/data"), "commands", 0)
    assert (options.flags, options.topic, options.transaction, options.timeout_s) == (0b101, None, None, 60.0)


def test_a_batch_write_may_say_which_it_is() -> None:
    given = {"path": "/data", "log": "x", "txnAppId": "backfill", "txnVersion": "0"}
    assert sink_options(given, streaming=False).transaction == ("backfill", 0)
    with pytest.raises(InvalidOption, match="invalid txnAppId: expected a batch, got a stream"):
        sink_options(given, streaming=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"invalid log: expected the log to append to, as in .*commands.\), got none$"),
        ({"topic": "out"}, r"commands.\), got none, which is what Kafka.s sink calls topic$"),
        ({"log": "a/b"}, "invalid log: 'a/b' cannot name a log"),
        ({"log": "x", "topic": "#"}, "invalid topic: topic '#' contains a wildcard"),
        ({"log": "x", "partition": "1000000000"}, "cannot have a partition 1000000000"),
        (
            {"log": "x", "txnAppId": "", "txnVersion": "1"},
            "invalid txnAppId: invalid producer: expected 1 to 200 printable characters, got ''",
        ),
        (
            {"log": "x", "txnAppId": "a", "txnVersion": "9" * 20},
            "invalid txnVersion: expected at most [0-9]+, got 9+",
        ),
        ({"log": "x", "qos": "3"}, "invalid qos: expected 0 or 1 or 2, got '3'"),
        ({"log": "x", "partition": "-1"}, "invalid partition: expected a whole number from 0 on, got '-1'"),
        ({"log": "x", "txnVersion": "1"}, "invalid txnVersion: expected txnAppId beside it, got none"),
        (
            {"log": "x", "commitTimeoutS": "0"},
            "invalid commitTimeoutS: expected a whole number from 1 on, got '0'",
        ),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        sink_options({"path": "/data", **given}, streaming=False)


def test_kafka_s_layout_calls_the_log_a_topic(caplog: pytest.LogCaptureFixture) -> None:
    named = sink_options(
        {"path": "/data", "layout": "kafka", "topic": "out", "partition": "3"}, streaming=True
    )
    assert (named.log, named.partition, named.topic, named.kafka_layout) == ("out", 3, None, True)
    by_row = sink_options({"path": "/data", "kafka.bootstrap.servers": "b:9092"}, streaming=True)
    assert (by_row.log, by_row.kafka_layout) == (None, True)
    assert caplog.messages[0].endswith("nothing but the layout, which is kafka: kafka.bootstrap.servers")
    with pytest.raises(InvalidOption, match="as in Spark's Kafka connector"):
        sink_options({"path": "/data", "log": "x", "kafka.key.serializer": "x"}, streaming=True)
    plain = {"path": "/data", "kafka.bootstrap.servers": "b:9092", "layout": "timestone", "log": "x"}
    assert not sink_options(plain, streaming=True).kafka_layout
    with pytest.raises(
        InvalidOption, match="invalid log: expected topic, which names the log with layout=kafka, got 'out'"
    ):
        sink_options({"path": "/data", "layout": "kafka", "log": "out"}, streaming=True)
    with pytest.raises(InvalidOption, match="invalid topic: 'a/b' cannot name a log"):
        sink_options({"path": "/data", "layout": "kafka", "topic": "a/b"}, streaming=True)


OPTIONS = sink_options({"path": "/data", "log": "x"}, streaming=False)
KAFKA = sink_options({"path": "/data", "layout": "kafka"}, streaming=False)


def frame_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "schema",
    [
        frame_of(value=BinaryType()),
        frame_of(topic=StringType(), value=StringType()),
        frame_of(value=BinaryType(), headers=HEADERS),
    ],
    ids=["value", "strings", "headers"],
)
def test_frames_of_these_columns_are_taken(schema: StructType) -> None:
    check_columns(schema, OPTIONS)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (frame_of(topic=StringType()), "^invalid schema: expected .*, got topic without value"),
        (frame_of(value=IntegerType()), "expected binary or string for 'value', got int"),
        (frame_of(value=BinaryType(), topic=BinaryType()), "expected string for 'topic', got binary"),
        (
            frame_of(value=BinaryType(), headers=StringType()),
            "expected array<struct<.* for 'headers', got string",
        ),
        (frame_of(value=BinaryType(), offset=LongType()), "got 'offset' too: drop it"),
    ],
    ids=["no value", "number", "topic", "headers", "offset"],
)
def test_other_frames_are_refused_in_words(schema: StructType, said: str) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        check_columns(schema, OPTIONS)


def test_frames_of_kafka_s_sink_are_taken_with_columns_that_are_left_out() -> None:
    columns: dict[str, DataType] = {"key": StringType(), "value": BinaryType(), "topic": StringType()}
    check_columns(frame_of(**columns), KAFKA)
    check_columns(frame_of(**columns, partition=IntegerType(), headers=HEADERS, offset=LongType()), KAFKA)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            frame_of(value=BinaryType()),
            "got no topic, which names the log: add the column, or set the option topic",
        ),
        (frame_of(topic=StringType()), "^invalid schema: expected .*, got topic without value"),
        (
            frame_of(value=BinaryType(), topic=StringType(), key=LongType()),
            "expected binary or string for 'key', got bigint",
        ),
        (
            frame_of(value=BinaryType(), topic=StringType(), partition=LongType()),
            "expected int for 'partition', got bigint",
        ),
    ],
    ids=["no topic", "no value", "key", "partition"],
)
def test_other_frames_are_refused_in_kafka_s_layout(schema: StructType, said: str) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        check_columns(schema, KAFKA)
