"""Active segment of a log: the one that takes appends, the rolled ones that wait to be sealed, and the segment list of
both.

Decides when to roll, where the next segment begins, what is not durable yet, and what follows a failed flush. Knows
no readers, ack levels or queues. The caller holds the write lock of the log, except for `flush` and `seal`."""

import collections
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from timestone.config import LogConfig
from timestone.disk.files import Files
from timestone.errors import LogFailed, RecordTooLarge
from timestone.format import names
from timestone.format.failed_fsync_marker import clear_failed_fsync, mark_failed_fsync
from timestone.index import Checkpoint, IndexHeader, Trailer
from timestone.kernel.entries import ENTRY_BYTES
from timestone.kernel.loops import PreparedLog
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.segment_list import SegmentList
from timestone.reading.tail_cache import TailRun
from timestone.segment import Segment
from timestone.writing.fsync_failover import put_pair_aside, rewrite
from timestone.writing.segment_writer import FailedFlush, HalfWritten, SegmentWriter, remove_unborn
from timestone.writing.write_batch import WriteBatch

_LOGGER = logging.getLogger("timestone")
_POSITION_MAX = 2**32 - 1
_KEPT_BYTES = 16 * 1024 * 1024
_KEPT_ENTRIES = 65_536
"""A smaller segment is not sealed at the close, so that many short runs do not leave many small segments. The next open
reads 2 MiB of entries at most, and 16 MiB of records only if the checkpoint of the close is damaged."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Folder of a log and what identifies its segments."""

    files: Files
    folder: Path
    log_id: int
    boot_id: bytes
    open_segments: SegmentCache
    now_us: Callable[[], int]
    is_replicated: bool = False

    def segment(
        self, base_offset: int, epoch: int | None, *, count: int = 0, trailer: Trailer | None = None
    ) -> Segment:
        """Return the reading side of a segment of this log."""
        return Segment(
            self.files,
            self.folder,
            base_offset,
            self.log_id,
            self.open_segments,
            count=count,
            trailer=trailer,
            epoch=epoch,
        )


class Mark(NamedTuple):
    """Extent of a segment when a flush began."""

    writer: SegmentWriter
    entry_count: int
    size_bytes: int


class FailoverFailed(Exception):
    """A flush failed and the records could not be rewritten. The cause is the first failure."""


class ClosedSegment(NamedTuple):
    """Newest segment of the log, which an earlier process closed without sealing it."""

    header: IndexHeader
    checkpoint: Checkpoint


class Unsealed(Protocol):
    """Segments of an earlier process that are served before they are durable. See `recovery.deferred_seals`."""

    @property
    def synced_offset(self) -> int: ...

    def settle(self) -> Mapping[int, Trailer | None]: ...


class ActiveSegment(PreparedLog):
    """Writes batches at the end of a log."""

    segment_list: SegmentList

    def __init__(
        self,
        place: LogPlace,
        config: LogConfig,
        segment_list: SegmentList,
        *,
        next_offset: int,
        epoch: int,
        last_timestamp_us: int,
        sync_topics: Callable[[], None],
        deferred_seals: Unsealed | None = None,
        closed: ClosedSegment | None = None,
    ) -> None:
        """sync_topics: makes the names of written records durable. Raises OSError. closed: the last of the segments,
        to append to."""
        self.segment_list = segment_list
        self.configure(config)
        self.epoch = epoch
        self.next_offset = next_offset
        """Offset of the next record: everything below is written, though perhaps not published."""
        self.change_count = 0
        """Incremented when a segment begins or rolls."""
        self.synced_offset = next_offset if deferred_seals is None else deferred_seals.synced_offset
        self.unsynced_bytes = 0
        self._deferred_seals = deferred_seals
        self._sync_topics = sync_topics
        self._place = place
        self._now_us, self._run_type = place.now_us, TailRun
        self._last_timestamp_us = last_timestamp_us
        self._writer: SegmentWriter | None = None
        if closed is not None:
            self._writer = SegmentWriter(place.files, place.folder, closed.header, closed=closed.checkpoint)
        self._rolled: list[SegmentWriter] = []
        self._given_up: list[SegmentWriter] = []
        """Writers whose records are in other files. Closed when the next flush begins, because one may be running."""
        self._unsynced_runs: collections.deque[TailRun] = collections.deque()

    def configure(self, config: LogConfig) -> None:
        """Set other limits of segments, from the next append on."""
        self._segment_bytes, self._segment_entries = config.segment_bytes, config.segment_entries
        self._roll_age_us, self._record_bytes = config.roll_age_ms * 1000, config.record_bytes

    @property
    def growing_base(self) -> int | None:
        """Return the base offset of the segment that takes appends; None if there is none with a record."""
        writer = self._writer
        return writer.base_offset if writer is not None and writer.count else None

    @property
    def unsealed_bytes(self) -> int:
        """Return the size of the records and entries of unsealed segments."""
        return sum(writer.size_bytes + writer.count * ENTRY_BYTES for writer in self._writers())

    @property
    def has_deferred_seals(self) -> bool:
        """Return whether `settle` has something to do."""
        return self._deferred_seals is not None

    def settle(self) -> None:
        """Make the segments of an earlier owner durable, before any record is appended behind them. Raises OSError
        without a change; FailoverFailed if the state of the disk is unknown."""
        if self._deferred_seals is None:
            return
        try:
            trailers = self._deferred_seals.settle()
        except LogFailed as error:
            raise FailoverFailed(str(error.cause)) from error
        self._deferred_seals = None
        for segment in self.segment_list.segments:
            if (trailer := trailers.get(segment.base_offset)) is not None:
                self.replace(segment, trailer)
                self._place.open_segments.forget(segment)
        self.synced_offset = self.next_offset

    def drop(self, segments: Sequence[Segment]) -> None:
        """Take sealed segments, which retention has deleted, out of the history."""
        self.segment_list = self.segment_list.behind(set(segments))

    def replace(self, segment: Segment, trailer: Trailer) -> None:
        """Serve a sealed segment from the files that replaced its own."""
        fresh = self._place.segment(segment.base_offset, segment.epoch, trailer=trailer)
        self.segment_list = self.segment_list.replaced(segment, fresh)

    def write(self, write_batch: WriteBatch) -> TailRun:
        """Write a batch, all or nothing, and return it as written.

        Raises OSError if nothing was written and a retry may succeed; FailoverFailed if the state of the disk is
        unknown; RecordTooLarge if the batch does not fit into any segment."""
        now_us = max(self._last_timestamp_us, self._place.now_us())
        return self._write(write_batch, SegmentWriter.write_batch_at, now_us, now_us)

    def _write(
        self,
        write_batch: WriteBatch,
        write: Callable[[SegmentWriter, WriteBatch, int], bytes],
        now_us: int,
        timestamp_us: int,
    ) -> TailRun:
        """Write a batch by a method of the writer. timestamp_us: of its last record."""
        writer = self._writer_for(write_batch, now_us)
        self.change_count += not writer.count
        first, position = writer.end_offset, writer.size_bytes
        try:
            writer.raise_ceiling(first + write_batch.count)
            entries = write(writer, write_batch, timestamp_us)
        except (HalfWritten, FailedFlush) as error:
            self._rescue_marked(error)
            return self.write(write_batch)
        run = TailRun(first, first + write_batch.count, entries, write_batch.stored, position)
        return self._written(run, timestamp_us)

    def _half_written(self, write_batch: WriteBatch, error: Exception) -> TailRun:
        if not isinstance(error, HalfWritten):
            raise error
        self._rescue_marked(error)
        return self.write(write_batch)

    def _written(self, run: TailRun, now_us: int) -> TailRun:
        self._last_timestamp_us = now_us
        self._unsynced_runs.append(run)
        self.unsynced_bytes += run.stored.size_bytes + len(run.entries)
        self.next_offset = run.end_offset
        return run

    def back_to(self, end_offset: int) -> bool:
        """Discard what was not published, after KeyboardInterrupt at an arbitrary point. Return whether memory
        provably has everything that is published and not durable, so that `rescue` can rewrite it; otherwise only
        the next open can determine what the files hold."""
        runs = self._unsynced_runs
        while runs and runs[-1].base_offset >= end_offset:
            runs.pop()
        while runs and runs[0].base_offset < self.synced_offset:
            runs.popleft()
        self.next_offset = end_offset
        if end_offset not in [writer.base_offset for writer in self._writers()]:
            with suppress(OSError):  # the next open removes them
                # Of a segment that was created but not yet published.
                folder = self._place.folder
                paths = names.index_path(folder, end_offset), names.segment_path(folder, end_offset)
                remove_unborn(self._place.files, *paths)
        begins, ends = [run.base_offset for run in runs], [run.end_offset for run in runs]
        return self._deferred_seals is None and [self.synced_offset, *ends] == [*begins, end_offset]

    def roll(self) -> bool:
        """Stop appending to the growing segment. Return whether a segment is now to be sealed. The next append
        creates a new one, so an idle log has no empty files."""
        writer = self._writer
        if writer is None:
            return False
        if writer.count == 0:  # its first append failed
            self._writer = None
            self.segment_list = self.segment_list.without({writer.base_offset})
            try:
                writer.remove_empty()
            except OSError as error:
                _LOGGER.warning("%s: an empty segment stays for now: %s", self._place.folder, error)
            return False
        self._rolled.append(writer)
        self._writer = None
        self.change_count += 1
        return True

    def close_unsealed(self) -> bool:
        """Close the growing segment without sealing it, if it is small and all is durable. Return False if there is
        none, or if it is to be sealed."""
        writer = self._writer
        if writer is None or writer.count == 0 or self.synced_offset < self.next_offset:
            return False
        if writer.size_bytes >= _KEPT_BYTES or writer.count >= _KEPT_ENTRIES:
            return False
        try:
            writer.close_unsealed()
        except OSError as error:
            _LOGGER.warning(
                "%s: the growing segment is sealed instead of closed: %s", self._place.folder, error
            )
            return False
        return True

    # Flushing.

    def begin_flush(self) -> tuple[int, list[Mark]]:
        """Return what a flush that begins now makes durable: the offset below which everything is, and the files to
        flush, oldest first, so that a durable record follows durable ones only. Raises OSError, after which only
        `rescue` helps."""
        self.unsynced_bytes = 0
        while self._given_up:
            self._given_up.pop().close()
        if self._writer is not None:
            self._writer.prepare_flush()
        marks = [Mark(writer, writer.count, writer.size_bytes) for writer in self._writers()]
        return self.next_offset, [mark for mark in marks if mark.writer.synced_count < mark.entry_count]

    @staticmethod
    def flush(marks: list[Mark]) -> None:
        """Call fdatasync on the marked files, without the write lock, so that appends continue. Raises OSError,
        after which only `rescue` helps."""
        for mark in marks:
            mark.writer.flush(mark.entry_count)

    def end_flush(self, end_offset: int, marks: list[Mark]) -> None:
        """Note that the flush succeeded. Raises OSError, after which only `rescue` helps."""
        writers = self._writers()
        for mark in marks:
            if (
                mark.writer in writers and mark.entry_count <= mark.writer.count
            ):  # otherwise it was given up or cut in between
                mark.writer.note_synced(mark.entry_count, mark.size_bytes)
        self.synced_offset = max(self.synced_offset, end_offset)
        while self._unsynced_runs and self._unsynced_runs[0].base_offset < self.synced_offset:
            self._unsynced_runs.popleft()

    def fail_over(self, cause: Exception, renew_topics: Callable[[], None]) -> None:
        """After a failed flush, `rescue` all that is not durable, with a marker for a later open for as long as the
        page cache of this kernel is unreliable here. renew_topics: makes the names of these records durable. Raises
        OSError, FailoverFailed."""
        mark_failed_fsync(self._place.files, self._place.folder)
        renew_topics()
        self.rescue(cause)
        clear_failed_fsync(self._place.files, self._place.folder)

    def rescue(self, cause: Exception) -> None:
        """After a failed flush, rewrite the unsynced records into a new segment of a new epoch and flush it. Everything
        written is durable afterwards.

        Raises FailoverFailed if this fails too."""
        first, place = self.synced_offset, self._place
        poisoned = [
            writer for writer in self._writers() if writer.end_offset > first or writer is self._writer
        ]
        header = self._header(first, place.now_us(), self.epoch + 1)
        try:
            fresh = rewrite(place.files, place.folder, header, list(self._unsynced_runs))
        except (OSError, FailedFlush, HalfWritten) as error:
            _LOGGER.error("%s: writing the unsynced records again failed too: %s", place.folder, error)
            raise FailoverFailed(str(cause)) from cause
        self._take_over(poisoned, fresh)
        for writer in poisoned:
            if writer.base_offset > first:
                self._put_aside(writer.base_offset)
        _LOGGER.error(
            "%s: %s; offsets from %d on were written again, in epoch %d",
            place.folder,
            cause,
            first,
            self.epoch,
        )

    def _rescue_marked(self, cause: Exception) -> None:
        try:
            self.fail_over(cause, self._sync_topics)
        except OSError as error:
            raise FailoverFailed(str(cause)) from error

    def _put_aside(self, base_offset: int) -> None:
        try:
            put_pair_aside(self._place.files, self._place.folder, base_offset)
        except OSError as error:
            # The next open puts it aside: the new segment has a higher epoch.
            _LOGGER.warning("%s: a superseded segment stays for now: %s", self._place.folder, error)

    def _take_over(self, poisoned: list[SegmentWriter], fresh: SegmentWriter) -> None:
        """Let the new segment serve the records of the failed ones. One with durable records before those is sealed
        with them."""
        base = fresh.base_offset
        kept = [
            segment for segment in self.segment_list.segments if segment.end_offset <= base and segment.count
        ]
        given_up = [segment for segment in self.segment_list.segments if segment.end_offset > base]
        for segment in given_up:
            if segment.base_offset < base:
                shorter = self._place.segment(
                    segment.base_offset, segment.epoch, count=base - segment.base_offset
                )
                kept.append(shorter)
        rewritten = self._place.segment(base, fresh.header.epoch, count=fresh.count)
        self.segment_list = SegmentList([*kept, rewritten], self.segment_list.missing)
        for segment in given_up:
            self._place.open_segments.forget(segment)
        cut = [writer for writer in poisoned if writer.base_offset < base and self._cut(writer, base)]
        self._rolled = [*(writer for writer in self._rolled if writer not in poisoned), *cut]
        self._given_up += [writer for writer in poisoned if writer not in cut]
        self._writer = fresh
        self.change_count += 1
        self._unsynced_runs.clear()
        self.epoch = fresh.header.epoch
        self.synced_offset = self.next_offset

    def _cut(self, writer: SegmentWriter, end_offset: int) -> bool:
        try:
            writer.cut(end_offset)
        except OSError as error:
            # The next open seals it.
            _LOGGER.warning(
                "%s: a segment that was cut stays unsealed for now: %s", self._place.folder, error
            )
            return False
        return True

    # Sealing.

    def oldest_rolled(self) -> SegmentWriter | None:
        """Return the segment to seal next; it is flushed first."""
        return self._rolled[0] if self._rolled else None

    def seal(self, writer: SegmentWriter) -> Trailer:
        """Seal a rolled and flushed segment, without the write lock. Raises OSError, and can be repeated."""
        return writer.seal_files(self._place.now_us())

    def replace_sealed(self, writer: SegmentWriter, trailer: Trailer) -> None:
        """Let readers use the sealed segment. The caller closes the writer without the write lock: freeing the
        blocks of a large growing index takes 20 ms."""
        if writer not in self._rolled:
            return  # failed in between: another segment serves its records
        old = next(
            segment for segment in self.segment_list.segments if segment.base_offset == writer.base_offset
        )
        self.replace(old, trailer)
        self._rolled.remove(writer)  # not before: `release` closes it if this has failed
        self._place.open_segments.forget(old)

    def give_up(self) -> list[SegmentWriter]:
        """Drop everything, because the log is deleted. Return the writers for the caller to close when no thread can
        be sealing one of them."""
        writers = [*self._writers(), *self._given_up]
        self._rolled, self._given_up, self._writer, self._deferred_seals = [], [], None, None
        self._unsynced_runs.clear()
        self.unsynced_bytes = 0
        self.synced_offset = self.next_offset
        self.segment_list = SegmentList([])
        return writers

    def release(self) -> None:
        """Close the files of segments that could not be sealed."""
        for writer in (*self._writers(), *self._given_up):
            writer.close()
        self._rolled.clear()
        self._given_up.clear()
        self._writer = None

    def _writers(self) -> list[SegmentWriter]:
        return [*self._rolled, *([self._writer] if self._writer else [])]

    def _writer_for(self, write_batch: WriteBatch, now_us: int) -> SegmentWriter:
        """Return the growing segment, after a roll if the batch does not fit. A batch is never split: it is in one
        segment, so it is written whole or not at all."""
        writer = self._writer
        if write_batch.size_bytes > _POSITION_MAX:
            raise RecordTooLarge(write_batch.size_bytes, _POSITION_MAX, "batch")
        place = self._place
        if (
            writer is not None
            and writer.count
            and (not self._continues(writer) or self._is_over(writer, write_batch, now_us))
        ):
            self.roll()
            writer = None
        if writer is None:
            header = self._header(self.next_offset, now_us, self.epoch)
            writer = self._writer = SegmentWriter(place.files, place.folder, header)
            self.segment_list = self.segment_list.followed_by(place.segment(header.base_offset, header.epoch))
        return writer

    def _header(self, base_offset: int, created_us: int, epoch: int) -> IndexHeader:
        place = self._place
        return IndexHeader(
            place.log_id, base_offset, created_us, epoch, place.boot_id, is_replicated=place.is_replicated
        )

    def _continues(self, writer: SegmentWriter) -> bool:
        """Return whether the next record may go into a segment, which an earlier process may have closed. The header
        has one boot id and one epoch for all of its records: they tell after a crash whether records may be lost."""
        header = writer.header
        return (header.boot_id, header.epoch, writer.end_offset) == (
            self._place.boot_id,
            self.epoch,
            self.next_offset,
        )

    def _is_over(self, writer: SegmentWriter, write_batch: WriteBatch, now_us: int) -> bool:
        """Return whether the segment takes no more: it is full or old."""
        return (
            writer.size_bytes + write_batch.size_bytes > self._segment_bytes
            or writer.count + write_batch.count > self._segment_entries
            or now_us - writer.created_us >= self._roll_age_us
        )
