"""The newest records of every log, in memory, so that caught-up readers make no system call.

One budget for the whole store: a busy log pushes out the oldest records whoever they belong to. What falls
out is still in the files, which were written before it came here; so falling off the tail is never an error.
"""

import bisect
import struct
import threading
from collections import deque
from typing import NamedTuple

import numpy as np

from timestone.kernel.entries import ENTRY, ENTRY_BYTES
from timestone.reading.stored_bytes import StoredBytes

_RUN_OVERHEAD_BYTES = 400
"""What a run of any size costs in Python objects; measured with sys.getsizeof over its parts."""

_NO_OFFSET = 1 << 63
_TOPIC_AND_FLAGS = struct.Struct("<IHH")
_TOPIC_AT = 16
"""Topic, header length and flags of an entry, which lie side by side (`entries`); and where."""
_PIECE_OVERHEAD_BYTES = 41
"""What a piece of its stored bytes costs beside its bytes: a bytes object and a place in a tuple."""


class SingleRecord(NamedTuple):
    """A record that was appended by itself."""

    offset: int
    topic_id: int
    flags: int
    header_length: int
    """Bytes of the header block at the front of `stored`."""
    stored: bytes


class TailRun(NamedTuple):
    """The records of one append, the offsets [base, end): entries and bytes as they were written. `position` is that of
    the bytes in the segment."""

    base_offset: int
    end_offset: int
    entries: bytes
    stored: StoredBytes
    position: int

    @property
    def cost_bytes(self) -> int:
        stored = self.stored
        return (
            len(self.entries)
            + stored.size_bytes
            + _PIECE_OVERHEAD_BYTES * len(stored.pieces)
            + _RUN_OVERHEAD_BYTES
        )

    def single(self) -> SingleRecord | None:
        """The only record of this run; None when there are more."""
        if len(self.entries) != ENTRY_BYTES or len(self.stored.pieces) != 1:
            return None
        topic_id, header_length, flags = _TOPIC_AND_FLAGS.unpack_from(self.entries, _TOPIC_AT)
        return SingleRecord(self.base_offset, topic_id, flags, header_length, self.stored.pieces[0])

    def data_of(self, entries: "np.ndarray[tuple[int], np.dtype[np.void]]") -> tuple[bytes, int]:
        """A buffer with the stored bytes of some entries of this run, in order and at least one, and where in the
        segment it begins."""
        if len(self.stored.pieces) == 1:
            return self.stored.pieces[0], self.position
        last = entries[-1]
        end = int(last["position"]) + int(last["length"]) - self.position
        data, begin = self.stored.covering(int(entries["position"][0]) - self.position, end)
        return data, self.position + begin


_NOTHING = TailRun(0, 0, b"", StoredBytes((b"",), 0), 0)


class TailBudget:
    """The memory that all tails of a store share."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._order: deque[tuple[LogTail, int]] = deque()
        self._lock = threading.Lock()

    def charge(self, tail: "LogTail", cost_bytes: int) -> None:
        """Account for a run just added; the oldest runs of the store make room."""
        with self._lock:
            self._order.append((tail, cost_bytes))
            self.used_bytes += cost_bytes
            if self.used_bytes > self.limit_bytes:
                self._make_room_locked()

    def lend(self, more_bytes: int) -> None:
        """Account for memory that something else of the store holds, or for a negative number has released."""
        with self._lock:
            self.used_bytes += more_bytes
            self._make_room_locked()

    def close(self) -> None:
        """Forget all runs, and keep none from now on."""
        with self._lock:
            self.limit_bytes = 0
            self._make_room_locked()

    def _make_room_locked(self) -> None:
        while self.used_bytes > self.limit_bytes and self._order:
            oldest, cost = self._order.popleft()
            self.used_bytes -= cost
            oldest.drop_oldest()


class LogTail:
    """The tail of one log. Appended to by its writer, read by anyone."""

    def __init__(self, budget: TailBudget) -> None:
        self._budget = budget
        self._runs: list[TailRun] = []
        self._ends: list[int] = []
        self._dropped = 0
        self._newest = _NOTHING
        self.first_offset = _NO_OFFSET
        """Of the oldest record in memory, if there is one."""
        self._lock = threading.Lock()

    def add(self, run: TailRun) -> None:
        runs = self._runs
        with self._lock:
            if self._dropped == len(runs):
                self.first_offset = run.base_offset
            runs.append(run)
            self._ends.append(run.end_offset)
            self._newest = run
        self._budget.charge(self, run.cost_bytes)

    def find(self, offset: int) -> TailRun | None:
        """The run that holds an offset, or None when it is not in memory."""
        newest = self._newest  # no lock for who is caught up, nor for who reads far behind
        if newest.base_offset <= offset < newest.end_offset:
            return newest
        if offset < self.first_offset:
            return None
        with self._lock:
            at = bisect.bisect_right(self._ends, offset, self._dropped)
            if at == len(self._runs):
                return None
            run = self._runs[at]
        return run if run.base_offset <= offset else None

    def drop_oldest(self) -> None:
        """Forget the oldest run. Called by the budget, possibly from another log's writer."""
        with self._lock:
            self._runs[self._dropped] = _NOTHING
            self._dropped += 1
            at = self._dropped
            if at < len(self._runs):
                self.first_offset = self._runs[at].base_offset
            else:
                self.first_offset, self._newest = _NO_OFFSET, _NOTHING
            if self._dropped >= 1024 and self._dropped * 2 >= len(
                self._runs
            ):  # keeps dropping cheap on average
                del self._runs[: self._dropped], self._ends[: self._dropped]
                self._dropped = 0


def entries_of(run: TailRun, first_offset: int, count: int) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    """The entries of up to `count` records of a run from an offset on."""
    first = first_offset - run.base_offset
    room = len(run.entries) // ENTRY_BYTES - first
    return np.frombuffer(run.entries, dtype=ENTRY, count=min(count, room), offset=first * ENTRY_BYTES)
