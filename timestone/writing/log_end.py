"""End of a log that takes appends: writes batches after the last record and publishes them. What belongs here: the
write lock, the state after a failure, and free space. Waiting for appends, and when to flush, belong to
`timestone.commit`."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from timestone.disk.files import Files
from timestone.errors import LogFailed, StorageFull, StoreClosed
from timestone.format.topics import TopicDictionary
from timestone.kernel import loops
from timestone.metrics.histogram import Histogram
from timestone.reading.tail_cache import TailRun
from timestone.reading.wakeups import Woken
from timestone.segment import Segment
from timestone.writing.active_segment import ActiveSegment, FailoverFailed, Mark
from timestone.writing.inline_writes import InlineWrites
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import WriteBatch

Result = TypeVar("Result")
_FREE_CHECK_BYTES = 4 * 1024 * 1024
"""Free space is checked once for this many written bytes: a statvfs a batch would cost as much as the batch."""
INTERRUPTED = "interrupted in the middle of a write"


class OpenFiles(NamedTuple):
    """Files that a deleted log leaves open, for the caller to release and close."""

    segments: Sequence[Segment]
    writers: Sequence[SegmentWriter]


class EndEvents(Protocol):
    """Events at the end of a log, reported under the write lock. Implemented by `timestone.log.Log`."""

    @property
    def written_offset(self) -> int:
        """Return the offset after the last record that was written and passed to `published`."""

    def published(
        self, run: TailRun, write_batch: WriteBatch, end_offset: int, woken: list[Woken] | None = None
    ) -> None:
        """Called when records were written, to show them to readers. woken: takes the readers to be woken."""

    def tail_lost(self) -> None:
        """Called when the tail cache may differ from the files, to drop it."""

    def segment_rolled(self) -> None:
        """Called when a segment waits to be sealed."""

    def segment_began(self) -> None:
        """Called when appends go to a new segment."""

    def failed(self, failure: LogFailed) -> None:
        """Called when the log takes no more appends."""


class LogEnd(loops.PreparedEnd):
    """Growing end of one log. Methods named `…_locked` need `lock` held by the caller."""

    active_segment: ActiveSegment
    failure: LogFailed | None
    topics: TopicDictionary
    inline_writes: InlineWrites
    writes: Histogram
    _events: EndEvents

    def __init__(
        self,
        active_segment: ActiveSegment,
        topics: TopicDictionary,
        events: EndEvents,
        files: Files,
        folder: Path,
        *,
        min_free_bytes: int,
    ) -> None:
        self.active_segment = active_segment
        self.topics = topics
        self.failure = None
        self._events = events
        self._files = files
        self._folder = folder
        self.closed = None
        self._min_free_bytes = min_free_bytes
        self._check_bytes = min(_FREE_CHECK_BYTES, min_free_bytes // 4) if min_free_bytes else math.inf
        self._unchecked_bytes = _FREE_CHECK_BYTES
        self.inline_writes = InlineWrites()
        """When the thread of an event loop may write (docs/decisions/0016-direct-writes.md)."""
        self.writes = Histogram()
        """Durations of writes to the files, one for each batch or group of batches."""
        self.written_bytes = 0

    @property
    def end_offset(self) -> int:
        """Return the offset after the last published record."""
        return self._events.written_offset

    @property
    def has_ended(self) -> bool:
        """Return whether the log has failed, or was closed or deleted."""
        return self.closed is not None or self.failure is not None

    def check_open(self, why: str = "") -> None:
        """Raise StoreClosed once the store is closed or the log is deleted; `why` is added to the text."""
        if self.closed is not None:
            raise StoreClosed(f"{self.closed}{why}")

    def check_appendable(self) -> None:
        """Raise StoreClosed or LogFailed if the log takes no more appends."""
        self.check_open()
        if self.failure is not None:
            raise self.failure.again()

    def abandon(self, closed: StoreClosed) -> None:
        """Refuse every call from now on, in a forked child. A thread that the child does not have may hold the lock."""
        self.closed = closed
        self.renew_lock()

    def close_locked(self, closed: StoreClosed) -> None:
        """Take no more appends, and roll the active segment unless it stays unsealed for the next process."""
        self.closed = closed
        if self.failure is not None or not self.active_segment.close_unsealed():
            self.roll_locked()

    def delete_locked(self, deleted: StoreClosed) -> OpenFiles:
        """Take no more appends and give up all segments."""
        self.closed = deleted
        segments = self.active_segment.segment_list.segments
        return OpenFiles(segments, self.active_segment.give_up())

    # Writing.

    def write_locked(self, write_batch: WriteBatch) -> int:
        """Write and publish a batch, and return its first offset."""
        self.check_appendable()
        first = self.write_prepared_locked(write_batch)
        if first is not None:
            return first
        if write_batch.count == 0:
            return self._events.written_offset
        began_s = self.inline_writes.now_s()
        self._unchecked_bytes += write_batch.size_bytes
        if self._unchecked_bytes >= self._check_bytes:
            self._check_space(write_batch.size_bytes)
        change_count = self.active_segment.change_count
        try:
            self.active_segment.settle()
            self.topics.write_added()
            run = self.active_segment.write(write_batch)
            self._events.published(run, write_batch, self.active_segment.next_offset)
        except BaseException as error:
            self._judge(error)
            raise
        finally:
            if self.active_segment.change_count != change_count:
                self._segment_changed()
        self.writes.observe(int((self.inline_writes.now_s() - began_s) * 1e9))
        self.written_bytes += write_batch.size_bytes
        return run.base_offset

    def _segment_changed(self) -> None:
        if self.active_segment.oldest_rolled() is not None:
            self._events.segment_rolled()
        if self.active_segment.growing_base is not None:
            self._events.segment_began()

    def roll_locked(self) -> None:
        """Have the active segment sealed; the next append begins another."""
        if self.active_segment.roll():
            self._events.segment_rolled()

    def _check_space(self, size_bytes: int) -> None:
        free_bytes = self._files.free_bytes(self._folder)
        if free_bytes < self._min_free_bytes + size_bytes:
            raise StorageFull(self._folder, free_bytes, self._min_free_bytes)
        self._unchecked_bytes = 0

    def _judge(self, error: BaseException) -> None:
        """Decide after a failed write whether others may follow. Returns if the caller is to raise `error` itself."""
        if isinstance(error, FailoverFailed):
            raise self.fail_locked(error) from error
        if isinstance(error, OSError):
            error.filename = error.filename or str(self._folder)  # the kernel does not name the file
        elif not isinstance(error, Exception):
            self._regain()

    # Flushing.

    def begin_flush_locked(self) -> tuple[int, list[Mark]]:
        """Return the end offset and the extents of the files that `ActiveSegment.flush` is to make durable."""
        return self._whole(self.active_segment.begin_flush)

    def end_flush_locked(self, end_offset: int, marks: list[Mark]) -> None:
        """Note the end of a flush: everything below `end_offset` is durable."""
        self._whole(partial(self.active_segment.end_flush, end_offset, marks))

    def settle(self) -> bool:
        """Flush and seal the segments left by an earlier process; return False if there are none. Raises LogFailed,
        OSError."""
        with self.lock:
            if not self.active_segment.has_deferred_seals:
                return False
            self.check_appendable()
            try:
                self.active_segment.settle()
            except FailoverFailed as error:
                raise self.fail_locked(error) from error
        return True

    def fail_over_locked(self, cause: OSError, renew_topics: Callable[[], None]) -> None:
        """Write what is not durable into new files after a failed flush. Raises LogFailed if that fails, too."""
        try:
            self.active_segment.fail_over(cause, renew_topics)
            self._events.segment_rolled()
        except (OSError, FailoverFailed) as error:
            raise self.fail_locked(error) from error
        except BaseException:
            self.fail_locked(InterruptedError(INTERRUPTED))
            raise

    def fail_locked(self, cause: Exception) -> LogFailed:
        """Refuse further appends after a failed fsync without a failover, when the content of the disk is unknown.
        Return the error for the caller to raise."""
        if self.failure is None:
            self.failure = LogFailed(
                self._folder, cause, range(self.active_segment.synced_offset, self._events.written_offset)
            )
            self._events.failed(self.failure)
        return self.failure.again()

    def _whole(self, step: Callable[[], Result]) -> Result:
        """Run a step that must not be interrupted halfway."""
        try:
            return step()
        except Exception:
            raise
        except BaseException:
            self._regain()
            raise

    def _regain(self) -> None:
        """Restore a consistent state after an interrupt, such as Ctrl-C, between two steps that belong together, when
        the known state of the files may be wrong. What is not published is discarded; what is not durable is written
        again, as after a failed flush. Waiting for the disk is not such a step and can be interrupted."""
        cause = InterruptedError(INTERRUPTED)
        self._events.tail_lost()
        with suppress(LogFailed):  # raised to the next caller; this one was interrupted
            if not self.active_segment.back_to(self._events.written_offset):
                raise self.fail_locked(cause)
            self.fail_over_locked(cause, self.topics.sync)
