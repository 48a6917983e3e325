import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import timestone
from timestone.errors import MissingExtra
from timestone.kernel.entries import NO_TOPIC
from timestone.reading.batch import Batch
from timestone.record import Header, HeaderKind, encode_headers
from timestone.writing.write_batch import WriteBatch

BLOCK = encode_headers([Header(HeaderKind.USER, "unit", b"C"), Header(HeaderKind.KEY, "", b"k")])


@pytest.fixture
def batch(quick_directory: Path) -> Iterator[Batch]:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("telemetry", 2)
        topics = [log.topic_id("a"), NO_TOPIC, log.topic_id("b")]
        log.append(b"before")
        write_batch = WriteBatch(
            [b"zero", BLOCK + b"one", b""], topics, flags=[1, 0, 8], header_lengths=[0, len(BLOCK), 0]
        )
        log.append_batch(write_batch)
        yield log.read(1)


def test_slice_is_a_batch_over_the_same_bytes(batch: Batch) -> None:
    part = batch[1:]
    assert [record.payload for record in part] == [b"one", b""]
    assert part.offsets.tolist() == [2, 3]
    assert part.data is batch.data
    assert part.next_offset == batch.next_offset
    assert [batch[-1], batch[2]] == list(batch[2:]) * 2
    assert not batch[3:]
    assert [record.payload for record in batch[::2]] == [b"zero", b""]
    with pytest.raises(ValueError, match="positive step"):
        batch[::-1]


def test_columns_have_the_values_of_the_records(batch: Batch) -> None:
    assert (batch.log, batch.partition, len(batch), batch.next_offset) == ("telemetry", 2, 3, 4)
    assert batch.offsets.tolist() == [1, 2, 3]
    assert batch.topic_ids.tolist() == [0, NO_TOPIC, 1]
    assert batch.flags.tolist() == [1, 0, 8]
    assert batch.header_lengths.tolist() == [0, len(BLOCK), 0]
    assert batch.lengths.tolist() == [4, len(BLOCK) + 3, 0]
    assert batch.payloads() == [b"zero", b"one", b""]
    assert [batch.payload(number) for number in range(3)] == batch.payloads()
    assert not batch.plain
    assert bool(batch)


def test_column_types_are_the_documented_ones(batch: Batch) -> None:
    names = [str(column.dtype) for column in (batch.offsets, batch.timestamps_us, batch.starts)] + [
        str(column.dtype) for column in (batch.topic_ids, batch.lengths)
    ]
    assert names == ["int64", "int64", "int64", "uint32", "uint32"]
    assert (str(batch.flags.dtype), str(batch.header_lengths.dtype)) == ("uint16", "uint16")


def test_records_are_the_same_one_by_one_and_in_a_row(batch: Batch) -> None:
    assert list(batch) == [batch[number] for number in range(3)]
    record = batch[1]
    assert (record.offset, record.topic, record.payload, record.flags) == (2, None, b"one", 0)
    assert record.headers == (("unit", b"C"),)
    assert record.key == b"k"
    assert batch.headers_of(1) == record.block
    assert batch.header_block(1) == BLOCK
    assert batch.user_headers_of(1) == [("unit", b"C")]
    assert batch.topic(2) == "b"


def test_selection_shares_the_bytes(batch: Batch) -> None:
    chosen = batch.select(np.array([True, False, True]))
    assert chosen.offsets.tolist() == [1, 3]
    assert chosen.payloads() == [b"zero", b""]
    assert chosen.data is batch.data
    assert chosen.next_offset == batch.next_offset
    assert batch.select(np.array([True] * 3)) is batch


def test_empty_batch_is_false_and_has_no_records(batch: Batch) -> None:
    nothing = batch.select(np.zeros(3, dtype=np.bool_))
    assert not nothing
    assert list(nothing) == []
    assert nothing.payloads() == []
    assert "empty" in repr(nothing)
    assert "offsets 1 to 3" in repr(batch)


def test_batch_does_not_change_when_the_log_does(batch: Batch, quick_directory: Path) -> None:
    """It holds its bytes itself: a reader may keep it for as long as it wants."""
    before = list(batch)
    for path in (quick_directory / "data" / "telemetry-2").iterdir():
        path.unlink()
    assert list(batch) == before


def test_missing_arrow_raises_an_error_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "timestone.reading.arrow", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with timestone.open(tmp_path / "data") as store:
        batch = store.log("t").read(0)
        with pytest.raises(ImportError, match=r"need pyarrow.*pip install '.\[arrow\]'") as missing:
            batch.to_arrow()
    assert isinstance(missing.value, MissingExtra)
    assert (missing.value.name, missing.value.extra) == ("pyarrow", "arrow")


def test_batches_joined_have_the_records_of_all(batch: Batch) -> None:
    whole = list(batch)
    for parts in (
        [batch[:1], batch[1:]],
        [batch[:0], batch[:2], batch[2:], batch[3:]],
        [batch[::2]],
        [batch[2:]],
    ):
        joined = Batch.joined(parts)
        assert list(joined) == [record for part in parts for record in part]
        assert (joined.next_offset, joined.log, joined.partition) == (4, "telemetry", 2)
    assert Batch.joined([batch[:1], batch[1:]]).to_arrow() == batch.to_arrow()
    assert whole == list(batch), "the parts are left as they were"


def test_batch_joined_copies_no_more_than_its_records(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("a")
        log.append_many([bytes([number]) * 100 for number in range(100)])
        batch = log.read(0)
        some = Batch.joined([batch[0:100:50], batch[99:]])
    assert len(some.data) == 300
    assert some.payloads() == [bytes([number]) * 100 for number in (0, 50, 99)]
