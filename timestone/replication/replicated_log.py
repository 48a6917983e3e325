"""A log that is one of several replicas. What belongs here: the two ends, the written and the shown one; who may
append; which appends are acknowledged; cutting. Who leads, and what is committed, is decided by the caller.

Appends are acknowledged when they are shown, not when they are flushed. A generation is the high half of the epoch, so
each segment has records of one generation."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from timestone.commit.log_commit import BackgroundFlush
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.errors import CorruptRecord, NotLeader, OffsetOutOfRange, StoreClosed, TimestoneError
from timestone.kernel.entries import ENTRY, ENTRY_BYTES
from timestone.log import Log
from timestone.reading.segment_list import SegmentList
from timestone.reading.tail_cache import TailRun, fitting_count, joined
from timestone.reading.wakeups import Woken
from timestone.record import Record
from timestone.replication.names_used import NamesUsed, names_of, noted_ceiling
from timestone.replication.replica_batch import ReplicaBatch
from timestone.replication.replica_repair import ReplicaRepair
from timestone.replication.replica_retention import ReplicaRetention
from timestone.replication.replica_rewrites import ReplicaRewrites
from timestone.replication.replicated_end import ReplicatedEnd
from timestone.replication.replicated_segments import GENERATION_SHIFT, ReplicatedSegments, generation_of
from timestone.segment import Run, Segment
from timestone.writing.write_batch import WriteBatch, check_write_batch

T = TypeVar("T")
_LOGGER = logging.getLogger("timestone")
_SCAN_RECORDS = 1 << 16
_OFFSET_MOST = 1 << 62


class GenerationRun(NamedTuple):
    """Consecutive records of one generation."""

    generation: int
    first: int
    names: int
    """Count of topic names that the records in front of it use."""


class StoredRecords(NamedTuple):
    """Consecutive records as they are stored."""

    first: int
    end: int
    entries: bytes
    data: bytes
    begins_segment: bool
    """Whether a segment begins with them."""

    @property
    def names(self) -> int:
        """Return one more than the highest topic id of them; 0 for none."""
        return names_of(np.frombuffer(self.entries, dtype=ENTRY)["topic"])


class ReplicatedLog(Log):
    """One replica of a log. Made by a store that is opened with this type of log. Thread-safe but for the calls of the
    driver: `lead`, `follow`, `append_replica`, `cut`, `reset` and `show` are for one thread."""

    is_replicated = True
    _segments_type, _end_type = ReplicatedSegments, ReplicatedEnd
    _retention_type, _rewrites_type = ReplicaRetention, ReplicaRewrites

    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self.topics.is_cut = True
        self.names_used = NamesUsed(self._store.documents, self.folder.name, self.id)
        self._segments = cast(ReplicatedSegments, self._active_segment)
        self._replica_end = cast(ReplicatedEnd, self._end)
        self._commit.direct_level = None
        self._replica_retention = cast(ReplicaRetention, self.retention)
        written, committed = self._end_offset, self._segments.committed()
        self._end_offset = self._opened_offset = max(self._start_offset, min(committed, written))
        names = max(self.names_used.deleted, *map(self.names_used.of, self.segment_list.segments), 0)
        self.topics.take_up_to(names)  # of damaged records, too, which recovery has not counted
        self.extent = (written, names)
        """Offset after the last written record, and the number of topic names that records use: one more than the
        highest id. Replaced as a whole."""
        self.repair = ReplicaRepair(self, self._store, self._segments.place, self._note_committed)
        self.on_written: Callable[[], None] = lambda: None
        """Called when records were written, which the driver is to flush; by any thread, which it must not block."""
        self._waiting: list[tuple[int, int, Submission]] = []
        """Submissions that are written here and not yet committed."""
        self._numbers = itertools.count()
        self.level = Ack.SYNCED
        """At which this replica counts as having a record."""
        self.ceiling: int = max(
            parts[1].recovered.ceiling, noted_ceiling(self._store.documents, self.folder.name)
        )
        """No reader of this replica had seen an offset at or above it before its machine was booted again."""
        self.is_held = False
        """Whether new appends are refused, while those that wait are committed: before another replica leads."""
        self.term = 0
        """Rises whenever this replica begins to lead."""
        self._term_lock = threading.RLock()
        """Held to submit, and to begin a term: an append of one term is never written in another."""

    @property
    def written_offset(self) -> int:
        return self.extent[0]

    @property
    def acknowledged_offset(self) -> int:
        """Return the offset below which records are here at the level of this replica."""
        return self.synced_offset if self.level is Ack.SYNCED else self.extent[0]

    @property
    def names_count(self) -> int:
        """Return the number of topic names that records use: one more than the highest id."""
        return self.extent[1]

    @property
    def is_whole(self) -> bool:
        """Return whether no recovery has lost records, their generation or names, now or before, and no segment is
        missing."""
        with self._end.lock:
            start, segments = self._start_offset, self.segment_list.segments
        bases = [start, *(one.end_offset for one in segments)]
        return (
            not self.segment_list.missing
            and self.repair.lost_name is None
            and [one.base_offset for one in segments] == bases[: len(segments)]
            and all(one.epoch is not None for one in segments)
        )

    @property
    def next_offset(self) -> int:
        # Counts only without any segment: the log begins here then.
        return self._start_offset

    def look_up(self, look: Callable[[SegmentList], T], offset: int | None = None) -> T:
        """See `ReadableLog.look_up`. What a reader finds damaged is repaired, as what the scrubber finds."""
        try:
            return super().look_up(look, offset)
        except CorruptRecord as error:
            self.repair.found(error)
            raise

    def record(self, offset: int) -> Record:
        """See `ReadableLog.record`."""
        if offset >= self._end_offset:
            self.check_open()
            raise OffsetOutOfRange(offset, self._start_offset, self._end_offset)
        return super().record(offset)

    # Appends of clients.

    @property
    def leads(self) -> bool:
        """Return whether this replica takes appends."""
        return self._replica_end.leads

    @property
    def led_generation(self) -> int | None:
        """Return the generation in which this replica takes appends; None if it takes none. Any thread may ask."""
        return self._segments.epoch >> GENERATION_SHIFT if self._replica_end.leads else None

    def check_leads(self) -> None:
        """Raise NotLeader unless this replica takes appends."""
        self._replica_end.check_leads()
        if self.is_held:
            raise NotLeader(f"this replica of {self.folder.name} hands over to another one")

    def append_now(self, write_batch: WriteBatch, woken: list[Woken] | None = None) -> range | None:
        """Return None: an append has to wait for other replicas."""
        return None

    def submit(
        self,
        write_batch: WriteBatch,
        *,
        ack: Ack | str,
        done: Callable[[Submission], None] | None = None,
        woken: list[Woken] | None = None,
        term: int | None = None,
    ) -> Submission:
        """Queue a write batch; see `Log.submit`. Resolved once it is committed, at any `ack`; readers are woken then,
        and `woken` gets none. term: in which alone it may be written, since it rests on what was read in it. Raises
        NotLeader, at once or as the outcome."""
        submission = Submission(write_batch, Ack(ack), done)
        with self._term_lock:
            self.check_leads()
            now = self.term
            if term not in (None, now):
                raise NotLeader(f"this replica of {self.folder.name} has not led all the time")
            check_write_batch(write_batch)
            write_batch.check(self.config.record_bytes, len(self.topics))
            written = Submission(
                write_batch, Ack.WRITTEN, lambda written: self._written(submission, written, now)
            )
            self._commit.submit_unflushed(written)
        return submission

    def appender(self) -> Callable[[WriteBatch], range]:
        """Return what appends batches and returns their offsets once they are committed, as long as this replica leads
        without a break: what was read of the log stays true until then. Raises NotLeader."""
        self.check_leads()
        term = self.term
        return lambda write_batch: self.submit(write_batch, ack=Ack.SYNCED, term=term).wait()

    def _append(self, write_batch: WriteBatch, ack: Ack | str | None) -> int:
        return self.submit(write_batch, ack=self._store.config.ack if ack is None else ack).wait().start

    def _written(self, submission: Submission, written: Submission, term: int) -> None:
        if written.error is not None:
            return submission.resolve(written.error)
        submission.offsets = written.offsets
        with self.wakeups.lock:
            # Of an earlier term, its records may have been cut, and others may be at their offsets.
            leads, is_shown = (
                self._replica_end.leads and term == self.term,
                written.offsets.stop <= self._end_offset,
            )
            if leads and not is_shown:
                heapq.heappush(self._waiting, (written.offsets.stop, next(self._numbers), submission))
                return None
        return submission.resolve(None if leads else self._unknown())

    def _unknown(self) -> NotLeader:
        return NotLeader(f"another replica of {self.folder.name} leads: the append may be in the log or not")

    # The driver's side.

    def lead(self, generation: int, least_offset: int = 0) -> None:
        """Take appends of clients from now on, in new segments of a generation. Offsets below `least_offset` that no
        record has get none."""
        with self._term_lock, self._end.lock:
            # Of an earlier term: others may have their topic ids by now.
            self._commit.refuse_queued(self._unknown())
            self._begin(generation)
            while self.extent[0] < least_offset:
                self._end.write_locked(
                    self._segments.holes(min(least_offset - self.extent[0], _SCAN_RECORDS))
                )
                self.read_compacted(self.extent[0])
            self.term += 1  # first, or a flush of the earlier term would pass for one of this
            self._replica_end.leads, self.is_held = True, False

    def follow(self) -> None:
        """Take no more appends of clients, and fail those that wait: their outcome is unknown."""
        self._refuse(self._unknown())

    def _refuse(self, error: TimestoneError) -> None:
        with self._end.lock, self.wakeups.lock:
            self._replica_end.leads = self.is_held = False
            waiting, self._waiting = self._waiting, []
        for _, _, submission in waiting:
            submission.resolve(error)

    def close(self) -> None:
        """See `Log`. Appends that wait for other replicas are of unknown outcome."""
        try:
            super().close()
        finally:
            self.follow()

    def delete(self, note: Callable[[], None]) -> None:
        """See `Log`. Appends that wait for other replicas fail."""
        super().delete(note)
        self._refuse(StoreClosed(f"log {self.folder.name} was deleted"))

    def append_replica(
        self,
        generation: int,
        first: int,
        entries: bytes,
        data: bytes,
        names_first: int,
        names: Sequence[str],
        *,
        begins_segment: bool = False,
    ) -> None:
        """Write records of the leader behind the last one, without a flush. entries, data, begins_segment: as
        `read_stored` returns them there. names: of the topics that they are the first to use, numbered from
        `names_first` on. A segment begins here where one does there, so what the leader has uploaded to a bucket mostly
        ends between two segments of each replica.

        Raises ValueError, InvalidName for what no leader sends; StorageFull, LogFailed, StoreClosed, OSError."""
        if first != self.extent[0] or names_first != self.names_count:
            raise ValueError(
                f"invalid records: expected offset {self.extent[0]} and {self.names_count} topic names, "
                f"got {first} and {names_first}"
            )
        batch = ReplicaBatch.received(entries, data, names_first + len(names))
        self.topics.keep(names_first)
        ids = self.topics.add_all(names)
        if ids.tolist() != list(range(names_first, names_first + len(names))):
            raise ValueError("invalid records: a topic name stands there twice")
        with self._end.lock:
            self._begin(generation)
            if begins_segment:
                self._end.roll_locked()
            self._end.write_locked(batch)
            self.extent = self.extent[0], names_first + len(names)
        if batch.has_removed:
            self.read_compacted(self.extent[0])

    def begin_flush(self, wake_fd: int) -> BackgroundFlush | None:
        """Begin to flush what was written; see `LogCommit.begin_flush`."""
        return self._commit.begin_flush(wake_fd)

    def end_flush(self, background: BackgroundFlush) -> int:
        """Take note of the end of a flush, and return the offset below which all is durable. Raises LogFailed."""
        self._commit.end_flush(background)
        return self.synced_offset

    def flush_later(self) -> bool:
        """Have what was written flushed in the background, as in a log of a single store at level `written`. Return
        False if the disk is too slow for it: a flush is to be awaited."""
        self._store.committer.expect_sync(self._commit)
        return not self._commit.sync_overdue

    def _begin(self, generation: int) -> None:
        if generation != self._segments.epoch >> GENERATION_SHIFT:
            self._end.roll_locked()
            self._segments.epoch = generation << GENERATION_SHIFT

    def holds_in_memory(self, offset: int) -> bool:
        """Return whether `read_stored` of a written record makes no system call."""
        return self._in_tail(offset) is not None

    def read_stored(self, first: int, end: int, *, max_bytes: int) -> StoredRecords:
        """Return records as they are stored, shown or not: at least one, all of one segment. Raises CorruptRecord,
        OffsetOutOfRange, OSError, StoreClosed."""
        self.check_open()
        end = min(end, self.extent[0])
        if not self._start_offset <= first < end:
            raise OffsetOutOfRange(first, self._start_offset, end)
        if runs := self._gathered(first, end - first, max_bytes):
            count = fitting_count(runs, first, end - first, max_bytes)
            entries, data = joined(runs).part(first, count)
        else:
            entries, data = self._stored_in_files(first, end, max_bytes)
        located = self.segment_list.locate(first)
        begins_segment = located is not None and located.base_offset == first
        return StoredRecords(first, first + len(entries) // ENTRY_BYTES, entries, data, begins_segment)

    def _stored_in_files(self, first: int, end: int, max_bytes: int) -> tuple[bytes, bytes]:
        def read(segment_list: SegmentList) -> Run:
            segment = segment_list.locate(first)
            if segment is None or segment.base_offset > first:
                raise CorruptRecord(self.folder, first, "no segment holds it")
            count = min(end - first, _SCAN_RECORDS)
            # Entries of removed records, too: each replica has the same offsets.
            return segment.read(first - segment.base_offset, max_records=count, max_bytes=max_bytes)

        run = self.look_up(read, first)
        begin = int(run.entries["position"][0]) - run.position
        size_bytes = int(run.entries["length"].sum(dtype="u8"))
        return run.entries.tobytes(), run.data[begin : begin + size_bytes]

    def show(self, offset: int) -> None:
        """Show readers the records below an offset, and acknowledge them. Never goes back."""
        if self.acknowledge(offset):
            self.note_committed()

    def acknowledge(self, offset: int) -> bool:
        """Do what `show` does for this process alone: readers in others see the records after `note_committed`. Return
        whether there are any."""
        before = self._end_offset
        if not before < offset <= self.extent[0]:
            return False
        with self.wakeups.lock:
            self._end_offset = offset
            shown = []
            while self._waiting and self._waiting[0][0] <= offset:
                shown.append(heapq.heappop(self._waiting)[2])
        self.wakeups.wake(self.wakeups.wake_all(before))
        for submission in shown:
            submission.resolve()
        return True

    def note_committed(self) -> None:
        """Show readers of other processes what those of this one see."""
        try:
            self._note_committed()
        except OSError as error:  # they see the records later
            _LOGGER.warning("%s: the committed offset was not written: %s", self.folder, error)

    def _note_committed(self) -> None:
        with self._end.lock:
            self._segments.note_committed(self._end_offset)

    def cut(self, offset: int, names: int, *, is_given_up: bool = False) -> None:
        """Remove the records from an offset on, and the topic names from `names` on; durable on return. Raises
        ValueError for records that were shown, unless they were given up; LogFailed, CorruptLog, StoreClosed,
        OSError."""
        if offset < self._end_offset and not is_given_up:
            raise ValueError(f"invalid cut at {offset}: records below {self._end_offset} were shown")
        self.sync()
        with self.rewrites.lock, self._commit.paused():
            if offset == self._start_offset > 0:
                self.remember()  # no segment will be left to tell it
            closed = self._segments.cut(offset)
            self._ended_at(offset, names)
            self._end_offset = min(self._end_offset, offset)
        for writer in closed:
            writer.close()
        self.tail_lost()

    def reset(self, start: int) -> None:
        """Remove all records and topic names; the log begins at `start` from now on. Durable on return. Raises as
        `cut`."""
        if not self._end_offset <= start < _OFFSET_MOST:
            raise ValueError(
                f"invalid start {start}: records below {self._end_offset} were shown, or it is too large"
            )
        self.sync()
        with self.rewrites.lock, self._commit.paused():
            self.begin_at(start)
            self.remember()  # without segments, the catalogue alone says where the log begins
            closed = self._segments.clear(start)
            self.names_used.forget()
            self._ended_at(start, 0)
            self._end_offset = start
        for writer in closed:
            writer.close()
        self.tail_lost()

    @property
    def clean_offset(self) -> int:
        """Return the offset below which compaction has left no record with an older one of its topic."""
        return self.compaction.clean_offset

    def drop_tombstones(self, limit: int) -> None:
        """Have compaction remove tombstones below an offset, once they are old enough: no replica has a record there
        that a later one of its topic replaces."""
        cast(ReplicaRewrites, self.rewrites).tombstone_limit = limit

    def expire(self, start: int) -> None:
        """Have whole segments of records below an offset deleted, in the background: its leader has them no more."""
        self._replica_retention.expire(start)

    def _ended_at(self, offset: int, names: int) -> None:
        self.topics.keep(names)
        self.extent = offset, names

    # Events.

    def published(
        self, run: TailRun, write_batch: WriteBatch, end_offset: int, woken: list[Woken] | None = None
    ) -> None:
        """Take note of written records; readers see them, and are woken, when they are shown."""
        self._tail.add(run)
        growing = self._active_segment.segment_list.segments[-1]
        names = self.extent[1]
        if names < len(self.topics):  # else all are in use
            names = max(names, names_of(write_batch.topic_ids))
        with self.wakeups.lock:
            growing.count = end_offset - growing.base_offset
            self.extent = end_offset, names
        self.on_written()

    def unbroken(self) -> list[tuple[int, int]]:
        """Return the runs of offsets [base, end) within which each batch that begins is whole: the records of a
        generation. A write that was cut because its leader was lost is the last one of its run."""
        runs: list[tuple[int, int]] = []
        last: int | None = None
        for segment in self.segment_list.segments:
            generation = generation_of(segment)
            if generation == last and runs[-1][1] == segment.base_offset:
                runs[-1] = runs[-1][0], segment.end_offset
            else:
                runs.append((segment.base_offset, segment.end_offset))
            last = generation
        return runs

    @property
    def last_generation(self) -> int:
        """Return the generation of the last record; 0 without one."""
        segments = self._filled_segments
        return generation_of(segments[-1]) if segments else 0

    @property
    def _filled_segments(self) -> list[Segment]:
        """Return the segments with records. The newest one has none if its first append has failed, on a full disk."""
        return [one for one in self.segment_list.segments if one.count]

    def generations(self) -> tuple[GenerationRun, ...]:
        """Return the runs of the log. Reads the topic columns of segments that are not sealed. Raises OSError."""
        runs: list[GenerationRun] = []
        with self.rewrites.lock:  # else retention could rename a file that is read here
            names = self.names_used.deleted
            for segment in self._filled_segments:
                generation = generation_of(segment)
                if not runs or runs[-1].generation != generation:
                    runs.append(GenerationRun(generation, segment.base_offset, names))
                names = max(names, self.names_used.of(segment))
        return tuple(runs)
