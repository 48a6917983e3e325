"""Append to files that are prepared: two writes and nothing else. Twins of the classes with these names in
`_kernel.pyx`.

A segment is prepared for an append while its index has room, its file has blocks, and the reserve ceiling is above the
new records. The numbers that decide this are fields of these classes, which the compiled ones keep as integers of C.
What prepares a segment, and what follows a failed write, is in `timestone.writing`."""

import sys
from collections.abc import Callable
from typing import Any, Self

from timestone.kernel.pure import Lock, NumberedNames
from timestone.record import FLAG_REMOVED

RUN_COST_BYTES = 300
"""Size of the objects of a run, measured with sys.getsizeof."""
PIECE_COST_BYTES = 41
"""Overhead of a piece of stored bytes: a bytes object and a place in a tuple."""
INLINE_BYTES = 160 * 1024
"""Maximum size of a batch with its index entries that an event loop writes itself: some tens of microseconds, no more
than the thread switches take."""
SMALL_FLUSH_BYTES = 1024 * 1024
"""A write is not slowed down by a concurrent flush of at most this size."""
_U32_MAX, _U16_MAX = 0xFFFF_FFFF, 0xFFFF


class StoredPieces:
    """Stored bytes of consecutive records, in pieces. The garbage collector does not track the compiled one."""

    __slots__ = ("_ends", "pieces", "size_bytes")

    def __init__(self, pieces: tuple[bytes, ...], size_bytes: int) -> None:
        """size_bytes: of all pieces together."""
        self.pieces = pieces
        self.size_bytes = size_bytes
        self._ends: list[int] | None = None


class StoredRun:
    """Records of one append, the offsets [base, end): entries and bytes as written. position: of the bytes in the
    segment."""

    __slots__ = ("base_offset", "end_offset", "entries", "position", "stored")

    def __init__(self, base_offset: int, end_offset: int, entries: bytes, stored: Any, position: int) -> None:
        self.base_offset, self.end_offset, self.position = base_offset, end_offset, position
        self.entries, self.stored = entries, stored

    @property
    def cost_bytes(self) -> int:
        """Return the memory that the run takes."""
        pieces_bytes = PIECE_COST_BYTES * len(self.stored.pieces)
        return len(self.entries) + int(self.stored.size_bytes) + pieces_bytes + RUN_COST_BYTES


class Columns:
    """Records to append, as columns: of `timestone.writing.write_batch.WriteBatch`."""

    __slots__ = (
        "count",
        "crcs",
        "flags",
        "header_lengths",
        "lengths",
        "made",
        "size_bytes",
        "stored",
        "topic_ids",
    )
    count: int
    size_bytes: int
    stored: Any
    """Stored bytes of all records, in order."""
    lengths: bytes
    """Size of each record in stored bytes, u32 each."""
    topic_ids: Any
    flags: Any
    header_lengths: Any
    crcs: bytes
    """Checksum of the stored bytes of each record, u32 each, if already computed; otherwise empty."""
    made: bytes | None
    """Their entries as another replica has them, with the times to keep; None for new records. Compiled only."""
    stored_type: type[Any]
    """Subclass of `StoredPieces`."""

    @classmethod
    def single(cls, payload: bytes, topic_id: int, flags: int = 0, header_length: int = 0) -> Self:
        """Build a batch of one record, in a third of the time. header_length: of the header block at the front of
        `payload`, at most its length."""
        size_bytes = len(payload)
        if not (
            0 <= topic_id <= _U32_MAX
            and 0 <= flags <= _U16_MAX
            and 0 <= header_length <= _U16_MAX
            and size_bytes <= _U32_MAX
        ):
            raise OverflowError(
                f"topic id {topic_id}, flags {flags:#x}, header block of {header_length} or payload of "
                f"{size_bytes} bytes out of range"
            )
        if flags & FLAG_REMOVED:
            raise ValueError("a record cannot be appended as removed")
        one = cls.__new__(cls)
        one.count, one.size_bytes = 1, size_bytes
        one.stored = cls.stored_type((payload,), size_bytes)
        one.lengths = size_bytes.to_bytes(4, sys.byteorder)
        one.topic_ids, one.flags, one.header_lengths, one.crcs = topic_id, flags, header_length, b""
        return one


class PreparedSegment:
    """Files of the segment that takes appends, and up to where they are prepared."""

    _reserved: int
    """Size of the index for which there is space."""
    _ahead: int
    """Size of the segment for which there are blocks."""
    _is_plain: bool
    """Whether the kernel may write; test doubles must see each system call."""

    def write_prepared(self, write_batch: Columns, timestamp_us: int) -> bytes | None:
        """Write a batch and return its entries, if that takes two writes to prepared files and nothing else. Return
        None if nothing happened, as always here. Raises what `_write_with_entries` raises, which the compiled one calls
        for test doubles."""
        return None


class PreparedLog:
    """End of a log: the segment that takes appends, and what the next record gets."""

    segment_list: Any
    """`ShownSegments`. Replaced as a whole at every change, so that readers need no lock."""


class Budget:
    """Memory of the newest records of all logs of a store."""

    limit_bytes: int
    used_bytes: int
    order: Any
    lock: Lock
    """Guards all tails of the store: taking one lock takes half as long as taking two."""

    def __new__(cls, *_: Any) -> Self:
        one = super().__new__(cls)
        one.lock = Lock()
        return one

    def make_room_locked(self) -> None:
        """Evict the oldest runs of the store."""
        while self.used_bytes > self.limit_bytes and self.order:
            self.used_bytes -= self.order.popleft().drop_oldest_locked()


_NO_OFFSET = 1 << 63
_NOTHING = StoredRun(0, 0, b"", StoredPieces((b"",), 0), 0)


class PreparedTail:
    """Newest records of a log in memory."""

    _runs: list[Any]
    _ends: list[int]
    _dropped: int
    """Number of runs at the front of both lists that were dropped."""
    _newest: Any
    first_offset: int
    """Offset of the oldest record in memory."""
    _budget: Any
    """A `TailBudget`."""

    def __init__(self, budget: Any) -> None:
        self._budget = budget
        self._runs, self._ends, self._dropped = [], [], 0
        self._newest, self.first_offset = _NOTHING, _NO_OFFSET

    def drop_oldest_locked(self) -> int:
        """Drop the oldest run and return its cost. Called by the budget, possibly in the writer of another log."""
        at = self._dropped + 1
        cost_bytes: int = self._runs[at - 1].cost_bytes
        self._runs[at - 1], self._dropped = _NOTHING, at
        if at < len(self._runs):
            self.first_offset = self._runs[at].base_offset
        else:
            self.first_offset, self._newest = _NO_OFFSET, _NOTHING
        if at >= 1024 and at * 2 >= len(self._runs):  # keeps dropping cheap on average
            del self._runs[:at], self._ends[:at]
            self._dropped = 0
        return cost_bytes

    def add(self, run: Any) -> None:
        """Keep the run of an append. One writer at a time."""
        budget, cost_bytes = self._budget, run.cost_bytes
        with budget.lock:
            if self._dropped == len(self._runs):
                self.first_offset = run.base_offset
            self._runs.append(run)
            self._ends.append(run.end_offset)
            self._newest = run
            budget.order.append(self)
            budget.used_bytes += cost_bytes
            if budget.used_bytes > budget.limit_bytes:
                budget.make_room_locked()


class AssignedTopics:
    """Topics of a log and their ids."""

    _names: list[str | None]
    """By id."""
    ids: NumberedNames
    """Ids by name, which an append looks up. Read only; replaced when names are removed."""
    written_count: int
    """Number of names in the file: those after them were added since the last write."""


class PausedWrites:
    """When an event loop may write itself."""

    now_s: Callable[[], float]
    """Clock of all times here."""
    slow_s: float
    """A write that takes longer is noted."""
    paused_until_s: float
    """No write before this time."""


class QueuedBytes:
    """Submissions of a log that are not written yet."""

    queued_bytes: int
    """Memory of those that wait or are being written."""


class AwaitedBytes:
    """Records of a log that wait for a flush."""

    awaited_bytes: int
    """Bytes that are written and wait for a flush."""


class PreparedEnd:
    """Growing end of a log, as far as an append to prepared files concerns it."""

    active_segment: Any
    """A `PreparedLog`."""
    topics: Any
    """`AssignedTopics`."""
    closed: Exception | None
    """Why the log takes no more calls, or None."""
    failure: Any
    """Why the log takes no more appends, or None."""
    inline_writes: Any
    """`PausedWrites`."""
    lock: Lock
    """One writer at a time."""
    written_bytes: int
    """Bytes of the records written since the log was opened."""
    _unchecked_bytes: int
    """Bytes written since free space was checked."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        one = super().__new__(cls)
        one.lock = Lock()
        return one

    def renew_lock(self) -> None:
        """Replace the lock in a forked child, where a missing thread may hold it."""
        self.lock = Lock()

    def write_prepared_locked(
        self, write_batch: Any, inline: bool = False, woken: list[Any] | None = None
    ) -> int | None:
        """Write and publish a batch and return its first offset, if that takes two writes to prepared files. Return
        None without a change otherwise, as always here. inline: in an event loop, whose slow writes are noted. woken:
        see `published`."""
        return None


class PreparedCommit:
    """Appends at level `written` that need neither the queue nor a flush. Compiled only: without the kernel none does
    anything, and the general path follows."""

    _end: Any
    """A `PreparedEnd`."""
    _queue: Any
    """`QueuedBytes`."""
    _flush_bytes: int
    """Bytes in the running flush or, between flushes, in the last one."""
    delay: Any
    """`AwaitedBytes`."""
    direct_level: Any
    """Level at which an append needs a write and nothing else; None in a log with replicas, which it waits for."""
    _batch_type: type[Any]
    """Subclass of `Columns`."""
    _stored_type: type[Any]
    """Its `stored_type`."""
    is_sync_expected: bool
    """Whether the committer has scheduled a flush."""

    def append_single(self, payload: Any, topic: Any, headers: Any, flags: Any, level: Any) -> int | None:
        """Append a record without headers, of a known topic, at level `written` in a fraction of the time, and return
        its offset. Return None with nothing changed if it is another one, or needs more than two writes to prepared
        files."""
        return None

    def append_gathered(self, payloads: Any, topic: Any, level: Any) -> int | None:
        """Append a list of payloads of one known topic in the same way, and return the first offset; otherwise None."""
        return None

    def append_written(self, write_batch: Any) -> int | None:
        """Append a batch at level `written` and return its first offset; None with nothing changed if submissions
        precede it, the disk is behind, or the files are not prepared."""
        return None

    def append_inline(
        self, write_batch: Any, woken: list[Any] | None = None, submission: Any = None
    ) -> int | None:
        """Append a small batch at level `written` in the caller's thread, also during a small flush; return None if
        that might block. woken: takes the readers to wake, for the caller to do so. submission: waits for the flush at
        level `synced`."""
        return None
