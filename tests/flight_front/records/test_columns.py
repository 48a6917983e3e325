from pathlib import Path

import pyarrow as pa

import timestone
from flight_front.records.columns import arrow_batch
from flight_front.records.queries import Query, query_of_command
from timestone.kernel.entries import NO_TOPIC
from timestone.record import Header, HeaderKind, encode_headers
from timestone.writing.write_batch import WriteBatch


def test_columns_are_those_of_the_engine_by_default(tmp_path: Path) -> None:
    with timestone.open(tmp_path) as store:
        log = store.log("t")
        log.append_many([b"1", b"2"], topic="x")
        assert arrow_batch(log.read(0), Query("t")).equals(log.read(0).to_arrow())


def test_key_is_a_column_when_it_is_asked_for(tmp_path: Path) -> None:
    with timestone.open(tmp_path) as store:
        log = store.log("t")
        block = encode_headers([Header(HeaderKind.KEY, "", b"k")])
        log.append_batch(WriteBatch([block + b"v"], NO_TOPIC, header_lengths=len(block)))
        log.append(b"w")
        found = arrow_batch(log.read(0), Query("t", columns=("key", "value")))
        assert found.to_pydict() == {"key": [b"k", None], "value": [b"v", b"w"]}


def test_json_becomes_columns_and_null_where_it_does_not_fit(tmp_path: Path) -> None:
    command = (
        b'{"log": "t", "columns": [], "decode": "json", "schema": "t double, n int, s string, b boolean"}'
    )
    with timestone.open(tmp_path) as store:
        log = store.log("t")
        log.append_many(
            [
                b'{"t": 1.5, "n": 7, "s": "x", "b": true}',
                b'{"t": 2, "n": 4294967296, "s": {"a": 1}, "b": 1}',
                b"not json",
                b'{"t": "warm", "n": 1.5, "s": true}',
                b"[" * 100_000,
            ]
        )
        found = arrow_batch(log.read(0), query_of_command(command))
    assert found.to_pydict() == {
        "t": [1.5, 2.0, None, None, None],
        "n": [7, None, None, None, None],
        "s": ["x", '{"a": 1}', None, "true", None],
        "b": [True, None, None, None, None],
    }
    assert found.schema.field("n").type == pa.int32()
