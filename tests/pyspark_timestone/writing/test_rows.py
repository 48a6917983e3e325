"""The rows of a task by the log that they go to."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyspark.sql
import pytest

from pyspark_timestone.errors import InvalidRow
from pyspark_timestone.writing.rows import batches_of_rows, rows_by_log

ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def kafka_batch(topics: Sequence[str | None], **columns: pa.Array) -> pa.RecordBatch:
    """Rows whose values count on."""
    values = pa.array([b"%d" % number for number in range(len(topics))])
    return pa.record_batch({"value": values, "topic": pa.array(topics, pa.string()), **columns})


def found(
    batches: Sequence[pa.RecordBatch], log: str | None = None
) -> list[tuple[str, list[Any], list[int]]]:
    return [
        (str(rows.log), rows.batch.column("value").to_pylist(), rows.numbers.tolist())
        for rows in rows_by_log(batches, log, 7, kafka_layout=True)
    ]


def test_rows_go_to_the_log_that_the_column_topic_names() -> None:
    batches = [kafka_batch(["b", "a", "b"]), kafka_batch(["a"]), kafka_batch([])]
    assert found(batches) == [
        ("b-7", [b"0", b"2"], [0, 2]),
        ("a-7", [b"1"], [1]),
        ("a-7", [b"0"], [3]),
    ]


def test_option_topic_goes_before_the_column() -> None:
    assert found([kafka_batch(["b", None])], "one") == [("one-7", [b"0", b"1"], [0, 1])]


def test_column_partition_goes_before_the_option_where_it_is_not_null() -> None:
    partition = pa.array([2, None, 2], pa.int32())
    assert found([kafka_batch(["a", "a", "b"], partition=partition)]) == [
        ("a-2", [b"0"], [0]),
        ("a-7", [b"1"], [1]),
        ("b-2", [b"2"], [2]),
    ]


def test_only_what_becomes_the_record_is_left_of_the_columns() -> None:
    batch = kafka_batch(
        ["a"], key=pa.array([b"k"]), offset=pa.array([5]), partition=pa.array([0], pa.int32())
    )
    (rows,) = rows_by_log([batch], None, 0, kafka_layout=True)
    assert rows.batch.schema.names == ["key", "value"]


@pytest.mark.parametrize(
    ("topic", "partition", "said"),
    [
        (None, 0, "row 1 .*: column topic: it is null; the option topic can name one log for all rows"),
        ("a/b", 0, "row 1 .*: column topic: 'a/b' cannot name a log"),
        ("a", -1, "row 1 .* cannot have a partition -1"),
    ],
    ids=["null", "name", "partition"],
)
def test_row_without_a_log_is_refused_by_its_number(topic: str | None, partition: int, said: str) -> None:
    batch = kafka_batch(["a", topic, "a"], partition=pa.array([0, partition, 0], pa.int32()))
    with pytest.raises(InvalidRow, match=said):
        found([batch])


def test_rows_become_the_arrow_batches_that_later_sparks_make_of_them() -> None:
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string()), ("headers", ARROW_HEADERS)])
    header = pyspark.sql.Row(key="k", value=bytearray(b"v"))
    rows = [
        pyspark.sql.Row(value=bytearray(b"one"), topic="x/1", headers=[header]),
        pyspark.sql.Row(value=None, topic=None, headers=None),
    ]
    (batch,) = batches_of_rows(iter(rows), schema)
    assert batch.schema == schema
    assert batch.to_pylist() == [
        {"value": b"one", "topic": "x/1", "headers": [{"key": "k", "value": b"v"}]},
        {"value": None, "topic": None, "headers": None},
    ]
    assert [one.num_rows for one in batches_of_rows(rows * 7000, schema)] == [10_000, 4000]
