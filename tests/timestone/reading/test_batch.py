import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import timestone
from timestone.kernel.entries import NO_TOPIC
from timestone.reading.batch import Batch
from timestone.record import Header, HeaderKind, encode_headers
from timestone.writing.write_batch import Draft

BLOCK = encode_headers([Header(HeaderKind.USER, "unit", b"C"), Header(HeaderKind.KEY, "", b"k")])


@pytest.fixture
def batch(quick_directory: Path) -> Iterator[Batch]:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("telemetry", 2)
        topics = [log.topic_id("a"), NO_TOPIC, log.topic_id("b")]
        log.append(b"before")
        draft = Draft(
            [b"zero", BLOCK + b"one", b""], topics, flags=[1, 0, 8], header_lengths=[0, len(BLOCK), 0]
        )
        log.append_draft(draft)
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
    with pytest.raises(ValueError, match="forward"):
        batch[::-1]


def test_columns_say_what_the_records_say(batch: Batch) -> None:
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


def test_batch_stays_as_it_is_whatever_the_log_does(batch: Batch, quick_directory: Path) -> None:
    """It holds its bytes itself: a reader may keep it for as long as it wants."""
    before = list(batch)
    for path in (quick_directory / "data" / "telemetry-2").iterdir():
        path.unlink()
    assert list(batch) == before


def test_arrow_that_is_missing_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "timestone.reading.arrow", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with timestone.open(tmp_path / "data") as store:
        batch = store.log("t").read(0)
        with pytest.raises(ModuleNotFoundError, match=r"need pyarrow.*timestone\[arrow\]"):
            batch.to_arrow()
