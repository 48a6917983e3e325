"""Arrow batches as frames of a posting."""

import pyarrow as pa
import pyspark.sql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_timestone.errors import InvalidRow
from pyspark_timestone.writing.frames import batches_of_rows, frames
from timestone.record import FLAG_TOMBSTONE, decode_headers
from timestone.spool.format import (
    FRAME_BYTES_MAX,
    FRAME_RECORDS_MAX,
    HEADERS_BYTES_MAX,
    NO_TOPIC_NUMBER,
    Frame,
)

ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = tuple[bytes | None, str | None, list[tuple[str, bytes]] | None]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    headers = [
        None if items is None else [{"key": key, "value": value} for key, value in items]
        for _, _, items in rows
    ]
    return pa.record_batch(
        [
            pa.array([row[0] for row in rows], pa.binary()),
            pa.array([row[1] for row in rows], pa.string()),
            pa.array(headers, ARROW_HEADERS),
        ],
        names=["value", "topic", "headers"],
    )


def rows_of(frame: Frame) -> list[Row]:
    """The records of a frame, read as the owner of a store does."""
    rows: list[Row] = []
    end = 0
    for number in range(frame.count):
        start, end = end, end + int(frame.lengths[number])
        split = start + int(frame.header_lengths[number])
        headers = [(item.name, item.value) for item in decode_headers(frame.data[start:split])]
        topic = int(frame.topic_numbers[number])
        tombstone = bool(frame.flags[number] & FLAG_TOMBSTONE)
        rows.append(
            (
                None if tombstone else frame.data[split:end],
                None if topic == NO_TOPIC_NUMBER else frame.topics[topic],
                headers,
            )
        )
    return rows


rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.sampled_from(["a", "b/ü", "devices/1/cmd"]),
        st.none() | st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@given(rows=rows, first=st.integers(0, 5))
def test_rows_come_through_as_they_are_also_out_of_a_slice(rows: list[Row], first: int) -> None:
    batch = batch_of(rows).slice(first)
    found = [row for frame in frames([batch], None, 0) for row in rows_of(frame)]
    assert found == [(value, topic, headers or []) for value, topic, headers in rows[first:]]


def test_strings_are_values_and_one_topic_may_stand_for_all() -> None:
    batch = pa.record_batch([pa.array(["grüße", None]), pa.array(["a", "b"])], names=["value", "topic"])
    (frame,) = frames([batch], "c", 2)
    assert rows_of(frame) == [("grüße".encode(), "c", []), (None, "c", [])]
    assert frame.flags.tolist() == [2, 2 | FLAG_TOMBSTONE]


def test_values_without_topics_have_none() -> None:
    (frame,) = frames([pa.record_batch([pa.array([b"x"])], names=["value"])], None, 0)
    assert rows_of(frame) == [(b"x", None, [])]


def test_frames_stay_within_their_bounds() -> None:
    many = pa.record_batch([pa.array([b""] * (FRAME_RECORDS_MAX + 1))], names=["value"])
    assert [frame.count for frame in frames([many], None, 0)] == [FRAME_RECORDS_MAX, 1]
    large = pa.record_batch([pa.array([bytes(3 << 20)] * 5)], names=["value"])
    made = list(frames([large], None, 0))
    assert sum(frame.count for frame in made) == 5
    assert all(len(frame.data) <= FRAME_BYTES_MAX for frame in made)
    single = pa.record_batch([pa.array([bytes(FRAME_BYTES_MAX + 1)])], names=["value"])
    assert [frame.count for frame in frames([single], None, 0)] == [1]
    assert list(frames([many.slice(0, 0)], None, 0)) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((b"", "a/+", None), "column topic: topic 'a/\\+' contains a wildcard"),
        ((b"", "", None), "column topic"),
        ((b"", None, [("k", bytes(HEADERS_BYTES_MAX))]), "column headers"),
        ((b"", None, [("k", bytes(HEADERS_BYTES_MAX - 7))]), "over the limit"),
    ],
    ids=["wildcard", "empty topic", "huge header", "headers without room"],
)
def test_rows_that_cannot_be_records_are_refused_in_words(row: Row, said: str) -> None:
    with pytest.raises(InvalidRow, match=said):
        list(frames([batch_of([row])], None, 0))


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
