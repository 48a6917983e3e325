from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import timestone
from flight_front.errors import InvalidRequest
from flight_front.records.intake import check_columns, frame, write_batch
from tests.support.flight_server import batch
from timestone.log import Log
from timestone.record import FLAG_REMOVED, FLAG_RETAIN, FLAG_TOMBSTONE


def appended(log: Log, records: pa.RecordBatch) -> pa.Table:
    check_columns(records.schema)
    offsets = log.append_batch(write_batch(frame(records), log.topic_id))
    return log.read(offsets.start).to_arrow()


def take(records: pa.RecordBatch) -> None:
    check_columns(records.schema)
    frame(records)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with timestone.open(tmp_path) as store:
        yield store.log("t")


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view()],
)
def test_values_of_each_type_are_appended_as_they_are(log: Log, kind: pa.DataType) -> None:
    column = pa.array(["one", "", "three"], kind)
    assert appended(log, pa.record_batch([column], names=["value"])).column("value").to_pylist() == [
        b"one",
        b"",
        b"three",
    ]
    sliced = pa.record_batch([column], names=["value"]).slice(1, 2)
    assert appended(log, sliced).column("value").to_pylist() == [b"", b"three"]


def test_topics_keys_headers_and_flags_are_kept(log: Log) -> None:
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}], None, []],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    records = batch(
        [b"x", b"y", None],
        topic=pa.array(["s/1", None, "s/1"]),
        key=pa.array([b"k", None, None], pa.binary()),
        headers=headers,
        flags=pa.array([FLAG_RETAIN, 0, 0]),
    )
    found = appended(log, records)
    assert found.column("topic").to_pylist() == ["s/1", None, "s/1"]
    assert found.column("value").to_pylist() == [b"x", b"y", None]
    assert found.column("flags").to_pylist() == [FLAG_RETAIN, 0, FLAG_TOMBSTONE]
    assert found.column("headers").to_pylist()[0] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": b"2"},
    ]
    assert [record.key for record in log] == [b"k", None, None]


def test_columns_of_nulls_are_left_out(log: Log) -> None:
    records = batch([b"x"], topic=pa.nulls(1, pa.string()), key=pa.nulls(1), headers=pa.nulls(1))
    assert appended(log, records).column("topic").to_pylist() == [None]


def test_batch_of_no_records_is_taken(log: Log) -> None:
    assert len(frame(batch([])).lengths) == 0
    assert log.append_batch(write_batch(frame(batch([])), log.topic_id)) == range(0)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"offset": pa.array([1])}, "expected columns value, topic, key, headers, flags, got 'offset'"),
        ({"topic": pa.array([1])}, "invalid column topic: expected text, got int64"),
        ({"flags": pa.array([FLAG_REMOVED])}, "invalid column flags: expected 0 to 15"),
        ({"flags": pa.array([-1])}, "invalid column flags"),
        ({"flags": pa.array(["x"])}, "invalid column flags: expected whole numbers"),
        ({"key": pa.array([1])}, "invalid column key: expected binary or text"),
        ({"headers": pa.array([[1]])}, "invalid column headers: expected a list of key and value"),
        ({"headers": pa.array([[{"key": "k", "value": b"x" * 70_000}]])}, "invalid headers of record 0"),
    ],
)
def test_invalid_column_is_refused(columns: dict[str, pa.Array], error: str) -> None:
    records = batch([b"x"], **columns)
    with pytest.raises(InvalidRequest, match=error):
        take(records)


def test_schema_without_value_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="expected a column `value`"):
        check_columns(pa.schema([("topic", pa.string())]))
    with pytest.raises(InvalidRequest, match="each column once"):
        check_columns(pa.schema([("value", pa.string()), ("value", pa.string())]))


def test_columns_that_take_no_bytes_of_a_message_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="expected at most 65536 nulls without a type, got 1048576"):
        take(pa.record_batch([pa.nulls(1 << 20)], names=["value"]))
    nothing = pa.struct([("key", pa.null()), ("value", pa.null())])
    with pytest.raises(InvalidRequest, match="expected a list of key and value as text or binary"):
        check_columns(pa.schema([("value", pa.binary()), ("headers", pa.list_(nothing))]))


def test_views_of_a_part_of_what_was_sent_are_appended(log: Log) -> None:
    values = pa.array([b"a longer value than twelve bytes", None, b"short"], pa.binary_view())
    for part in (values, values.slice(1, 2), values.slice(2)):
        found = appended(log, pa.record_batch([part], names=["value"])).column("value").to_pylist()
        assert found == part.to_pylist()
