"""Group commit of one log: who waits for a write or a flush, and the flush that serves all who came before it.

Locks, always taken in this order: `sync_lock` (one flush at a time), then `LogEnd.lock` (one writer at a time). While
one flush runs, the next batches gather; see `timestone.commit.committer` for the thread that works for callers that
do not wait themselves."""

import collections
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from timestone.commit.commit_delay import FlushGroups
from timestone.commit.submission import Submission
from timestone.commit.submission_queue import SubmissionQueue
from timestone.config import Ack, StoreConfig
from timestone.errors import LogFailed, StoreClosed
from timestone.format.topics import TopicDictionary
from timestone.writing.log_end import LogEnd, Remains
from timestone.writing.write_batch import Draft

_INTERRUPTED = "interrupted in the middle of a write"
_SMALL_FLUSH_BYTES = 1024 * 1024
"""A write beside a flush of at most this much takes as long as alone."""


class CommitThread(Protocol):
    """The thread that writes and flushes later. Implemented by `Committer`."""

    def expect_write(self, log: "LogCommit") -> None: ...
    def expect_sync(self, log: "LogCommit") -> None: ...


class SealEvents(Protocol):
    """What happens to segments, called by the thread that seals. Implemented by `timestone.log.Log`."""

    def segment_sealing(self) -> None:
        """A segment takes no more records and is about to be sealed."""

    def segment_sealed(self) -> None:
        """A segment has been sealed."""


class LogCommit:
    """Appends to one log, to the level its callers ask for. Any thread may call."""

    def __init__(
        self,
        end: LogEnd,
        topics: TopicDictionary,
        config: StoreConfig,
        committer: CommitThread,
        *,
        events: SealEvents,
        log: str,
    ) -> None:
        """log: the name of its folder."""
        self.log = log
        self.sync_lock = threading.Lock()
        self.delay = FlushGroups()
        self._end = end
        self._appender = end.appender
        self._topics = topics
        self._config = config
        self._committer = committer
        self._events = events
        self._queue = SubmissionQueue(log, config.queue_bytes)
        self._unsynced: collections.deque[Submission] = collections.deque()
        self._flush_bytes = 0
        """What the running flush carries, or the last one did."""

    # Appending.

    def append(self, draft: Draft, level: Ack) -> int:
        """Append in the caller's thread and return the first offset, once it is written or synced."""
        if self._appender.unsynced_bytes >= self._config.queue_bytes:
            # The disk takes less than is appended: waiting for it bounds what is in memory until it is durable.
            self.sync_to(self._end.end_offset)
        with self._end.lock:
            self._write_queued_locked()
            first = self._end.write_locked(draft)
        if level is Ack.SYNCED:
            self.sync_to(first + draft.count)
        else:
            self._committer.expect_sync(self)
        return first

    def append_inline(self, draft: Draft) -> int | None:
        """Append at level `written` in the caller's thread if that probably does not wait; None otherwise."""
        if not self._end.lock.acquire(False):  # by keyword it takes longer
            return None
        try:
            # While a flush is under way nothing: it may carry a lot, because no caller waits for it.
            first = None if self.sync_lock.locked() else self._write_inline_locked(draft)
        finally:
            self._end.lock.release()
        if first is not None:
            self._committer.expect_sync(self)
        return first

    def submit(self, draft: Draft, ack: Ack, done: Callable[[Submission], None] | None) -> Submission:
        """Take a draft without waiting for the disk. Raises QueueFull, LogFailed, StoreClosed."""
        self._end.check_appendable()
        submission = Submission(draft, ack, done)
        if ack is not Ack.SYNCED or not self._submit_inline(submission):
            self._queue.put(submission)
        self._committer.expect_write(self)
        if ack is Ack.MEMORY:
            submission.resolve()
        return submission

    @property
    def queued_bytes(self) -> int:
        """What was submitted and is not written yet, as memory."""
        return self._queue.queued_bytes

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
        """The next flush is worth delaying: more is about to come (`FlushGroups`)."""
        return self._queue.queued_bytes < self.delay.missing_bytes

    @property
    def sync_wanted(self) -> bool:
        """A submission waits for a flush, or enough is unsynced."""
        return bool(self._unsynced) or self._appender.unsynced_bytes >= self._config.sync_interval_bytes

    @property
    def sync_overdue(self) -> bool:
        """So much was written since the last flush began that the next one should have begun long ago."""
        return self._appender.unsynced_bytes >= 2 * self._config.sync_interval_bytes

    @property
    def dirty(self) -> bool:
        """Something written is not yet durable."""
        return self._appender.synced_offset < self._end.end_offset and self._end.failure is None

    def seal_rolled(self) -> None:
        """Seal the segments that an earlier process left, and those that were rolled. Raises OSError, and can be called
        again."""
        if not self._end.has_ended:
            self.settle()
        while self._end.failure is None and (writer := self._appender.oldest_rolled()) is not None:
            with self.sync_lock:
                if self._appender.synced_offset < writer.end_offset:
                    self._flush()
            if writer is not self._appender.oldest_rolled():
                continue  # its flush failed, and another segment has its records now
            trailer = self._appender.seal(writer)
            self._events.segment_sealing()
            with self._end.lock:
                self._appender.replace_sealed(writer, trailer)
            writer.close()
            self._events.segment_sealed()

    # Ending.

    def close(self, closed: StoreClosed) -> None:
        """Write and sync what was submitted, and take no more."""
        try:
            if self._end.failure is None:
                self.write_queued()
                self.settle()
                self.sync_to(self._end.end_offset)
        finally:
            with self.sync_lock, self._end.lock:
                self._end.close_locked(closed)
                self.fail_waiting(closed)

    def delete(self, note: Callable[[], None], deleted: StoreClosed) -> Remains:
        """Take no more once `note` has returned; if it raises, nothing has happened."""
        with self.sync_lock, self._end.lock:
            self._end.check_open()
            note()
            remains = self._end.delete_locked(deleted)
            self.fail_waiting(deleted)
        return remains

    def abandon(self) -> None:
        """Forget a lock that a thread may have held that a forked child does not have."""
        self.sync_lock = threading.Lock()

    def fail_waiting(self, error: Exception) -> None:
        """Nothing that waits will be written or flushed."""
        while self._unsynced:
            self._unsynced.popleft().resolve(error)
        self.delay.failed()
        self._queue.fail(error)

    # Writing, under the write lock.

    def _write_inline_locked(self, draft: Draft) -> int | None:
        return None if self._queue.queued_bytes else self._end.write_inline_locked(draft)

    def _submit_inline(self, submission: Submission) -> bool:
        """Write what is to be flushed in the caller's thread, as `append_inline` does, but also beside a small flush.
        False: nothing has happened. An error goes to the submission."""
        if not self._end.lock.acquire(False):
            return False
        try:
            first = None if self._is_behind else self._write_inline_locked(submission.draft)
            if first is None:
                return False
            self._written_locked(submission, first)
        except Exception as error:
            failure = error
        else:
            return True
        finally:
            self._end.lock.release()
        submission.resolve(failure)
        return True

    @property
    def _is_behind(self) -> bool:
        """A write might wait for what is being flushed, or too much waits for that flush."""
        flush_bytes = self._flush_bytes if self.sync_lock.locked() else 0
        return max(flush_bytes, self.delay.awaited_bytes) > _SMALL_FLUSH_BYTES

    def _write_queued_locked(self) -> None:
        """Write what was submitted: neighbours together, one system call for records and one for entries."""
        for group in self._queue.groups():
            first = None
            try:
                first = self._end.write_locked(Draft.joined([submission.draft for submission in group]))
                self._written_group_locked(group, first)
            except BaseException as error:
                if first is not None:  # Ctrl-C between two submissions
                    self._written_group_locked(group, first)
                    raise
                failure = error if isinstance(error, Exception) else InterruptedError(_INTERRUPTED)
                for submission in group:
                    submission.resolve(failure)
                if not isinstance(error, Exception):
                    raise

    def _written_group_locked(self, group: Iterable[Submission], first: int) -> None:
        for submission in group:
            self._written_locked(submission, first)
            first = submission.offsets.stop

    def _written_locked(self, submission: Submission, first: int) -> None:
        """Note that a submission is written. Called twice, nothing changes."""
        if submission.ack is Ack.SYNCED and not submission.offsets:
            self._unsynced.append(submission)
            self.delay.written(submission.memory_bytes)
        submission.offsets = range(first, first + submission.draft.count)
        if submission.ack is not Ack.SYNCED:
            submission.resolve()

    # Flushing.

    def sync_to(self, end_offset: int) -> None:
        """Return once everything below `end_offset` is durable. One flush serves all that came before it began."""
        while self._appender.synced_offset < end_offset:
            with self.sync_lock:
                if self._appender.synced_offset >= end_offset:
                    break
                self._end.check_appendable()
                self._flush()
        self._resolve_synced()

    def settle(self) -> None:
        """Flush and seal what an earlier process has left. Raises LogFailed, OSError."""
        if self._end.settle():
            self._events.segment_sealed()

    def _flush(self) -> None:
        """Make everything written durable, under the sync lock but not the write lock: appends continue while the disk
        works, and meet in the next flush. Raises LogFailed; OSError for what an earlier process has left."""
        self.settle()
        try:
            with self._end.lock:
                self._flush_bytes = self._appender.unsynced_bytes
                end_offset, marks = self._end.begin_flush_locked()
            self._topics.sync()
            self.delay.begin()
            self._appender.flush(marks)
            self.delay.end()
            with self._end.lock:
                self._end.end_flush_locked(end_offset, marks)
        except OSError as error:
            with self._end.lock:
                self._end.fail_over_locked(error, self._topics.rewrite)

    def _resolve_synced(self) -> None:
        synced: list[Submission] = []
        try:
            with self._end.lock:
                while self._unsynced and self._unsynced[0].offsets.stop <= self._appender.synced_offset:
                    synced.append(self._unsynced[0])
                    self._unsynced.popleft()
                if synced:
                    answered_bytes = sum(submission.memory_bytes for submission in synced)
                    self.delay.answered(answered_bytes, self._queue.queued_bytes)
            for submission in synced:
                submission.resolve()
        except BaseException:  # Ctrl-C between two submissions
            for submission in synced:
                submission.resolve()
            raise
