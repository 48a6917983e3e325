"""Group commit of one log: appends that wait for a write or a flush, and the flush that they share.

Locks, always taken in this order: `_seal_lock` (one seal at a time), `sync_lock` (one flush), `LogEnd.lock` (one
writer). While one flush runs, the next batches collect; `timestone.commit.committer` has the thread for callers that do
not wait."""

import collections
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from timestone.commit.commit_delay import CommitDelay
from timestone.commit.submission import Submission
from timestone.commit.submission_queue import SubmissionQueue
from timestone.config import Ack, StoreConfig
from timestone.errors import LogFailed, StoreClosed
from timestone.index import Checkpoint
from timestone.kernel import loops
from timestone.metrics.histogram import Histogram
from timestone.reading.wakeups import Woken
from timestone.writing.active_segment import Mark
from timestone.writing.log_end import INTERRUPTED, LogEnd, OpenFiles
from timestone.writing.write_batch import WriteBatch

_SYNCED = Ack.SYNCED
"""Used for each append: access to a global name is faster than access to a member of an enumeration."""


class CommitThread(Protocol):
    """Thread that writes and flushes later. Implemented by `Committer`."""

    def expect_write(self, log: "LogCommit") -> None: ...
    def expect_sync(self, log: "LogCommit") -> None: ...


class SealEvents(Protocol):
    """Callbacks of the sealing thread. Implemented by `timestone.log.Log`."""

    def segment_sealing(self) -> None:
        """Called before a rolled segment is sealed."""

    def segment_sealed(self) -> None:
        """Called after a segment was sealed."""


class BackgroundFlush(NamedTuple):
    """Flush of the growing segment that no thread waits for, but that holds the sync lock."""

    flush: loops.Flush
    checkpoint: Checkpoint
    end_offset: int
    mark: Mark

    @property
    def has_ended(self) -> bool:
        """Return whether `LogCommit.end_flush` waits for nothing."""
        return self.flush.has_ended

    @property
    def has_failed(self) -> bool:
        """Wait for the end, and return whether a file could not be flushed."""
        return self.flush.wait()[0] != 0


class LogCommit(loops.PreparedCommit):
    """Appends to one log at the ack level that the caller asks for. Thread-safe."""

    _end: LogEnd
    _queue: SubmissionQueue
    _committer: CommitThread
    delay: CommitDelay
    sync_lock: threading.Lock

    def __init__(
        self,
        end: LogEnd,
        config: StoreConfig,
        committer: CommitThread,
        *,
        events: SealEvents,
        log: str,
    ) -> None:
        """log: the name of its folder."""
        self.log = log
        self._seal_lock = threading.Lock()
        self.sync_lock = threading.Lock()
        self.delay = CommitDelay()
        self.flushes = Histogram()
        """Durations of the flushes of segments."""
        self._end = end
        self._active_segment = end.active_segment
        self._committer = committer
        self.is_sync_expected = False  # changed by the committer
        self._events = events
        self._queue = SubmissionQueue(log, config.queue_bytes)
        self._queue_bytes, self._sync_interval_bytes = config.queue_bytes, config.sync_interval_bytes
        self._default_level, self.direct_level = config.ack, Ack.WRITTEN
        self._batch_type, self._stored_type = WriteBatch, WriteBatch.stored_type
        self._unsynced: collections.deque[Submission] = collections.deque()
        self._flush_bytes = 0
        self._background: BackgroundFlush | None = None

    # Appending.

    def append(self, write_batch: WriteBatch, level: Ack) -> int:
        """Append in the caller's thread and return the first offset, once it is written or synced."""
        if level is not _SYNCED and (written := self.append_written(write_batch)) is not None:
            return written
        end = self._end
        if self._active_segment.unsynced_bytes >= self._queue_bytes:
            # The disk is slower than the appends: wait, to bound the bytes held in memory until they are durable.
            self.sync_to(end.end_offset)
        with end.lock:
            if self._queue.queued_bytes:
                self._write_queued_locked()
            first = end.write_locked(write_batch)
        if level is _SYNCED:
            self.sync_to(first + write_batch.count)
        else:
            self._committer.expect_sync(self)
        return first

    def submit(
        self,
        write_batch: WriteBatch,
        ack: Ack,
        done: Callable[[Submission], None] | None,
        woken: list[Woken] | None = None,
    ) -> Submission:
        """Take a batch without waiting for the disk. woken: see `append_inline`. Raises QueueFull, LogFailed,
        StoreClosed."""
        self._end.check_appendable()
        submission = Submission(write_batch, ack, done)
        if ack is not Ack.SYNCED or not self._submit_inline(submission, woken):
            self._queue.put(submission)
        self._committer.expect_write(self)
        if ack is Ack.MEMORY:
            submission.resolve()
        return submission

    def submit_unflushed(self, submission: Submission) -> None:
        """Take a submission at level `written`, and leave the flush to the caller. Raises as `submit`."""
        self._end.check_appendable()
        if not self._submit_inline(submission, None):
            self._queue.put(submission)
            self._committer.expect_write(self)

    @property
    def queued_bytes(self) -> int:
        """Memory of the submissions that are not written yet."""
        return self._queue.queued_bytes

    @property
    def flush_s(self) -> float:
        """Return the duration of the flush under way, or of one that has just ended; 0 while the disk is idle."""
        return self.delay.flush_s(under_way=self.sync_lock.locked())

    def sync(self) -> None:
        """Write what was submitted and make everything durable. Raises LogFailed, StoreClosed, OSError."""
        with self._end.lock:
            self._write_queued_locked()
        self.sync_to(self._end.end_offset)

    # For the committer and the background threads.

    def write_queued(self) -> None:
        """Write everything submitted. Errors go to the submissions they concern."""
        if self._queue.queued_bytes:
            with self._end.lock:
                self._write_queued_locked()

    def sync_queued(self) -> None:
        """Flush for all that wait. Errors go to the submissions they concern."""
        try:
            self.sync_to(self._end.end_offset)
        except (LogFailed, StoreClosed):
            return  # each waiting submission got it

    @property
    def awaited(self) -> bool:
        """A submission waits for a flush."""
        return bool(self._unsynced)

    @property
    def gathers(self) -> bool:
        """The next flush is worth delaying: more is about to come (`CommitDelay`)."""
        return self._queue.queued_bytes < self.delay.missing_bytes

    @property
    def sync_wanted(self) -> bool:
        """A submission waits for a flush, or enough is unsynced."""
        return bool(self._unsynced) or self._active_segment.unsynced_bytes >= self._sync_interval_bytes

    @property
    def sync_overdue(self) -> bool:
        """Return whether so much was written since the last flush began that the next one is overdue."""
        return self._active_segment.unsynced_bytes >= 2 * self._sync_interval_bytes

    @property
    def dirty(self) -> bool:
        """Something written is not yet durable."""
        return self._active_segment.synced_offset < self._end.end_offset and self._end.failure is None

    def seal_rolled(self) -> None:
        """Seal the segments that an earlier process left, and those that were rolled. Raises OSError, and can be called
        again."""
        if not self._end.has_ended:
            self.settle()
        while self._seal_next():
            pass

    def _seal_next(self) -> bool:
        """Seal the oldest rolled segment; return False if there is none. Other callers wait: they would seal the same
        one, whose files are then closed."""
        with self._seal_lock:
            writer = self._active_segment.oldest_rolled()
            if self._end.failure is not None or writer is None:
                return False
            self._end_background_flush()
            with self.sync_lock:
                if self._active_segment.synced_offset < writer.end_offset:
                    self._flush()
            if writer is not self._active_segment.oldest_rolled():
                return True  # its flush failed, and another segment has its records now
            trailer = self._active_segment.seal(writer)
            self._events.segment_sealing()
            with self._end.lock:
                self._active_segment.replace_sealed(writer, trailer)
            writer.close()
        self._events.segment_sealed()
        return True

    # Ending.

    def close(self, closed: StoreClosed) -> None:
        """Write and flush all submissions, and refuse further ones. Appends that are written by then are flushed, so
        that nothing is in the log whose caller got StoreClosed."""
        self._end_background_flush()
        try:
            if self._end.failure is None:
                self.settle()
                with self.sync_lock:
                    with self._end.lock:
                        self._write_queued_locked()
                        self._end.closed = closed
                    if self._active_segment.synced_offset < self._end.end_offset:
                        self._flush()
                self._resolve_synced()
        finally:
            with self.sync_lock, self._end.lock:
                self._end.close_locked(closed)
                self.fail_waiting(closed)

    def delete(self, note: Callable[[], None], deleted: StoreClosed) -> OpenFiles:
        """Refuse further appends once `note` has returned; if it raises, nothing has changed."""
        self._end_background_flush()
        with self.sync_lock, self._end.lock:
            self._end.check_open()
            note()
            remains = self._end.delete_locked(deleted)
            self.fail_waiting(deleted)
        return remains

    def refuse_queued(self, error: Exception) -> None:
        """Resolve the submissions that are not written yet with an error. The caller holds the write lock."""
        self._queue.fail(error)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no write, flush or seal of this log run during the block."""
        self._end_background_flush()  # first: a thread that seals may wait for it
        with self._seal_lock, self.sync_lock, self._end.lock:
            yield

    def abandon(self) -> None:
        """Replace the locks in a forked child, where a missing thread may hold them."""
        self._seal_lock = threading.Lock()
        self.sync_lock = threading.Lock()
        self._background = None

    def fail_waiting(self, error: Exception) -> None:
        """Resolve every waiting submission with an error."""
        while self._unsynced:
            self._unsynced.popleft().resolve(error)
        self.delay.failed()
        self._queue.fail(error)

    # Writing, under the write lock.

    def _submit_inline(self, submission: Submission, woken: list[Woken] | None) -> bool:
        """Write a submission at level `synced` in the caller's thread. Return False if nothing happened. An error is
        set in the submission."""
        try:
            return self.append_inline(submission.write_batch, woken, submission) is not None
        except Exception as error:
            submission.resolve(error)
            return True

    def _write_queued_locked(self) -> None:
        """Write all submissions in groups, each with one system call for records and one for entries."""
        for group in self._queue.groups():
            first = None
            try:
                first = self._end.write_locked(
                    WriteBatch.joined([submission.write_batch for submission in group])
                )
                self._written_group_locked(group, first)
            except BaseException as error:
                if first is not None:  # KeyboardInterrupt between two submissions
                    self._written_group_locked(group, first)
                    raise
                failure = error if isinstance(error, Exception) else InterruptedError(INTERRUPTED)
                for submission in group:
                    submission.resolve(failure)
                if not isinstance(error, Exception):
                    raise

    def _written_group_locked(self, group: Iterable[Submission], first: int) -> None:
        for submission in group:
            self._written_locked(submission, first)
            first = submission.offsets.stop

    def _written_locked(self, submission: Submission, first: int) -> None:
        """Note that a submission is written. Idempotent."""
        if submission.ack is Ack.SYNCED and not submission.offsets:
            self._unsynced.append(submission)
            self.delay.written(submission.memory_bytes)
        submission.offsets = range(first, first + submission.write_batch.count)
        submission.written_ns = time.perf_counter_ns()
        if submission.ack is not Ack.SYNCED:
            submission.resolve()

    # Flushing.

    def sync_to(self, end_offset: int) -> None:
        """Return when everything below `end_offset` is durable. A flush covers every write before its start."""
        while self._active_segment.synced_offset < end_offset:
            self._end_background_flush()
            with self.sync_lock:
                if self._active_segment.synced_offset >= end_offset:
                    break
                if self._end.failure is not None:  # before `closed`: the records may be visible
                    raise self._end.failure.again()
                self._end.check_appendable()
                self._flush()
        self._resolve_synced()

    def settle(self) -> None:
        """Flush and seal segments that an earlier process left unclosed. Raises LogFailed, OSError."""
        if self._end.settle():
            self._events.segment_sealed()

    def _flush(self) -> None:
        """Make everything written durable, holding the sync lock but not the write lock, so that appends continue and
        share the next flush. Raises LogFailed; OSError for deferred seals."""
        self.settle()
        try:
            with self._end.lock:
                self._flush_bytes = self._active_segment.unsynced_bytes
                end_offset, marks = self._end.begin_flush_locked()
            self._end.topics.sync()
            self.delay.begin()
            self._active_segment.flush(marks)
            self.flushes.observe(int(self.delay.end() * 1e9))
            with self._end.lock:
                self._end.end_flush_locked(end_offset, marks)
        except OSError as error:
            with self._end.lock:
                self._end.fail_over_locked(error, self._end.topics.rewrite)

    def begin_flush(self, wake_fd: int) -> BackgroundFlush | None:
        """Begin a flush that `end_flush` is to end, for an event loop: eight bytes are written to `wake_fd` when that
        waits for nothing. Return None where something else is to be done, too, so that only `sync` helps. Raises
        LogFailed. Not for two threads at a time."""
        end, active_segment = self._end, self._active_segment
        if end.has_ended or active_segment.has_deferred_seals or not self.sync_lock.acquire(blocking=False):
            return None
        background = None  # once another thread has ended this flush, the lock may be held for the next
        try:
            with end.lock:
                self._flush_bytes = active_segment.unsynced_bytes
                end_offset, marks = end.begin_flush_locked()
                if len(marks) == 1 and not end.topics.unsynced:
                    self.delay.begin()
                    if (begun := marks[0].writer.begin_flush(wake_fd)) is not None:
                        self._background = background = BackgroundFlush(*begun, end_offset, marks[0])
        except OSError as error:
            with end.lock:
                end.fail_over_locked(error, end.topics.rewrite)
        finally:
            if background is None:
                self.sync_lock.release()
        return background

    def end_flush(self, background: BackgroundFlush) -> None:
        """Wait for the end of a flush that `begin_flush` has begun, and take note of it. Any thread may, and the second
        call does nothing. Raises LogFailed."""
        background.flush.wait()
        end, mark = self._end, background.mark
        with end.lock:
            if self._background is not background:
                return
            try:
                mark.writer.end_flush(background.flush, background.checkpoint, mark.entry_count)
                self.flushes.observe(int(self.delay.end() * 1e9))
                end.end_flush_locked(background.end_offset, [mark])
            except OSError as error:
                end.fail_over_locked(error, end.topics.rewrite)
            finally:
                self._background = None
                self.sync_lock.release()
        self._resolve_synced()

    def _end_background_flush(self) -> None:
        """Release the sync lock before it is taken: the thread that begins flushes may be this one. An error is kept
        in the end of the log."""
        if (background := self._background) is not None:
            with suppress(LogFailed):
                self.end_flush(background)

    def _resolve_synced(self) -> None:
        synced: list[Submission] = []
        try:
            with self._end.lock:
                while self._unsynced and self._unsynced[0].offsets.stop <= self._active_segment.synced_offset:
                    synced.append(self._unsynced[0])
                    self._unsynced.popleft()
                if synced:
                    answered_bytes = sum(submission.memory_bytes for submission in synced)
                    self.delay.answered(len(synced), answered_bytes, self._queue.queued_bytes)
            for submission in synced:
                submission.resolve()
        except BaseException:  # KeyboardInterrupt between two submissions
            for submission in synced:
                submission.resolve()
            raise
