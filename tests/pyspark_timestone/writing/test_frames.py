"""Arrow batches as frames of a posting."""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_timestone.errors import InvalidRow
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.writing import frames as module
from pyspark_timestone.writing.rows import rows_by_log
from timestone.record import FLAG_TOMBSTONE, HeaderKind, decode_headers
from timestone.spool.format import (
    FRAME_BYTES_MAX,
    FRAME_RECORDS_MAX,
    HEADERS_BYTES_MAX,
    MARK_BYTES,
    NO_TOPIC_NUMBER,
    Frame,
)

ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = tuple[bytes | None, str | None, list[tuple[str, bytes]] | None]
LOG = LogPartition("commands", 0)


def frames(
    batches: Iterable[pa.RecordBatch], topic: str | None, flags: int, limits: Mapping[LogPartition, int] = {}
) -> Iterator[Frame]:
    """The frames of rows that all go to one log."""
    for log, frame in module.frames(rows_by_log(batches, *LOG, kafka_layout=False), topic, flags, limits):
        assert log == LOG
        yield frame


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


@pytest.mark.slow
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
        ((b"", "a/+", None), "row 2 .*: column topic: topic 'a/\\+' contains a wildcard"),
        ((b"", "", None), "row 2 .*: column topic"),
        ((b"", None, [("k", bytes(HEADERS_BYTES_MAX))]), "row 2 .*: column headers"),
        ((b"", None, [("k", bytes(HEADERS_BYTES_MAX - 7))]), "row 2 .* over the limit"),
        ((b"", None, [(None, b"")]), "row 2 .*: column headers: the key of a header is null"),
    ],
    ids=["wildcard", "empty topic", "huge header", "headers without room", "no key"],
)
def test_row_that_cannot_be_a_record_is_refused_by_its_number(row: Row, said: str) -> None:
    good: Row = (b"", "a", None)
    batches = [batch_of([good]), batch_of([good, row, good])]
    with pytest.raises(InvalidRow, match=said):
        list(frames(batches, None, 0))


@pytest.mark.parametrize("header", [0, 50], ids=["plain", "header"])
def test_record_over_the_limit_of_its_log_is_refused_with_its_number_and_size(header: int) -> None:
    headers = [("", bytes(header))] if header else None
    size = 100 + (header + 7 if header else 0)
    fits: Row = (bytes(99), None, headers)
    batches = [batch_of([fits] * 3), batch_of([fits, (bytes(100), None, headers), fits])]
    limit = size + MARK_BYTES
    assert sum(frame.count for frame in frames(batches, None, 0, {LOG: limit})) == 6
    assert sum(frame.count for frame in frames(batches, None, 0, {LogPartition("other", 0): 1})) == 6
    said = (
        rf"row 4 .*: a record of {size} bytes, .* is over the {size - 1} .* log commands-0 \(its record_bytes"
    )
    with pytest.raises(InvalidRow, match=said):
        list(frames(batches, None, 0, {LOG: limit - 1}))


def test_key_becomes_a_header_of_its_kind_in_front_of_the_others() -> None:
    items = [[{"key": "h", "value": b"1"}], None, None]
    batch = pa.record_batch(
        [pa.array(["a", "b", "c"]), pa.array(["k", "", None]), pa.array(items, ARROW_HEADERS)],
        names=["value", "key", "headers"],
    )
    (frame,) = frames([batch], None, 0)
    assert frame.header_lengths.tolist() == [8 + 9, 7, 0]
    assert [(item.kind, item.name, item.value) for item in decode_headers(frame.data[:17])] == [
        (HeaderKind.KEY, "", b"k"),
        (HeaderKind.USER, "h", b"1"),
    ]
    assert frame.data.endswith(b"bc")
