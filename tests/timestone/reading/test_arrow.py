"""Arrow columns, and that plain telemetry is passed on without a copy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timestone
from timestone.kernel.entries import ENTRY, NO_TOPIC
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone.record import FLAG_TOMBSTONE, Header, HeaderKind, encode_headers
from timestone.writing.write_batch import WriteBatch

pa = pytest.importorskip("pyarrow")
arrow = pytest.importorskip("timestone.reading.arrow")
BLOCK = encode_headers([Header(HeaderKind.USER, "é", b"\x00\xff")])


@pytest.fixture
def log(quick_directory: Path) -> Iterator[Log]:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        yield store.log("telemetry", 2)


def append(log: Log, payloads: list[bytes], headed: set[int] = frozenset()) -> Batch:  # type: ignore[assignment]
    stored = [BLOCK + payload if number in headed else payload for number, payload in enumerate(payloads)]
    lengths = [len(BLOCK) if number in headed else 0 for number in range(len(payloads))]
    topics = [log.topic_id(f"t{number % 2}") if number % 3 else NO_TOPIC for number in range(len(payloads))]
    offsets = log.append_batch(WriteBatch(stored, topics, flags=7, header_lengths=lengths))
    return log.read(offsets.start)


def rows_of(batch: Batch) -> list[tuple[object, ...]]:
    return [
        (
            "telemetry",
            2,
            record.offset,
            record.timestamp_us,
            record.topic,
            [{"key": key, "value": value} for key, value in record.headers] or None,
            record.payload,
            record.flags,
        )
        for record in batch
    ]


def arrow_rows(table: Any) -> list[tuple[object, ...]]:
    columns = table.set_column(3, "timestamp", table.column("timestamp").cast(pa.int64())).to_pydict()
    return list(zip(*columns.values(), strict=True))


@pytest.mark.parametrize(
    "headed", [set(), {0}, {3}, {1, 2}, set(range(4))], ids=["plain", "first", "last", "middle", "all"]
)
def test_columns_have_the_values_of_the_records(log: Log, headed: set[int]) -> None:
    batch = append(log, [b"zero", b"", b"two", b"three"], headed)
    table = batch.to_arrow()
    assert table.schema == arrow.SCHEMA
    table.validate(full=True)
    assert arrow_rows(table) == rows_of(batch)


def test_headers_are_null_for_a_record_that_only_has_a_key(log: Log) -> None:
    block = encode_headers([Header(HeaderKind.KEY, "", b"k")])
    log.append_batch(WriteBatch([block + b"keyed"], [NO_TOPIC], header_lengths=[len(block)]))
    assert log.read(0).to_arrow().column("headers").to_pylist() == [None]


@pytest.mark.parametrize("count", [31, 32, 100])
def test_each_record_has_its_topic_with_few_or_many_topics(log: Log, count: int) -> None:
    batch = append(log, [b""] * count)
    assert batch.to_arrow().column("topic").to_pylist() == [record.topic for record in batch]
    some = batch.select(batch.offsets % 3 != 1)
    assert some.to_arrow().column("topic").to_pylist() == [record.topic for record in some]


def test_plain_records_share_their_bytes_with_the_batch(log: Log) -> None:
    batch = append(log, [b"x" * 1000] * 50)
    value = batch.to_arrow().column("value")
    assert value.buffers()[2].address == pa.py_buffer(batch.data).address


def test_selected_records_are_copied_together(log: Log) -> None:
    batch = append(log, [b"%d" % number * 3 for number in range(20)])
    for step in (2, 7):
        chosen = batch.select(batch.offsets % step == 0)
        assert chosen.to_arrow().column("value").to_pylist() == chosen.payloads()


def test_value_is_null_for_a_tombstone_without_payload(log: Log) -> None:
    stored = [b"data", BLOCK, b"", b"", b"kept"]
    flags = np.array([0, FLAG_TOMBSTONE, FLAG_TOMBSTONE, 0, FLAG_TOMBSTONE], dtype=np.uint16)
    log.append_batch(WriteBatch(stored, [NO_TOPIC] * 5, flags=flags, header_lengths=[0, len(BLOCK), 0, 0, 0]))
    batch = log.read(0)
    assert batch.to_arrow().column("value").to_pylist() == [b"data", None, None, b"", b"kept"]
    assert batch[1:3].to_arrow().column("value").to_pylist() == [None, None]


def test_empty_batch_becomes_an_empty_table(log: Log) -> None:
    table = log.read(0).to_arrow()
    assert table.num_rows == 0
    assert table.schema == arrow.SCHEMA


def test_batch_is_refused_with_its_size_when_a_column_is_too_large(log: Log) -> None:
    entries = np.zeros(2, dtype=ENTRY)
    entries["position"], entries["length"], entries["topic"] = [0, 2**31 - 4], [2**31 - 4, 4], NO_TOPIC
    data = bytes(2**31)  # zeros that are never read take no memory
    batch = Batch("a", 0, log.topics, offsets=np.arange(2), entries=entries, data=data, next_offset=2)
    with pytest.raises(
        ValueError,
        match="invalid batch: expected at most 2147483647 bytes for an Arrow column, got 2147483648",
    ):
        batch.to_arrow()
