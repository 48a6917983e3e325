"""Tail cache: the newest records of every log in memory, so that readers at the end make no system call.

One budget for the whole store: a busy log evicts the oldest records of any log. Evicted records are in the files,
which were written first, so eviction is never an error."""

import bisect
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from timestone.kernel.entries import ENTRY, ENTRY_BYTES
from timestone.reading.stored_bytes import StoredBytes

_RUN_OVERHEAD_BYTES = 400
"""Size of the Python objects of a run, measured with sys.getsizeof."""

_GATHERED_RUNS = 4096
"""Runs that one call joins at most: the lock is held while they are listed."""
_NO_OFFSET = 1 << 63
_POSITION = struct.Struct("<I")
_TOPIC_AND_FLAGS = struct.Struct("<IHH")
_TOPIC_AT = 16
"""Topic, header length and flags of an entry, which are adjacent (`entries`), and their position."""
_PIECE_OVERHEAD_BYTES = 41
"""Overhead of a piece of stored bytes: a bytes object and a place in a tuple."""


class SingleRecord(NamedTuple):
    """A record that was appended alone."""

    offset: int
    topic_id: int
    flags: int
    header_length: int
    """Size of the header block at the front of `stored`."""
    stored: bytes


class TailRun(NamedTuple):
    """Records of one append, the offsets [base, end): entries and bytes as written. position: of the bytes in the
    segment."""

    base_offset: int
    end_offset: int
    entries: bytes
    stored: StoredBytes
    position: int

    @property
    def cost_bytes(self) -> int:
        stored = self.stored
        pieces_bytes = _PIECE_OVERHEAD_BYTES * len(stored.pieces)
        return len(self.entries) + stored.size_bytes + pieces_bytes + _RUN_OVERHEAD_BYTES

    def single(self) -> SingleRecord | None:
        """Return the only record of this run; None if there are more."""
        if len(self.entries) != ENTRY_BYTES or len(self.stored.pieces) != 1:
            return None
        topic_id, header_length, flags = _TOPIC_AND_FLAGS.unpack_from(self.entries, _TOPIC_AT)
        return SingleRecord(self.base_offset, topic_id, flags, header_length, self.stored.pieces[0])

    def data_of(
        self, entries: "np.ndarray[tuple[int], np.dtype[np.void]]"
    ) -> tuple[bytes | Callable[[], bytes], int]:
        """Return a buffer with the stored bytes of some entries of this run, at least one and in order, and its
        position in the segment."""
        if len(self.stored.pieces) == 1:
            return self.stored.pieces[0], self.position
        last = entries[-1]
        end = int(last["position"]) + int(last["length"]) - self.position
        data, begin = self.stored.covering(int(entries["position"][0]) - self.position, end)
        return data, self.position + begin


_NOTHING = TailRun(0, 0, b"", StoredBytes((b"",), 0), 0)


class TailBudget:
    """Memory budget shared by the tails of a store."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.order: deque[tuple[TailCache, int]] = deque()
        """Tail and cost of each run, oldest first."""
        self.lock = threading.Lock()
        """Guards all tails of the store: taking one lock takes half as long as taking two."""

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

    def make_room_locked(self) -> None:
        """Evict the oldest runs of the store."""
        while self.used_bytes > self.limit_bytes and self.order:
            oldest, cost = self.order.popleft()
            self.used_bytes -= cost
            oldest.drop_oldest_locked()


class TailCache:
    """Tail of one log. Its writer appends; any thread reads."""

    def __init__(self, budget: TailBudget) -> None:
        self._budget = budget
        self._runs: list[TailRun] = []
        self._ends: list[int] = []
        self._dropped = 0
        self._newest = _NOTHING
        self.first_offset = _NO_OFFSET
        """Offset of the oldest record in memory."""

    def add(self, run: TailRun) -> None:
        runs, budget, cost_bytes = self._runs, self._budget, run.cost_bytes
        with budget.lock:
            if self._dropped == len(runs):
                self.first_offset = run.base_offset
            runs.append(run)
            self._ends.append(run.end_offset)
            self._newest = run
            budget.order.append((self, cost_bytes))
            budget.used_bytes += cost_bytes
            if budget.used_bytes > budget.limit_bytes:
                budget.make_room_locked()

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

    def gather(self, offset: int, record_count: int, size_bytes: int) -> TailRun | None:
        """Return the run that holds an offset, joined with the runs after it until it has as many records and bytes;
        None if it is not in memory. Copies no record. Runs of another segment are left out: positions restart there."""
        run = self.find(offset)
        if run is None or run is self._newest:
            return run
        (begin,) = _POSITION.unpack_from(run.entries, (offset - run.base_offset) * ENTRY_BYTES)
        count, size = run.end_offset - offset, run.position + run.stored.size_bytes - begin
        if count >= record_count or size >= size_bytes:
            return run
        with self._budget.lock:
            at = bisect.bisect_right(self._ends, offset, self._dropped) + 1
            following = self._runs[at : at + _GATHERED_RUNS]
        joined = [run]
        for one in following:
            before = joined[-1]
            behind = before.position + before.stored.size_bytes
            if one.base_offset != before.end_offset or one.position != behind:
                break
            joined.append(one)
            count += one.end_offset - one.base_offset
            size += one.stored.size_bytes
            if count >= record_count or size >= size_bytes:
                break
        if len(joined) == 1:
            return run
        pieces = [piece for one in joined for piece in one.stored.pieces]
        stored = StoredBytes(tuple(pieces), sum(one.stored.size_bytes for one in joined))
        entries = b"".join([one.entries for one in joined])
        return TailRun(run.base_offset, joined[-1].end_offset, entries, stored, run.position)

    def drop_oldest_locked(self) -> None:
        """Drop the oldest run. Called by the budget, possibly in the writer of another log."""
        self._runs[self._dropped] = _NOTHING
        self._dropped += 1
        at = self._dropped
        if at < len(self._runs):
            self.first_offset = self._runs[at].base_offset
        else:
            self.first_offset, self._newest = _NO_OFFSET, _NOTHING
        if at >= 1024 and at * 2 >= len(self._runs):  # keeps dropping cheap on average
            del self._runs[:at], self._ends[:at]
            self._dropped = 0


def entries_of(run: TailRun, first_offset: int, count: int) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    """Return the entries of up to `count` records of a run, from an offset on."""
    first = first_offset - run.base_offset
    room = len(run.entries) // ENTRY_BYTES - first
    return np.frombuffer(run.entries, dtype=ENTRY, count=min(count, room), offset=first * ENTRY_BYTES)
