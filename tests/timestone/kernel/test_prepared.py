"""The compiled append to prepared files and its twin do the same: the bytes of both files, the numbers, the answers."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support import python_prepared as prepared
from timestone.kernel import loops
from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES
from timestone.kernel.entry_checksum import EntrySeal
from timestone.writing.write_batch import WriteBatch

TWINS: list[Any] = [prepared] if loops.NAME == "pure Python" else [prepared, loops._native]
BASE = 1000


def made(twin: Any, folder: Path, *, is_plain: bool = True) -> Any:
    """Return the end of a log with one record, whose files are prepared for some more."""

    class Segment(twin.PreparedSegment):  # type: ignore[misc]
        again = calls = 0

        def _write_with_entries(self, write_batch: WriteBatch, timestamp_us: int) -> bytes:
            self.calls += 1
            seal = EntrySeal(0, 0)
            seal.salt_crc = self._salt_crc
            entries = write_batch.entries(
                seal, ordinal=self.count, position=self.size_bytes, timestamp_us=timestamp_us
            )
            try:
                os.pwritev(self._segment_fd, write_batch.stored.pieces, self.size_bytes)
                os.pwrite(self._index_fd, entries, HEADER_BYTES + ENTRY_BYTES * self.count)
            except OSError:
                self._write_again(write_batch.stored, entries)
            self.count += write_batch.count
            self.size_bytes += write_batch.size_bytes
            return entries

        def _write_again(self, stored: Any, entries: bytes) -> None:
            self.again += 1
            raise OSError(28, f"{stored.size_bytes} bytes and {len(entries)} of entries")

    class End(twin.PreparedLog):  # type: ignore[misc]
        def _half_written(self, write_batch: WriteBatch, error: Exception) -> object:
            return type(error), str(error)

    class Run(twin.StoredRun):  # type: ignore[misc]
        __slots__ = ()

    segment, end = Segment(), End()
    segment.base_offset, segment.count, segment.size_bytes, segment.created_us = BASE, 1, 3, 50
    segment._reserved, segment._ahead, segment._durable_ceiling = (
        HEADER_BYTES + 9 * ENTRY_BYTES,
        5000,
        BASE + 8,
    )
    segment._salt_crc, segment._is_plain = 7, is_plain
    folder.mkdir()
    flags = os.O_RDWR | os.O_CREAT
    segment._segment_fd, segment._index_fd = os.open(folder / "s", flags), os.open(folder / "i", flags)
    end._writer, end._run_type, end._unsynced_runs = segment, Run, deque()
    end.next_offset, end.unsynced_bytes, end._last_timestamp_us = BASE + 1, 0, 60
    end._segment_bytes, end._segment_entries, end._roll_age_us = 4000, 7, 1000
    times = iter([100, 90, 120, 130, 140, 150, 160, 170])
    end._now_us = lambda: next(times)
    return end


@contextmanager
def ends(root: Path, **named: Any) -> Iterator[list[tuple[Any, Path]]]:
    found = [(made(twin, root / twin.__name__, **named), root / twin.__name__) for twin in TWINS]
    yield found
    for end, _ in found:
        os.close(end._writer._segment_fd)
        os.close(end._writer._index_fd)


def state_of(end: Any, folder: Path, answer: Any) -> dict[str, Any]:
    """Return all that an append may change."""
    if isinstance(answer, loops.StoredRun | prepared.StoredRun):
        answer = (
            answer.base_offset, answer.end_offset, answer.position, answer.entries, answer.stored.joined(),
            answer.cost_bytes,
        )  # fmt: skip
    numbers = end.next_offset, end.unsynced_bytes, end._last_timestamp_us, len(end._unsynced_runs)
    writer = end._writer
    files = [(folder / name).read_bytes() for name in "si"]
    return {
        "answer": answer,
        "numbers": (*numbers, writer.count, writer.size_bytes, writer.again),
        "files": files,
    }


BATCHES = {
    "one": WriteBatch.single(b"x" * 100, 4, 2),
    "one with headers": WriteBatch.single(b"x" * 100, 4, 2, 20),
    "one without bytes": WriteBatch.single(b"", 4),
    "three": WriteBatch([b"a", b"bc", b""], [1, 2, 3]),
    "large ones": WriteBatch([b"x" * 600, b"y" * 700]),
    "more than the segment takes": WriteBatch([b"x" * 4000]),
    "more entries than it takes": WriteBatch([b"x"] * 7),
    "more entries than are reserved": WriteBatch([b"x"] * 6),
}


@pytest.mark.parametrize("named", BATCHES)
def test_twins_append_alike(tmp_path: Path, named: str) -> None:
    with ends(tmp_path) as found:
        for batch in (BATCHES[named], BATCHES["one"], BATCHES[named]):
            states = [state_of(end, folder, end.write_prepared(batch)) for end, folder in found]
            assert all(state == states[0] for state in states)


def test_append_takes_offsets_bytes_and_the_latest_time(tmp_path: Path) -> None:
    with ends(tmp_path) as found:
        for end, folder in found:
            first, second = (end.write_prepared(BATCHES["one"]) for _ in range(2))
            assert (first.base_offset, second.base_offset, second.end_offset) == (
                BASE + 1,
                BASE + 2,
                BASE + 3,
            )
            assert (first.position, second.position, end._last_timestamp_us) == (3, 103, 100)
            assert (folder / "s").read_bytes()[3:] == b"x" * 200
            assert (folder / "i").read_bytes()[HEADER_BYTES + ENTRY_BYTES :] == first.entries + second.entries
            assert list(end._unsynced_runs) == [first, second]


@pytest.mark.parametrize("name", ["_reserved", "_ahead", "_durable_ceiling"])
def test_append_does_nothing_when_a_file_is_not_prepared(tmp_path: Path, name: str) -> None:
    with ends(tmp_path) as found:
        for end, folder in found:
            setattr(end._writer, name, 0)
            before = state_of(end, folder, None)
            assert state_of(end, folder, end.write_prepared(BATCHES["one"])) == before


def test_append_does_nothing_when_the_segment_is_old_empty_or_missing(tmp_path: Path) -> None:
    with ends(tmp_path) as found:
        for end, _ in found:
            writer, end._roll_age_us = end._writer, 50
            assert end.write_prepared(BATCHES["one"]) is None
            end._roll_age_us, writer.count = 1000, 0
            assert end.write_prepared(BATCHES["one"]) is None
            writer.count, end._writer = 1, None
            assert end.write_prepared(BATCHES["one"]) is None
            end._writer = writer
            assert end.write_prepared(BATCHES["one"]) is not None


@pytest.mark.parametrize("name", ["_segment_fd", "_index_fd"])
def test_failed_write_is_left_to_the_code_that_handles_errors(tmp_path: Path, name: str) -> None:
    with ends(tmp_path) as found:
        states = []
        for end, folder in found:
            kept, read_only = getattr(end._writer, name), os.open(os.devnull, os.O_RDONLY)
            setattr(end._writer, name, read_only)
            states.append(state_of(end, folder, end.write_prepared(BATCHES["one"])))
            setattr(end._writer, name, kept)
            os.close(read_only)
        assert states[0]["answer"] == (OSError, "[Errno 28] 100 bytes and 32 of entries")
        assert states[0]["numbers"] == (BASE + 1, 0, 60, 0, 1, 3, 1)
        assert all(state == states[0] for state in states)


def test_files_that_are_not_plain_see_their_own_calls(tmp_path: Path) -> None:
    with ends(tmp_path, is_plain=False) as found:
        for end, _ in found:
            assert end.write_prepared(BATCHES["three"]).end_offset == BASE + 4
            assert end._writer.calls == 1


def test_module_of_the_kernel_has_both() -> None:
    assert isinstance(TWINS[-1], ModuleType)
    assert loops.REASON or loops.PreparedLog is TWINS[-1].PreparedLog


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
def test_batch_that_was_never_filled_is_an_error(twin: Any, tmp_path: Path) -> None:
    with pytest.raises((ValueError, AttributeError)):
        made(twin, tmp_path / "log")._writer.write_prepared(twin.Columns(), 1)


def evicted(twin: Any) -> list[tuple[int, ...]]:
    """Return the state of two tails with one budget after each of many appends."""
    budget = twin.Budget()
    budget.limit_bytes, budget.used_bytes, budget.order = 40_000, 0, deque()
    tails = twin.PreparedTail(budget), twin.PreparedTail(budget)
    states = []
    for number in range(5000):
        stored = twin.StoredPieces((bytes(number % 90),), number % 90)
        tail = tails[number % 3 == 0]
        tail.add(twin.StoredRun(number, number + 1, bytes(ENTRY_BYTES), stored, 0))
        states.append(
            (budget.used_bytes, len(budget.order), tail._dropped, len(tail._runs), tail.first_offset)
        )
    budget.limit_bytes = 0
    budget.make_room_locked()
    empty = [(one.first_offset, one._newest.end_offset) for one in tails]
    return [*states, *empty, (budget.used_bytes, len(budget.order))]


def test_twins_evict_the_same_runs() -> None:
    expected = evicted(prepared)
    assert all(evicted(twin) == expected for twin in TWINS)
    assert expected[-3:] == [(1 << 63, 0), (1 << 63, 0), (0, 0)]
    assert max(state[2] for state in expected[:5000]) >= 1000, "the lists were never cut"
