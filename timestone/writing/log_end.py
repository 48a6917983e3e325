"""The end of a log that takes appends: writes batches behind the last record and publishes them.

What belongs here: the write lock, the state after a failure, and free space. Who waits for an append, and when it is
flushed, is the business of `timestone.commit`.
"""

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from timestone.disk.files import Files
from timestone.errors import LogFailed, StorageFull, StoreClosed
from timestone.format.topics import TopicDictionary
from timestone.kernel.entries import ENTRY_BYTES
from timestone.reading.tail_cache import TailRun
from timestone.segment import Segment
from timestone.writing.active_segment import Appender, Mark, RescueFailed
from timestone.writing.inline_writes import MOST_BYTES, SLOW_S, DirectWrites
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import Draft

Result = TypeVar("Result")
_FREE_CHECK_BYTES = 4 * 1024 * 1024
"""Free space is checked once for this much written: a statvfs a batch would cost as much as the batch."""
_INTERRUPTED = "interrupted in the middle of a write"


class Remains(NamedTuple):
    """What a deleted log leaves open, for the caller to release and close."""

    segments: Sequence[Segment]
    writers: Sequence[SegmentWriter]


class EndEvents(Protocol):
    """What happens at the end of a log, called under the write lock. Implemented by `timestone.log.Log`."""

    @property
    def end_offset(self) -> int:
        """The offset behind the last published record."""

    def published(self, run: TailRun, draft: Draft, end_offset: int) -> None:
        """Records were written: show them to readers."""

    def tail_lost(self) -> None:
        """The newest records in memory may not be what the files hold: forget them."""

    def segment_rolled(self) -> None:
        """A segment waits to be sealed."""

    def segment_began(self) -> None:
        """Appends go to another segment than before."""

    def failed(self, failure: LogFailed) -> None:
        """The log takes no more appends."""


class LogEnd:
    """The growing end of one log. Methods named `…_locked` need `lock` held by the caller."""

    def __init__(
        self,
        appender: Appender,
        topics: TopicDictionary,
        events: EndEvents,
        files: Files,
        folder: Path,
        *,
        min_free_bytes: int,
    ) -> None:
        self.appender = appender
        self.topics = topics
        self.lock = threading.Lock()
        """One writer at a time."""
        self.failure: LogFailed | None = None
        """Why the log takes no more appends, or None."""
        self._events = events
        self._files = files
        self._folder = folder
        self._closed: StoreClosed | None = None
        self._min_free_bytes = min_free_bytes
        self._check_bytes = min(_FREE_CHECK_BYTES, min_free_bytes // 4) if min_free_bytes else math.inf
        self._unchecked_bytes = _FREE_CHECK_BYTES
        self._inline_writes = DirectWrites()

    @property
    def end_offset(self) -> int:
        """The offset behind the last published record."""
        return self._events.end_offset

    @property
    def has_ended(self) -> bool:
        """The log has failed, or was closed or deleted."""
        return self._closed is not None or self.failure is not None

    def check_open(self, why: str = "") -> None:
        """Raise StoreClosed once the store is closed or the log is deleted; `why` is added to the text."""
        if self._closed is not None:
            raise StoreClosed(f"{self._closed}{why}")

    def check_appendable(self) -> None:
        """Raise StoreClosed or LogFailed when the log takes no more appends."""
        self.check_open()
        if self.failure is not None:
            raise self.failure.again()

    def abandon(self, closed: StoreClosed) -> None:
        """Refuse everything from now on, in a forked child. A thread that the child does not have may hold the lock."""
        self._closed = closed
        self.lock = threading.Lock()

    def close_locked(self, closed: StoreClosed) -> None:
        """Take no more appends, and roll the active segment."""
        self._closed = closed
        self.roll_locked()

    def delete_locked(self, deleted: StoreClosed) -> Remains:
        """Take no more appends and give up all segments."""
        self._closed = deleted
        segments = self.appender.history.segments
        return Remains(segments, self.appender.give_up())

    # Writing.

    def write_locked(self, draft: Draft) -> int:
        """Write and publish a draft; returns its first offset."""
        self.check_appendable()
        if draft.count == 0:
            return self._events.end_offset
        self._check_space(draft)
        appender = self.appender
        rolled_count, growing_base = appender.rolled_count, appender.growing_base
        try:
            appender.settle()
            self.topics.write_added()
            run = appender.write(draft)
            self._events.published(run, draft, appender.next_offset)
        except BaseException as error:
            self._judge(error)
            raise
        finally:
            if appender.rolled_count > rolled_count:
                self._events.segment_rolled()
        if appender.growing_base != growing_base:
            self._events.segment_began()
        return run.base_offset

    def write_inline_locked(self, draft: Draft) -> int | None:
        """Write and publish a small draft if that takes two writes to prepared files and probably no waiting; None:
        nothing has happened. For event loops (docs/decisions/0016-direct-writes.md)."""
        if (
            self.topics.has_unwritten
            or self._closed is not None
            or draft.size_bytes + draft.count * ENTRY_BYTES > MOST_BYTES
            or (began_s := self._inline_writes.now_s()) < self._inline_writes.paused_until_s
        ):
            return None
        if self.failure is not None:
            raise self.failure.again()
        if draft.count == 0:
            return self._events.end_offset
        self._check_space(draft)
        appender, writes = self.appender, self._inline_writes
        epoch = appender.epoch
        try:
            run = appender.write_prepared(draft)
            if run is None:
                return None
            self._events.published(run, draft, appender.next_offset)
        except BaseException as error:
            self._judge(error)
            raise
        finally:
            ended_s = writes.now_s()
            if ended_s - began_s > SLOW_S:
                writes.was_slow(began_s, ended_s)
        if appender.epoch != epoch:  # another segment is active now
            self._events.segment_rolled()
            self._events.segment_began()
        return run.base_offset

    def roll_locked(self) -> None:
        """Have the active segment sealed; the next append begins another."""
        if self.appender.roll():
            self._events.segment_rolled()

    def _check_space(self, draft: Draft) -> None:
        self._unchecked_bytes += draft.size_bytes
        if self._unchecked_bytes < self._check_bytes:
            return
        free_bytes = self._files.free_bytes(self._folder)
        if free_bytes < self._min_free_bytes + draft.size_bytes:
            raise StorageFull(self._folder, free_bytes, self._min_free_bytes)
        self._unchecked_bytes = 0

    def _judge(self, error: BaseException) -> None:
        """Decide after a failed write whether others may follow. Returns for the caller to raise `error` itself."""
        if isinstance(error, RescueFailed):
            raise self.fail_locked(error) from error
        if isinstance(error, OSError):
            error.filename = error.filename or str(self._folder)  # the kernel does not say where
        elif not isinstance(error, Exception):
            self._regain()

    # Flushing.

    def begin_flush_locked(self) -> tuple[int, list[Mark]]:
        """Note how far the files are written that `Appender.flush` is to make durable."""
        return self._whole(self.appender.begin_flush)

    def end_flush_locked(self, end_offset: int, marks: list[Mark]) -> None:
        """The flush is done: everything below `end_offset` is durable."""
        self._whole(partial(self.appender.end_flush, end_offset, marks))

    def settle(self) -> bool:
        """Flush and seal what an earlier process has left; False when there is nothing. Raises LogFailed, OSError."""
        with self.lock:
            if not self.appender.has_leftovers:
                return False
            self.check_appendable()
            try:
                self.appender.settle()
            except RescueFailed as error:
                raise self.fail_locked(error) from error
        return True

    def fail_over_locked(self, cause: OSError, renew_topics: Callable[[], None]) -> None:
        """After a failed flush, write what is not durable into new files. Raises LogFailed when that fails, too."""
        try:
            self.appender.doubt()
            renew_topics()
            self.appender.rescue(cause)
            self._events.segment_rolled()
            self.appender.trust()
        except (OSError, RescueFailed) as error:
            raise self.fail_locked(error) from error
        except BaseException:
            self.fail_locked(InterruptedError(_INTERRUPTED))
            raise

    def fail_locked(self, cause: Exception) -> LogFailed:
        """After a failed fsync without a failover, the content of the disk is unknown: the log takes no more appends.
        Returns the error for the caller to raise."""
        if self.failure is None:
            self.failure = LogFailed(
                self._folder, cause, range(self.appender.synced_offset, self._events.end_offset)
            )
            self._events.failed(self.failure)
        return self.failure.again()

    def _whole(self, step: Callable[[], Result]) -> Result:
        """Take a step that must not be left half-way."""
        try:
            return step()
        except Exception:
            raise
        except BaseException:
            self._regain()
            raise

    def _regain(self) -> None:
        """A Ctrl-C, say, came between two steps that belong together, so what this process knows of its files may be
        wrong. What is not published is forgotten; what is not durable is written again, as after a failed flush.
        Waiting for the disk is not such a step: it can be interrupted freely."""
        cause = InterruptedError(_INTERRUPTED)
        self._events.tail_lost()
        with suppress(LogFailed):  # the next caller gets it; this one was interrupted
            if not self.appender.back_to(self._events.end_offset):
                raise self.fail_locked(cause)
            self.fail_over_locked(cause, self.topics.sync)
