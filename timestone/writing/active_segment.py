"""The growing end of a log on the disk: the segment that takes appends, those that wait to be sealed, and the
history they make.

What belongs here: when to roll, where the next segment begins, what is not yet durable, and what to do when a
flush fails. It knows no readers, no acks and no queue. The log's write lock is held by the caller of every
method except `flush` and `seal`."""

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
from timestone.format.failed_fsync_marker import clear_doubt, mark_doubt
from timestone.index import IndexHeader, Trailer
from timestone.kernel.entries import ENTRY_BYTES
from timestone.reading.segment_cache import OpenSegments
from timestone.reading.segment_list import History
from timestone.reading.tail_cache import TailRun
from timestone.segment import Segment
from timestone.writing.fsync_failover import put_pair_aside, rewrite
from timestone.writing.segment_writer import FailedFlush, HalfWritten, SegmentWriter, remove_unborn
from timestone.writing.write_batch import Draft

_LOGGER = logging.getLogger("timestone")
_POSITION_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a log lies and what its segments are marked with."""

    files: Files
    folder: Path
    log_id: int
    boot_id: bytes
    open_segments: OpenSegments
    now_us: Callable[[], int]

    def segment(
        self, base_offset: int, epoch: int | None, *, count: int = 0, trailer: Trailer | None = None
    ) -> Segment:
        """The reading side of a segment of this log."""
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
    """How far a segment was written when a flush began."""

    writer: SegmentWriter
    entry_count: int
    size_bytes: int


class RescueFailed(Exception):
    """A flush failed, and the disk would not take the records a second time. The cause is the first
    failure."""


class Unsealed(Protocol):
    """Segments of an earlier process that are served before they are durable. See `recovery.deferred_seals`."""

    @property
    def synced_offset(self) -> int: ...

    def settle(self) -> Mapping[int, Trailer | None]: ...


class Appender:
    """Writes drafts behind the end of a log."""

    def __init__(
        self,
        place: LogPlace,
        config: LogConfig,
        history: History,
        *,
        next_offset: int,
        epoch: int,
        last_timestamp_us: int,
        sync_topics: Callable[[], None],
        leftovers: Unsealed | None = None,
    ) -> None:
        """sync_topics: makes the names durable that written records use. Raises OSError."""
        self.history = history
        """Replaced whole at every change, so readers take it without a lock."""
        self.configure(config)
        self.epoch = epoch
        self.next_offset = next_offset
        """Where the next record goes: everything below is written, though perhaps not published yet."""
        self.synced_offset = next_offset if leftovers is None else leftovers.synced_offset
        self.unsynced_bytes = 0
        self._leftovers = leftovers
        self._sync_topics = sync_topics
        self._place = place
        self._last_timestamp_us = last_timestamp_us
        self._writer: SegmentWriter | None = None
        self._rolled: list[SegmentWriter] = []
        self._given_up: list[SegmentWriter] = []
        """Their records are in other files. Closed when the next flush begins: one may be under way."""
        self._unsynced_runs: collections.deque[TailRun] = collections.deque()

    def configure(self, config: LogConfig) -> None:
        """Other limits of segments, from the next append on."""
        self._segment_bytes, self._segment_entries = config.segment_bytes, config.segment_entries
        self._roll_age_us = config.roll_age_ms * 1000

    @property
    def rolled_count(self) -> int:
        """Segments that wait to be sealed."""
        return len(self._rolled)

    @property
    def growing_base(self) -> int | None:
        """The base offset of the segment that takes appends; None when there is none with a record."""
        writer = self._writer
        return writer.base_offset if writer is not None and writer.count else None

    @property
    def unsealed_bytes(self) -> int:
        """What the records and entries of segments that are not sealed take."""
        return sum(writer.size_bytes + writer.count * ENTRY_BYTES for writer in self._writers())

    @property
    def has_leftovers(self) -> bool:
        """There is something to `settle`."""
        return self._leftovers is not None

    def settle(self) -> None:
        """Make durable what the last owner has left, before anything comes to lie behind it. Raises OSError: nothing
        has changed, try again; RescueFailed: nobody knows what the disk holds."""
        if self._leftovers is None:
            return
        try:
            trailers = self._leftovers.settle()
        except LogFailed as error:
            raise RescueFailed(str(error.cause)) from error
        self._leftovers = None
        for segment in self.history.segments:
            if (trailer := trailers.get(segment.base_offset)) is not None:
                self.replace(segment, trailer)
                self._place.open_segments.forget(segment)
        self.synced_offset = self.next_offset

    def drop(self, segments: Sequence[Segment]) -> None:
        """Take sealed segments, which retention has deleted, out of the history."""
        self.history = self.history.without({segment.base_offset for segment in segments})

    def replace(self, segment: Segment, trailer: Trailer) -> None:
        """Serve a sealed segment from the files that have taken the place of its own."""
        fresh = self._place.segment(segment.base_offset, segment.epoch, trailer=trailer)
        self.history = self.history.replaced(segment, fresh)

    def write(self, draft: Draft) -> TailRun:
        """Write a draft, all or none, and return it as written.

        Raises OSError: nothing was written that counts, try again. RescueFailed: nobody knows what the disk
        holds. RecordTooLarge: the draft does not fit into any segment."""
        now_us = max(self._last_timestamp_us, self._place.now_us())
        writer = self._writer_for(draft, now_us)
        first, position = writer.end_offset, writer.size_bytes
        try:
            writer.raise_ceiling(first + draft.count)
            entries = writer.write_draft(draft, now_us)
        except (HalfWritten, FailedFlush) as error:
            self._rescue_marked(error)
            return self.write(draft)
        return self._written(TailRun(first, first + draft.count, entries, draft.stored, position), now_us)

    def write_prepared(self, draft: Draft) -> TailRun | None:
        """As `write` if that takes two writes to files that are there and nothing else; None: nothing has happened."""
        writer = self._writer
        now_us = max(self._last_timestamp_us, self._place.now_us())
        if writer is None or not writer.count or self._is_over(writer, draft, now_us):
            return None
        first, position = self.next_offset, writer.size_bytes
        try:
            entries = writer.write_prepared(draft, now_us)
        except HalfWritten as error:
            self._rescue_marked(error)
            return self.write(draft)
        if entries is None:
            return None
        # The same, without the named tuple's own `__new__`, which is another call for each message.
        run = tuple.__new__(TailRun, (first, first + draft.count, entries, draft.stored, position))
        return self._written(run, now_us)

    def _written(self, run: TailRun, now_us: int) -> TailRun:
        self._last_timestamp_us = now_us
        self._unsynced_runs.append(run)
        self.unsynced_bytes += run.stored.size_bytes + len(run.entries)
        self.next_offset = run.end_offset
        return run

    def back_to(self, end_offset: int) -> bool:
        """After an interrupt in the middle of anything: forget what was not published. True when memory provably has
        all that is published and not durable, so that `rescue` can write it again; else only the next open can tell
        what the files hold."""
        runs = self._unsynced_runs
        while runs and runs[-1].base_offset >= end_offset:
            runs.pop()
        while runs and runs[0].base_offset < self.synced_offset:
            runs.popleft()
        self.next_offset = end_offset
        if end_offset not in [writer.base_offset for writer in self._writers()]:
            with suppress(OSError):  # then the next open does it
                # Of a segment that was made, and of which nobody had been told.
                folder = self._place.folder
                paths = names.index_path(folder, end_offset), names.segment_path(folder, end_offset)
                remove_unborn(self._place.files, *paths)
        begins, ends = [run.base_offset for run in runs], [run.end_offset for run in runs]
        return self._leftovers is None and [self.synced_offset, *ends] == [*begins, end_offset]

    def roll(self) -> bool:
        """Take the growing segment out of use; True when there now is one to seal. The next append that needs
        a segment creates it, so a log that falls silent has no empty files."""
        writer = self._writer
        if writer is None:
            return False
        if writer.count == 0:  # its first append failed
            self._writer = None
            self.history = self.history.without({writer.base_offset})
            try:
                writer.remove_empty()
            except OSError as error:
                _LOGGER.warning("%s: an empty segment stays for now: %s", self._place.folder, error)
            return False
        self._rolled.append(writer)
        self._writer = None
        return True

    # Flushing.

    def begin_flush(self) -> tuple[int, list[Mark]]:
        """What a flush that begins now makes durable: the offset below which everything is, and the files to
        flush, oldest first, so that a durable record has only durable ones before it. Raises OSError, after which only
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
        """Call fdatasync on the marked files. Called without the write lock, so that appends continue meanwhile. Raises
        OSError, after which only `rescue` helps."""
        for mark in marks:
            mark.writer.flush(mark.entry_count)

    def end_flush(self, end_offset: int, marks: list[Mark]) -> None:
        """Note that the flush succeeded. Raises OSError, after which only `rescue` helps."""
        writers = self._writers()
        for mark in marks:
            if (
                mark.writer in writers and mark.entry_count <= mark.writer.count
            ):  # else it was given up or cut in between
                mark.writer.note_synced(mark.entry_count, mark.size_bytes)
        self.synced_offset = max(self.synced_offset, end_offset)
        while self._unsynced_runs and self._unsynced_runs[0].base_offset < self.synced_offset:
            self._unsynced_runs.popleft()

    def doubt(self) -> None:
        """Leave word for a later open that this kernel's page cache is not to be trusted here. Raises OSError."""
        mark_doubt(self._place.files, self._place.folder)

    def trust(self) -> None:
        """All that was in doubt has been written again. Raises OSError."""
        clear_doubt(self._place.files, self._place.folder)

    def rescue(self, cause: Exception) -> None:
        """A flush failed, so nothing it covered counts any more: write the unsynced records again, into a new
        segment of a new epoch, and flush that. Afterwards everything written is durable.

        Raises RescueFailed when the disk refuses this too.
        """
        first, place = self.synced_offset, self._place
        poisoned = [
            writer for writer in self._writers() if writer.end_offset > first or writer is self._writer
        ]
        header = IndexHeader(place.log_id, first, place.now_us(), self.epoch + 1, place.boot_id)
        try:
            fresh = rewrite(place.files, place.folder, header, list(self._unsynced_runs))
        except (OSError, FailedFlush, HalfWritten) as error:
            _LOGGER.error("%s: writing the unsynced records again failed too: %s", place.folder, error)
            raise RescueFailed(str(cause)) from cause
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
            self.doubt()
            self._sync_topics()  # no flush has come to the names of the records that are about to be durable
            self.rescue(cause)
            self.trust()
        except OSError as error:
            raise RescueFailed(str(cause)) from error

    def _put_aside(self, base_offset: int) -> None:
        try:
            put_pair_aside(self._place.files, self._place.folder, base_offset)
        except OSError as error:
            # The next open does it: the higher epoch of the new segment tells it what to do.
            _LOGGER.warning("%s: a superseded segment stays for now: %s", self._place.folder, error)

    def _take_over(self, poisoned: list[SegmentWriter], fresh: SegmentWriter) -> None:
        """Let the new segment serve what the poisoned ones did. One that has durable records in front of those is
        sealed with them."""
        base = fresh.base_offset
        kept = [segment for segment in self.history.segments if segment.end_offset <= base and segment.count]
        given_up = [segment for segment in self.history.segments if segment.end_offset > base]
        for segment in given_up:
            if segment.base_offset < base:
                shorter = self._place.segment(
                    segment.base_offset, segment.epoch, count=base - segment.base_offset
                )
                kept.append(shorter)
        rewritten = self._place.segment(base, fresh.header.epoch, count=fresh.count)
        self.history = History([*kept, rewritten], self.history.missing)
        for segment in given_up:
            self._place.open_segments.forget(segment)
        cut = [writer for writer in poisoned if writer.base_offset < base and self._cut(writer, base)]
        self._rolled = [*(writer for writer in self._rolled if writer not in poisoned), *cut]
        self._given_up += [writer for writer in poisoned if writer not in cut]
        self._writer = fresh
        self._unsynced_runs.clear()
        self.epoch = fresh.header.epoch
        self.synced_offset = self.next_offset

    def _cut(self, writer: SegmentWriter, end_offset: int) -> bool:
        try:
            writer.cut(end_offset)
        except OSError as error:
            # The next open does it, as with what is not put aside.
            _LOGGER.warning(
                "%s: a segment that was cut stays unsealed for now: %s", self._place.folder, error
            )
            return False
        return True

    # Sealing.

    def oldest_rolled(self) -> SegmentWriter | None:
        """The segment to seal next; it is flushed first."""
        return self._rolled[0] if self._rolled else None

    def seal(self, writer: SegmentWriter) -> Trailer:
        """Seal a rolled segment, which was flushed. Called without the write lock. Raises OSError; it can be
        tried again."""
        return writer.seal_files(self._place.now_us())

    def replace_sealed(self, writer: SegmentWriter, trailer: Trailer) -> None:
        """Let readers use the sealed segment. The caller closes the writer, without the write lock: that frees the
        blocks of the growing index, which takes 20 ms of a large one."""
        if writer not in self._rolled:
            return  # poisoned in between: what it held is served by another segment
        old = next(segment for segment in self.history.segments if segment.base_offset == writer.base_offset)
        self.history = self.history.replaced(
            old, self._place.segment(old.base_offset, old.epoch, trailer=trailer)
        )
        self._rolled.remove(writer)  # not before: `release` closes it if this has failed
        self._place.open_segments.forget(old)

    def give_up(self) -> list[SegmentWriter]:
        """Forget everything, because the log is deleted. Returns the writers for the caller to close, once nobody can
        be sealing one of them."""
        writers = [*self._writers(), *self._given_up]
        self._rolled, self._given_up, self._writer, self._leftovers = [], [], None, None
        self._unsynced_runs.clear()
        self.unsynced_bytes = 0
        self.synced_offset = self.next_offset
        self.history = History([])
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

    def _writer_for(self, draft: Draft, now_us: int) -> SegmentWriter:
        """The growing segment, after a roll if the draft does not fit. A draft is never split: it is in one
        segment, so it is written whole or not at all."""
        writer = self._writer
        if draft.size_bytes > _POSITION_MAX:
            raise RecordTooLarge(draft.size_bytes, _POSITION_MAX, "batch")
        if writer is not None and writer.count and self._is_over(writer, draft, now_us):
            self.roll()
            writer = None
        if writer is None:
            place = self._place
            header = IndexHeader(place.log_id, self.next_offset, now_us, self.epoch, place.boot_id)
            writer = self._writer = SegmentWriter(place.files, place.folder, header)
            self.history = self.history.followed_by(place.segment(header.base_offset, header.epoch))
        return writer

    def _is_over(self, writer: SegmentWriter, draft: Draft, now_us: int) -> bool:
        """The segment takes no more than it has: it is full, or old."""
        return (
            writer.size_bytes + draft.size_bytes > self._segment_bytes
            or writer.count + draft.count > self._segment_entries
            or now_us - writer.header.created_us >= self._roll_age_us
        )
