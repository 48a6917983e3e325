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
    assert (options.path, options.log, options.partition) == (Path("/data"), "commands", 0)
    assert (options.flags, options.topic, options.transaction, options.timeout_s) == (0b101, None, None, 60.0)


def test_a_batch_write_may_say_which_it_is() -> None:
    given = {"path": "/data", "log": "x", "txnAppId": "backfill", "txnVersion": "0"}
    assert sink_options(given, streaming=False).transaction == ("backfill", 0)
    with pytest.raises(InvalidOption, match="a stream's batches are appended once as they are"):
        sink_options(given, streaming=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"the log to append to is missing: .*commands.\)$"),
        ({"topic": "out"}, r"commands.\), which is what Kafka.s sink calls topic$"),
        ({"log": "a/b"}, "log: 'a/b' cannot name a log"),
        ({"log": "x", "topic": "#"}, "topic: topic '#' contains a wildcard"),
        ({"log": "x", "partition": "1000000000"}, "cannot have a partition 1000000000"),
        ({"log": "x", "txnAppId": "", "txnVersion": "1"}, "txnAppId: '' cannot name a producer"),
        ({"log": "x", "txnAppId": "a", "txnVersion": "9" * 20}, "txnVersion is 9+, over"),
        ({"log": "x", "qos": "3"}, "qos is 0 or 1 or 2, not '3'"),
        ({"log": "x", "partition": "-1"}, "partition is a whole number from 0 on"),
        ({"log": "x", "txnVersion": "1"}, "txnVersion is given alone"),
        ({"log": "x", "commitTimeoutS": "0"}, "commitTimeoutS is a whole number from 1 on"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        sink_options({"path": "/data", **given}, streaming=False)


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
    check_columns(schema)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (frame_of(topic=StringType()), "the frame has topic and no value"),
        (frame_of(value=IntegerType()), "column 'value' is int, not binary or string"),
        (frame_of(value=BinaryType(), topic=BinaryType()), "column 'topic' is binary, not string"),
        (frame_of(value=BinaryType(), headers=StringType()), "column 'headers' is string, not array<struct<"),
        (frame_of(value=BinaryType(), offset=LongType()), "column 'offset' is none of these"),
    ],
    ids=["no value", "number", "topic", "headers", "offset"],
)
def test_other_frames_are_refused_in_words(schema: StructType, said: str) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        check_columns(schema)
