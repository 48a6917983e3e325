"""Tail cache: the newest records of every log in memory, so that readers at the end make no system call.

One budget for the whole store: a busy log evicts the oldest records of any log. Evicted records are in the files,
which were written first, so eviction is never an error."""

import bisect
import struct
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from timestone.kernel.entries import ENTRY, ENTRY_BYTES, Entries
from timestone.kernel.loops import Budget, PreparedTail, StoredRun
from timestone.reading.batch import Columns
from timestone.reading.stored_bytes import StoredBytes
from timestone.record import Record

_GATHERED_RUNS = 4096
"""Runs that one call joins at most: the lock is held while they are listed."""
_POSITION = struct.Struct("<I")
_COLUMNS = struct.Struct("<IIqIHH")
"""All columns of an entry but its two checksums."""


class TailRun(StoredRun):
    """Records of one append, as `StoredRun`, and what readers take of them."""

    __slots__ = ()
    stored: StoredBytes

    def position_of(self, offset: int) -> int:
        """Return the position in the segment of one of these records."""
        (position,) = _POSITION.unpack_from(self.entries, (offset - self.base_offset) * ENTRY_BYTES)
        return int(position)

    def record(self, offset: int, names: Sequence[str | None]) -> Record | None:
        """Return one of these records; None if it has a header block. names: topics by id."""
        position, length, timestamp_us, topic, header_length, flags = _COLUMNS.unpack_from(
            self.entries, (offset - self.base_offset) * ENTRY_BYTES
        )
        if header_length:
            return None
        start = position - self.position
        data, begin = self.stored.piece_at(start)
        name = names[topic] if topic < len(names) else None
        return Record(
            int(offset), timestamp_us, name, data[start - begin : start - begin + length], (), flags
        )

    def part(self, offset: int, count: int) -> tuple[bytes, bytes]:
        """Return the entries and the stored bytes of some of these records."""
        at = (offset - self.base_offset) * ENTRY_BYTES
        begin, end = self.position_of(offset) - self.position, self.stored.size_bytes
        if offset + count < self.end_offset:
            end = self.position_of(offset + count) - self.position
        return self.entries[at : at + count * ENTRY_BYTES], self.stored.joined()[begin:end]

    def data_of(self, entries: Entries) -> tuple[bytes | Callable[[], bytes], int]:
        """Return a buffer with the stored bytes of some entries of this run, at least one and in order, and its
        position in the segment."""
        if len(self.stored.pieces) == 1:
            return self.stored.pieces[0], self.position
        last = entries[-1]
        end = int(last["position"]) + int(last["length"]) - self.position
        data, begin = self.stored.covering(int(entries["position"][0]) - self.position, end)
        return data, self.position + begin


class TailBudget(Budget):
    """Memory budget shared by the tails of a store."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.order: deque[TailCache] = deque()
        """Tail of each run, oldest first."""

    def lend(self, more_bytes: int) -> None:
        """Account for other memory of the store; negative to release it."""
        with self.lock:
            self.used_bytes += more_bytes
            self.make_room_locked()

    def close(self) -> None:
        """Drop all runs and keep none from now on."""
        with self.lock:
            self.limit_bytes = 0
            self.make_room_locked()


class TailCache(PreparedTail):
    """Tail of one log. Its writer appends; any thread reads."""

    _newest: TailRun
    _runs: list[TailRun]

    def find(self, offset: int) -> TailRun | None:
        """Return the run that holds an offset; None if it is not in memory."""
        newest = self._newest  # no lock for readers at the end or far behind
        if newest.base_offset <= offset < newest.end_offset:
            return newest
        if offset < self.first_offset:
            return None
        with self._budget.lock:
            at = bisect.bisect_right(self._ends, offset, self._dropped)
            if at == len(self._runs):
                return None
            run = self._runs[at]
        return run if run.base_offset <= offset else None

    def gather(self, offset: int, record_count: int, size_bytes: int) -> list[TailRun]:
        """Return the run that holds an offset and the runs after it, until they have as many records and bytes; none if
        the offset is not in memory. Runs of another segment are left out: positions restart there."""
        run = self.find(offset)
        if run is None:
            return []
        if run is self._newest:
            return [run]
        begin = run.position_of(offset)
        count, size = run.end_offset - offset, run.position + run.stored.size_bytes - begin
        if count >= record_count or size >= size_bytes:
            return [run]
        with self._budget.lock:
            at = bisect.bisect_right(self._ends, offset, self._dropped) + 1
            following = self._runs[at : at + _GATHERED_RUNS]
        runs = [run]
        for one in following:
            if one.base_offset != run.end_offset or one.position != run.position + run.stored.size_bytes:
                break
            runs.append(one)
            run = one
            count += one.end_offset - one.base_offset
            size += one.stored.size_bytes
            if count >= record_count or size >= size_bytes:
                break
        return runs


def entries_of(run: TailRun, first_offset: int, count: int) -> Entries:
    """Return the entries of up to `count` records of a run, from an offset on."""
    first = first_offset - run.base_offset
    room = len(run.entries) // ENTRY_BYTES - first
    return np.frombuffer(run.entries, dtype=ENTRY, count=min(count, room), offset=first * ENTRY_BYTES)


def joined(runs: Sequence[TailRun]) -> TailRun:
    """Return adjacent runs of one segment as one. Copies their entries and no record."""
    if len(runs) == 1:
        return runs[0]
    pieces = [piece for one in runs for piece in one.stored.pieces]
    stored = StoredBytes(tuple(pieces), sum(one.stored.size_bytes for one in runs))
    entries = b"".join([one.entries for one in runs])
    return TailRun(runs[0].base_offset, runs[-1].end_offset, entries, stored, runs[0].position)


def joined_columns(runs: Sequence[TailRun], offset: int, count: int) -> Columns:
    """Return the entries and the data of `count` records from an offset on of adjacent runs of one segment."""
    run = joined(runs)
    entries = entries_of(run, offset, count)
    return entries, *run.data_of(entries)


def fitting_count(runs: Sequence[TailRun], offset: int, max_records: int, max_bytes: int) -> int:
    """Return how many records from an offset on, which is in the first of these adjacent runs, are within the limits;
    at least one. All runs but the last are within them, as `TailCache.gather` returns them."""
    begin, last = runs[0], runs[-1]
    count = min(last.end_offset - offset, max_records)
    if last.position + last.stored.size_bytes - begin.position > max_bytes:
        first = max(offset, last.base_offset)
        before = first - offset
        room_bytes = max_bytes - (last.position_of(first) - begin.position_of(offset))
        ends = np.cumsum(entries_of(last, first, count - before)["length"], dtype=np.int64)
        count = max(1, before + int(np.searchsorted(ends, room_bytes, side="right")))
    return count
