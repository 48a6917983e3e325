"""Append to files that are prepared: two writes and nothing else. Twins of the classes with these names in
`_kernel.pyx`.

A segment is prepared for an append while its index has room, its file has blocks, and the reserve ceiling is above the
new records. The numbers that decide this are fields of these classes, which the compiled ones keep as integers of C.
What prepares a segment, and what follows a failed write, is in `timestone.writing`."""

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES
from timestone.kernel.pure import DurationCounts, Lock, NumberedNames
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

    __slots__ = ("count", "crcs", "flags", "header_lengths", "lengths", "size_bytes", "stored", "topic_ids")
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

    base_offset: int
    count: int
    size_bytes: int
    created_us: int
    _reserved: int
    """Size of the index for which there is space."""
    _ahead: int
    """Size of the segment for which there are blocks."""
    _durable_ceiling: int
    _segment_fd: int
    _index_fd: int
    _salt_crc: int
    _is_plain: bool
    """Whether the kernel may write; test doubles must see each system call."""

    def write_prepared(self, write_batch: Columns, timestamp_us: int) -> bytes | None:
        """Write a batch and return its entries, if that takes two writes to prepared files and nothing else. Return
        None if nothing happened. Raises what `_write_with_entries` raises, which the compiled one calls only for test
        doubles."""
        count, size_bytes = self.count + write_batch.count, self.size_bytes + write_batch.size_bytes
        if (
            HEADER_BYTES + count * ENTRY_BYTES > self._reserved
            or size_bytes > self._ahead
            or self.base_offset + count > self._durable_ceiling
        ):
            return None
        return self._write_with_entries(write_batch, timestamp_us)

    def _write_with_entries(self, write_batch: Any, timestamp_us: int) -> bytes:
        """Write a batch by calls of `Files`."""
        raise NotImplementedError


class PreparedLog:
    """End of a log: the segment that takes appends, and what the next record gets."""

    next_offset: int
    """Offset of the next record: everything below is written, though perhaps not published."""
    unsynced_bytes: int
    change_count: int
    """Incremented when a segment begins or rolls."""
    _writer: Any
    """A `PreparedSegment`, or None."""
    _last_timestamp_us: int
    _segment_bytes: int
    _segment_entries: int
    _roll_age_us: int
    _record_bytes: int
    _unsynced_runs: "deque[Any]"
    _now_us: Callable[[], int]
    _run_type: type[Any]
    """Subclass of `StoredRun`."""
    segment_list: Any
    """`ShownSegments`. Replaced as a whole at every change, so that readers need no lock."""

    def write_prepared(self, write_batch: Columns) -> Any:
        """Write a batch and return its run, if that takes two writes to prepared files and nothing else. Return None
        if nothing happened: there is no segment with a record, it is full or old, or its files are not prepared. The
        result of `_half_written` after an error."""
        writer = self._writer
        if writer is None or not writer.count:
            return None
        now_us = max(self._now_us(), self._last_timestamp_us)
        if (
            writer.size_bytes + write_batch.size_bytes > self._segment_bytes
            or writer.count + write_batch.count > self._segment_entries
            or now_us - writer.created_us >= self._roll_age_us
        ):
            return None
        position = writer.size_bytes
        try:
            entries = writer.write_prepared(write_batch, now_us)
        except Exception as error:
            return self._half_written(write_batch, error)
        if entries is None:
            return None
        end_offset = self.next_offset + write_batch.count
        run = self._run_type(self.next_offset, end_offset, entries, write_batch.stored, position)
        self._last_timestamp_us = now_us
        self._unsynced_runs.append(run)
        self.unsynced_bytes += write_batch.size_bytes + len(entries)
        self.next_offset = end_offset
        return run

    def _half_written(self, write_batch: Any, error: Exception) -> Any:
        """Write a batch after an error of its segment, elsewhere, or raise the error."""
        raise NotImplementedError


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
    writes: DurationCounts
    written_bytes: int
    """Bytes of the records written since the log was opened."""
    _unchecked_bytes: int
    """Bytes written since free space was checked."""
    _check_bytes: float
    _events: Any

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
        """Write and publish a batch and return its first offset, if that takes two writes to prepared files; return
        None without a change otherwise. inline: in an event loop, whose slow writes are noted. woken: see
        `published`."""
        size_bytes = write_batch.size_bytes
        if (
            len(self.topics._names) != self.topics.written_count
            or self._unchecked_bytes + size_bytes >= self._check_bytes
            or self.closed is not None
        ):
            return None
        if self.failure is not None:
            raise self.failure.again()
        if write_batch.count == 0:
            return int(self._events.written_offset)
        log, now_s = self.active_segment, self.inline_writes.now_s
        change_count, began_s = log.change_count, now_s()
        try:
            run = log.write_prepared(write_batch)
            if run is None:
                return None
            self._events.published(run, write_batch, log.next_offset, woken)
        except BaseException as error:
            self._judge(error)
            raise
        finally:
            if log.change_count != change_count:
                self._segment_changed()
            ended_s = now_s()
            if inline and ended_s - began_s > self.inline_writes.slow_s:
                self.inline_writes.was_slow(began_s, ended_s)
        self._unchecked_bytes += size_bytes
        self.writes.observe(int((ended_s - began_s) * 1e9))
        self.written_bytes += size_bytes
        return int(run.base_offset)

    def _judge(self, error: BaseException) -> None:
        """Decide after a failed write whether others may follow. Returns if the caller is to raise `error` itself."""
        raise NotImplementedError

    def _segment_changed(self) -> None:
        """Report that a segment began or was rolled."""
        raise NotImplementedError


class PreparedCommit:
    """Appends at level `written` that need neither the queue nor a flush."""

    _end: Any
    """A `PreparedEnd`."""
    _queue: Any
    """`QueuedBytes`."""
    _committer: Any
    _queue_bytes: int
    _sync_interval_bytes: int
    _flush_bytes: int
    """Bytes in the running flush or, between flushes, in the last one."""
    delay: Any
    """`AwaitedBytes`."""
    sync_lock: Any
    _default_level: Any
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
        files; always here."""
        return None

    def append_gathered(self, payloads: Any, topic: Any, level: Any) -> int | None:
        """Append a list of payloads of one known topic in the same way, and return the first offset; otherwise None."""
        return None

    def append_written(self, write_batch: Any) -> int | None:
        """Append a batch at level `written` and return its first offset; None with nothing changed if submissions
        precede it, the disk is behind, or the files are not prepared."""
        end = self._end
        if end.active_segment.unsynced_bytes >= self._queue_bytes:
            return None
        with end.lock:
            first = None if self._queue.queued_bytes else end.write_prepared_locked(write_batch)
        if first is None:
            return None
        self.expect_sync()
        return int(first)

    def append_inline(
        self, write_batch: Any, woken: list[Any] | None = None, submission: Any = None
    ) -> int | None:
        """Append a small batch at level `written` in the caller's thread, also during a small flush; return None if
        that might block. woken: takes the readers to wake, for the caller to do so. submission: waits for the flush at
        level `synced`."""
        end = self._end
        if not end.lock.acquire(False):  # by keyword it takes longer
            return None
        try:
            if (
                self._queue.queued_bytes
                or self.delay.awaited_bytes > SMALL_FLUSH_BYTES
                or (self._flush_bytes > SMALL_FLUSH_BYTES and self.sync_lock.locked())
                or write_batch.size_bytes + write_batch.count * ENTRY_BYTES > INLINE_BYTES
                or end.inline_writes.now_s() < end.inline_writes.paused_until_s
            ):
                return None
            first: int | None = end.write_prepared_locked(write_batch, True, woken)
            if submission is not None and first is not None:
                self._written_locked(submission, first)
        finally:
            end.lock.release()
        if submission is None and first is not None:
            self.expect_sync()
        return first

    def _written_locked(self, submission: Any, first: int) -> None:
        """Note that a submission is written."""
        raise NotImplementedError

    def expect_sync(self) -> None:
        """Have the committer flush what was written, unless it will."""
        if not (
            self.is_sync_expected and self._end.active_segment.unsynced_bytes < self._sync_interval_bytes
        ):
            self._committer.expect_sync(self)
