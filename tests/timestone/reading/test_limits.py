"""What fits into a read, part by part."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from timestone.errors import CorruptRecord
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone.reading.limits import filled


@pytest.fixture
def log(quick_directory: Path) -> Iterator[Log]:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("a")
        log.append_many([b"%d" % number for number in range(10)])
        yield log


def fill(log: Log, stop: int = 10, max_records: int = 100, max_bytes: int = 100, step: int = 2) -> list[int]:
    """The offsets of a batch of `step` records and what is added to it by twos."""

    def part(offset: int, records: int, size: int) -> tuple[Batch, bool]:
        asked.append((offset, records, size))
        return log.read(offset, max_records=min(step, records), max_bytes=size), True

    asked: list[tuple[int, int, int]] = []
    batch = filled(log.read(0, max_records=step), stop, max_records, max_bytes, part)
    assert batch.payloads() == [b"%d" % offset for offset in batch.offsets.tolist()]
    assert batch.next_offset == int(batch.offsets[-1]) + 1
    assert all(records > 0 for _, records, _ in asked)
    return [int(offset) for offset in batch.offsets]


@pytest.mark.parametrize(
    ("limits", "count"),
    [({}, 10), ({"stop": 4}, 4), ({"max_records": 5}, 5), ({"max_bytes": 5}, 5), ({"max_bytes": 2}, 2)],
)
def test_parts_are_added_until_a_limit_is_reached(log: Log, limits: dict[str, int], count: int) -> None:
    assert fill(log, **limits) == list(range(count))


def test_part_that_does_not_fit_is_left_out(log: Log) -> None:
    """A part has one record at least, so it may be larger than what is left."""
    large = log.append(b"x" * 50)
    first = log.read(8, max_records=2)
    batch = filled(first, large + 1, 10, 51, lambda at, records, size: (log.read(at, max_bytes=size), True))
    assert (len(batch), batch.next_offset) == (2, large)
    batch = filled(first, large + 1, 10, 52, lambda at, records, size: (log.read(at, max_bytes=size), True))
    assert (len(batch), batch.next_offset) == (3, large + 1)


@pytest.mark.parametrize("error", [CorruptRecord(Path("x"), 2, "flipped"), OSError(5, "no")])
def test_error_behind_the_first_part_is_left_to_the_next_read(log: Log, error: Exception) -> None:
    def part(offset: int, records: int, size: int) -> tuple[Batch, bool]:
        if offset == 4:
            raise error
        return log.read(offset, max_records=2), True

    assert filled(log.read(0, max_records=2), 10, 10, 100, part).next_offset == 4
