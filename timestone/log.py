"""A log that this process owns: append, roll, sync.

Locks, always taken in this order: `_sync_lock` (one flush at a time), `_write_lock` (one writer at a time),
`wakeups.lock` (the published end and the parked readers; held for microseconds, the only one that an event
loop may wait for: it tries the write lock, and submits when somebody has it).

An append goes: drafts → one pwrite of records, one of entries → tail → the published end rises → readers
wake. Those who wait for `synced` then meet at `_sync_lock`: whoever gets it flushes for all that were written
before."""

import collections
import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from timestone.commit.background_seal import Sealer
from timestone.commit.commit_delay import FlushGroups
from timestone.commit.committer import Committer
from timestone.commit.inline_writes import MOST_BYTES, SLOW_S, DirectWrites
from timestone.commit.submission import Submission
from timestone.commit.submission_queue import SubmissionQueue
from timestone.config import Ack, LogConfig, with_settings
from timestone.errors import LogFailed, StorageFull, StoreClosed
from timestone.format.topics import TopicDictionary
from timestone.index import Trailer
from timestone.kernel.entries import ENTRY_BYTES, NO_TOPIC
from timestone.readable import ReadableLog
from timestone.reading.named_readers import ReaderStore
from timestone.reading.segment_list import History
from timestone.reading.tail_cache import LogTail, TailBudget, TailRun
from timestone.reading.wakeups import Waiter
from timestone.record import encode_headers, user_headers
from timestone.recovery.deferred_seals import Leftovers
from timestone.segment import Segment
from timestone.upkeep.compaction import LogCompaction
from timestone.upkeep.compression import LogCompression
from timestone.upkeep.host import UpkeptStore
from timestone.upkeep.retention import Retention
from timestone.upkeep.segment_rewrites import Rewrites
from timestone.writing.active_segment import Appender, LogPlace, RescueFailed
from timestone.writing.write_batch import Draft

Result = TypeVar("Result")
_LOGGER = logging.getLogger("timestone")
_FREE_CHECK_BYTES = 4 * 1024 * 1024
"""Free space is looked at once per this much written: a statvfs a batch would cost as much as the batch."""
_INTERRUPTED = "interrupted in the middle of a write"
_SMALL_FLUSH_BYTES = 1024 * 1024
"""A write beside a flush of at most so much takes as long as alone."""


class LogOwner(UpkeptStore, ReaderStore, Protocol):
    """What a log needs of its store: implemented by `timestone.store.Store`."""

    boot_id: bytes
    tail_budget: TailBudget
    committer: Committer
    sealer: Sealer

    def remember(self, log: "Log", config: LogConfig) -> None: ...
    def note(self, text: str) -> None: ...


class Log(ReadableLog):
    """One partition of a log in an open store. Made by `Store.log`; every method may be called by any
    thread."""

    def __init__(
        self,
        store: LogOwner,
        folder: Path,
        topics: TopicDictionary,
        config: LogConfig,
        history: History,
        *,
        start_offset: int,
        next_offset: int,
        epoch: int,
        last_timestamp_us: int,
        leftovers: Leftovers | None = None,
    ) -> None:
        super().__init__(folder, topics, store)
        self.config = config
        self._store = store
        self._topic_names = topics.by_id
        place = LogPlace(store.files, folder, self.id, store.boot_id, store.open_segments, store.now_us)
        self._appender = Appender(
            place,
            config,
            history,
            next_offset=next_offset,
            epoch=epoch,
            last_timestamp_us=last_timestamp_us,
            sync_topics=topics.sync,
            leftovers=leftovers,
        )
        self._start_offset = start_offset
        self._end_offset = next_offset
        self._tail = LogTail(store.tail_budget)
        self._queue = SubmissionQueue(folder.name, store.config.queue_bytes)
        self._unsynced: collections.deque[Submission] = collections.deque()
        limit = store.config.min_free_bytes
        self._check_bytes = min(_FREE_CHECK_BYTES, limit // 4) if limit else math.inf
        self._unchecked_bytes = _FREE_CHECK_BYTES
        self._write_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._flush_bytes = 0
        """What the flush that is under way carries, or the last one did."""
        self._direct_writes = DirectWrites()
        self.flush_groups = FlushGroups()
        self._failure: LogFailed | None = None
        self.rewrites = Rewrites(self, store)
        self.retention = Retention(self, store)
        self.compression = LogCompression(self, store)
        self.compaction = LogCompaction(self, store)
        self._compacted_to = 0
        self._deleted = False

    # Reading: see ReadableLog.

    @property
    def history(self) -> History:
        return self._appender.history

    @property
    def synced_offset(self) -> int:
        return self._appender.synced_offset

    @property
    def epoch(self) -> int:
        """Rises whenever offsets may have been lost, or records were moved to another segment."""
        return self._appender.epoch

    def in_memory(self, offset: int) -> bool:
        """Would a read at this offset make no system call? True at the end, too. For event loops, which leave reads
        of the disk to a thread."""
        return offset >= self._end_offset or self._in_tail(offset) is not None

    @property
    def _memory_offset(self) -> int:
        return max(self._tail.first_offset, self._compacted_to)

    def _in_tail(self, offset: int) -> TailRun | None:
        return self._tail.find(offset) if offset >= self._compacted_to else None

    # Appending.

    def append(
        self,
        payload: bytes,
        *,
        topic: str | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        flags: int = 0,
        ack: Ack | str | None = None,
    ) -> int:
        """Append one record and return its offset, once it is `written` or `synced` (default: the store's
        setting).

        `written`: visible to readers, survives kill -9. `synced`: survives power loss. After an error nothing
        was appended, except for LogFailed at level `synced`: the record may be visible, its durability is
        unknown. At level `written` it waits for the disk first once `queue_bytes` were written since a flush began.

        Raises RecordTooLarge, TopicLimit, InvalidName, StorageFull, LogFailed, StoreClosed, OSError.
        """
        block = encode_headers(user_headers(headers)) if headers else b""
        topic_id = NO_TOPIC if topic is None else self.topics.add(topic)
        draft = Draft(
            [block + payload if block else payload], topic_id, flags=flags, header_lengths=len(block)
        )
        return self.append_draft(draft, ack=ack).start

    def append_many(
        self,
        payloads: Sequence[bytes],
        *,
        topic: str | None = None,
        topics: Sequence[str] | None = None,
        ack: Ack | str | None = None,
    ) -> range:
        """Append records as one batch, all or none, and return their offsets. One topic for all, or one each
        in `topics`.

        Levels and errors as `append`. An empty batch returns an empty range at the end.
        """
        if topics is not None:
            if topic is not None:
                raise ValueError("either one topic for all records, or topics with one for each")
            if len(topics) != len(payloads):
                raise ValueError(f"{len(payloads)} payloads with {len(topics)} topics")
            draft = Draft(payloads, self.topics.add_all(topics))
        else:
            draft = Draft(payloads, NO_TOPIC if topic is None else self.topics.add(topic))
        return self.append_draft(draft, ack=ack)

    def append_draft(self, draft: Draft, *, ack: Ack | str | None = None) -> range:
        """Append a draft, all or none, and return its offsets; see `append`."""
        level = self._store.config.ack if ack is None else ack
        if (
            type(level) is not Ack
        ):  # asking the enumeration takes a quarter of a microsecond also for a member
            level = Ack(level)
        if level is Ack.MEMORY:
            raise ValueError("a record has no offset at level 'memory'; use submit, or ack='written'")
        draft.check(self.config.record_bytes, len(self._topic_names))
        if self._appender.unsynced_bytes >= self._store.config.queue_bytes:
            # The disk takes less than is appended: waiting for it bounds what is in memory until it is durable.
            self._sync_to(self._end_offset)
        with self._write_lock:
            self._write_queued_locked()
            first = self._write_locked(draft)
        if level is Ack.SYNCED:
            self._sync_to(first + draft.count)
        else:
            self._store.committer.expect_sync(self)
        return range(first, first + draft.count)

    def append_now(self, draft: Draft) -> range | None:
        """Append a small draft at level `written` in the caller's thread if nothing suggests that this would wait for
        the disk or for somebody; None otherwise: then `submit` it. For event loops: it spares them two hand-overs
        (docs/decisions/0016-direct-writes.md). Errors as `append_draft`."""
        draft.check(self.config.record_bytes, len(self._topic_names))
        if not self._write_lock.acquire(False):  # by keyword it takes longer
            return None
        try:
            # While a flush is under way nothing: it may be one of much, because nobody waits for it.
            first = None if self._sync_lock.locked() else self._write_now_locked(draft)
        finally:
            self._write_lock.release()
        if first is None:
            return None
        self._store.committer.expect_sync(self)
        return range(first, first + draft.count)

    def submit(
        self, draft: Draft, *, ack: Ack | str, done: Callable[[Submission], None] | None = None
    ) -> Submission:
        """Hand over a draft without waiting for the disk; for event loops. Drafts are written in the order of
        submission: at level `synced` by the caller's thread where `append_now` would, so that readers have them at once
        and only the flush is left to the committer.

        `done` is called once the level is reached or the append failed (`submission.error`), by the caller's thread
        or by the committer's, which it must not block.

        Raises QueueFull while more than `queue_bytes` wait for the disk (`queued_bytes` says how much), whatever
        the level; RecordTooLarge, LogFailed, StoreClosed; TypeError for what is no Draft. Nothing was submitted then.
        """
        if not isinstance(draft, Draft):
            raise TypeError(f"what is submitted is a Draft, not {type(draft).__name__}")
        self._check_appendable()
        draft.check(self.config.record_bytes, len(self._topic_names))
        submission = Submission(draft, Ack(ack), done)
        if submission.ack is not Ack.SYNCED or not self._write_now(submission):
            self._queue.put(submission)
        self._store.committer.expect_write(self)
        if submission.ack is Ack.MEMORY:
            submission.resolve()
        return submission

    @property
    def queued_bytes(self) -> int:
        """What was submitted and is not written yet, as memory."""
        return self._queue.queued_bytes

    def topic_id(self, topic: str) -> int:
        """The id of a topic in this log, a new one when needed. Raises InvalidName, TopicLimit."""
        return self.topics.add(topic)

    def topic_name(self, topic_id: int) -> str | None:
        """The topic with this id, or None."""
        return self.topics.name(topic_id)

    def sync(self) -> int:
        """Make everything written so far durable; returns the offset below which it is. Raises LogFailed,
        StoreClosed, and OSError for what an earlier process has left: try again."""
        self.check_open()
        with self._write_lock:
            self._write_queued_locked()
        self._sync_to(self._end_offset)
        return self.synced_offset

    def check_open(self) -> None:
        """Raise StoreClosed once the store is closed, or the log deleted."""
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> StoreClosed:
        return StoreClosed(f"log {self.folder.name} {'was deleted' if self._deleted else 'is closed'}")

    def _check_appendable(self) -> None:
        self.check_open()
        if self._failure is not None:
            raise self._failure.again()

    # For the committer.

    def write_queued(self) -> None:
        """Write everything submitted. Errors go to the submissions they concern."""
        if self._queue.queued_bytes:
            with self._write_lock:
                self._write_queued_locked()

    @property
    def awaited(self) -> bool:
        """Somebody waits for a flush."""
        return bool(self._unsynced)

    @property
    def gathers(self) -> bool:
        """The next flush is worth waiting for: more is about to come (`FlushGroups`)."""
        return self._queue.queued_bytes < self.flush_groups.missing_bytes

    @property
    def sync_wanted(self) -> bool:
        """Somebody waits for a flush, or so much is unsynced that it is time."""
        return bool(self._unsynced) or self._appender.unsynced_bytes >= self._store.config.sync_interval_bytes

    @property
    def sync_overdue(self) -> bool:
        """So much has gathered since the last flush began that the next one should have begun long ago."""
        return self._appender.unsynced_bytes >= 2 * self._store.config.sync_interval_bytes

    @property
    def dirty(self) -> bool:
        """Something written is not yet durable."""
        return self.synced_offset < self._end_offset and self._failure is None

    def sync_queued(self) -> None:
        """Flush for everybody who waits. Errors go to the submissions they concern."""
        try:
            self._sync_to(self._end_offset)
        except (LogFailed, StoreClosed):
            return  # each waiting submission got it

    def close(self) -> None:
        """Write and sync what was submitted, seal, wake everybody. Called by `Store.close`."""
        if self._closed:
            return
        try:
            if self._failure is None:
                self.write_queued()
                self.settle()
                self._sync_to(self._end_offset)
        finally:
            with self._sync_lock, self._write_lock:
                self._closed = True
                self._roll_locked()
                self._fail_waiting(self._closed_error())
            _wake(self.wakeups.wake_all(self._end_offset))

    def delete(self, note: Callable[[], None]) -> None:
        """End for good once `note` has returned, which makes it durable that the log is deleted; wake everybody, let go
        of all files. If `note` raises, nothing has happened. Called by `Store.delete_log`."""
        with self.rewrites.lock, self._sync_lock, self._write_lock:
            self.check_open()
            note()
            self._closed = self._deleted = True
            segments = self.history.segments
            writers = self._appender.give_up()
            self._start_offset = self._end_offset
            self._fail_waiting(self._closed_error())
        _wake(self.wakeups.wake_all(self._end_offset))
        for segment in segments:
            self._store.open_segments.forget(segment)
        self.compression.close()
        self.compaction.close()
        self._store.sealer.settle()
        for writer in writers:
            writer.close()
        self.topics.close()

    def abandon(self) -> None:
        """Refuse everything from now on, without touching the disk: this is the copy in a forked child."""
        self._closed = True
        # Threads that there are no more may have held them.
        self._write_lock, self._sync_lock = threading.Lock(), threading.Lock()
        self.topics.abandon()

    def release(self) -> None:
        """Let go of all files. After `close` and the last seal."""
        self._appender.release()
        self.topics.close()

    def _write_now(self, submission: Submission) -> bool:
        """Write what is to be flushed in the caller's thread, as `append_now` does, but beside a small flush as well.
        False: nothing has happened. An error goes to the submission."""
        if not self._write_lock.acquire(False):
            return False
        try:
            first = None if self._is_behind else self._write_now_locked(submission.draft)
            if first is None:
                return False
            self._written_locked(submission, first)
        except Exception as error:
            failure = error
        else:
            return True
        finally:
            self._write_lock.release()
        submission.resolve(failure)
        return True

    @property
    def _is_behind(self) -> bool:
        """A write would perhaps have to wait for what is being flushed, or more waits for that than is good."""
        flush_bytes = self._flush_bytes if self._sync_lock.locked() else 0
        return max(flush_bytes, self.flush_groups.awaited_bytes) > _SMALL_FLUSH_BYTES

    # Writing, under the write lock.

    def _write_now_locked(self, draft: Draft) -> int | None:
        """Write and publish a draft if nothing suggests that this would wait; returns its first offset."""
        if (
            self._queue.queued_bytes  # somebody came first
            or self.topics.has_unwritten
            or self._closed
            or draft.size_bytes + draft.count * ENTRY_BYTES > MOST_BYTES
            or (began_s := self._direct_writes.now_s()) < self._direct_writes.paused_until_s
        ):
            return None
        return self._write_prepared_locked(draft, began_s)

    def _written_locked(self, submission: Submission, first: int) -> None:
        """It lies there. Told again, nothing changes."""
        if submission.ack is Ack.SYNCED and not submission.offsets:
            self._unsynced.append(submission)
            self.flush_groups.written(submission.memory_bytes)
        submission.offsets = range(first, first + submission.draft.count)
        if submission.ack is not Ack.SYNCED:
            submission.resolve()

    def _write_queued_locked(self) -> None:
        """Write what was submitted: neighbours together, one system call for records and one for entries."""
        for group in self._queue.groups():
            first = None
            try:
                first = self._write_locked(Draft.joined([submission.draft for submission in group]))
                self._written_group_locked(group, first)
            except BaseException as error:
                if first is not None:  # Ctrl-C, in the middle of telling those who wait
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

    def _write_locked(self, draft: Draft) -> int:
        """Write and publish a draft; returns its first offset."""
        self._check_appendable()
        if draft.count == 0:
            return self._end_offset
        self._unchecked_bytes += draft.size_bytes
        if self._unchecked_bytes >= self._check_bytes:
            self._check_space_locked(draft.size_bytes)
        rolled_count, growing_base = self._appender.rolled_count, self._appender.growing_base
        try:
            self._appender.settle()
            self.topics.write_added()
            run = self._appender.write(draft)
            self._publish_locked(run, draft)
        except BaseException as error:
            self._judge_locked(error)
            raise
        finally:
            if self._appender.rolled_count > rolled_count:
                self._store.sealer.expect(self)
        if self._appender.growing_base != growing_base:
            self.retention.expect()
        return run.base_offset

    def _write_prepared_locked(self, draft: Draft, began_s: float) -> int | None:
        """As `_write_locked` if that takes two writes to files that are there and nothing else; None: nothing has
        happened."""
        if self._failure is not None:
            raise self._failure.again()
        if draft.count == 0:
            return self._end_offset
        self._unchecked_bytes += draft.size_bytes
        if self._unchecked_bytes >= self._check_bytes:
            self._check_space_locked(draft.size_bytes)
        appender, writes = self._appender, self._direct_writes
        epoch = appender.epoch
        try:
            run = appender.write_prepared(draft)
            if run is None:
                return None
            self._publish_locked(run, draft)
        except BaseException as error:
            self._judge_locked(error)
            raise
        finally:
            ended_s = writes.now_s()
            if ended_s - began_s > SLOW_S:
                writes.was_slow(began_s, ended_s)
        if appender.epoch != epoch:  # the growing segment is another one
            self._store.sealer.expect(self)
            self.retention.expect()
        return run.base_offset

    def _judge_locked(self, error: BaseException) -> None:
        """A write failed: may there be others? What is raised for it, if this does not."""
        if isinstance(error, RescueFailed):
            raise self._fail_locked(error) from error
        if isinstance(error, OSError):
            error.filename = error.filename or str(self.folder)  # the kernel does not say where
        elif not isinstance(error, Exception):
            self._regain_locked()

    def _roll_locked(self) -> None:
        if self._appender.roll():
            self._store.sealer.expect(self)

    def _publish_locked(self, run: TailRun, draft: Draft) -> None:
        """Make records visible: tail first, so that whoever sees the new end finds them there. This is where
        parked readers are woken."""
        self._tail.add(run)
        wakeups, growing = self.wakeups, self._appender.history.segments[-1]
        with wakeups.lock:
            end_offset = self._end_offset = self._appender.next_offset
            growing.count = end_offset - growing.base_offset
            woken = wakeups.published(run.base_offset, draft.topic_ids) if wakeups.parked else ()
        if woken:
            _wake(woken)

    def _check_space_locked(self, added_bytes: int) -> None:
        limit = self._store.config.min_free_bytes
        free = self._store.files.free_bytes(self.folder)
        if free < limit + added_bytes:
            raise StorageFull(self.folder, free, limit)
        self._unchecked_bytes = 0

    # Syncing.

    def _sync_to(self, end_offset: int) -> None:
        """Return once everything below `end_offset` is durable. One flush serves all who came before it
        began."""
        while self.synced_offset < end_offset:
            with self._sync_lock:
                if self.synced_offset >= end_offset:
                    break
                self._check_appendable()
                self._flush()
        self._resolve_synced()

    def _flush(self) -> None:
        """Make everything written durable. The caller holds the sync lock, not the write lock: appends go on
        while the disk works, and meet in the next flush. Raises LogFailed, OSError for leftovers."""
        self.settle()
        try:
            with self._write_lock:
                self._flush_bytes = self._appender.unsynced_bytes
                end_offset, marks = self._whole_locked(self._appender.begin_flush)
            self.topics.sync()
            self.flush_groups.begin()
            self._appender.flush(marks)
            self.flush_groups.end()
            with self._write_lock:
                self._whole_locked(partial(self._appender.end_flush, end_offset, marks))
        except OSError as error:
            with self._write_lock:
                self._rescue_locked(error, self.topics.rewrite)

    def _whole_locked(self, step: Callable[[], Result]) -> Result:
        """Take a step that must not be left in the middle."""
        try:
            return step()
        except Exception:
            raise
        except BaseException:
            self._regain_locked()
            raise

    def _rescue_locked(self, cause: OSError, renew_topics: Callable[[], None]) -> None:
        try:
            self._appender.doubt()
            renew_topics()
            self._appender.rescue(cause)
            self._store.sealer.expect(self)
            self._appender.trust()
        except (OSError, RescueFailed) as error:
            raise self._fail_locked(error) from error
        except BaseException:
            self._fail_locked(InterruptedError(_INTERRUPTED))
            raise

    def _regain_locked(self) -> None:
        """Somebody has pressed Ctrl-C, say, between two steps that belong together: what this process knows of its
        files may not be what is in them. So what is not published is forgotten, and what is not durable is written
        again, as after a failed flush. Waiting for the disk is not that: it can be interrupted freely."""
        cause = InterruptedError(_INTERRUPTED)
        self._tail = LogTail(self._store.tail_budget)
        with suppress(LogFailed):  # whoever comes next is told; this caller has been interrupted
            if not self._appender.back_to(self._end_offset):
                raise self._fail_locked(cause)
            self._rescue_locked(cause, self.topics.sync)
        _wake(self.wakeups.wake_all(self._end_offset))

    def _resolve_synced(self) -> None:
        synced: list[Submission] = []
        try:
            with self._write_lock:
                while self._unsynced and self._unsynced[0].offsets.stop <= self.synced_offset:
                    synced.append(self._unsynced[0])
                    self._unsynced.popleft()
                if synced:
                    answered_bytes = sum(submission.memory_bytes for submission in synced)
                    self.flush_groups.answered(answered_bytes, self._queue.queued_bytes)
            for submission in synced:
                submission.resolve()
        except BaseException:  # Ctrl-C, in the middle of telling those who wait
            for submission in synced:
                submission.resolve()
            raise

    # Failing and sealing.

    def _fail_locked(self, cause: Exception) -> LogFailed:
        """After a failed fsync that could not be made good, nobody knows what the disk holds: the log takes
        no more appends, and everybody who waits is told."""
        if self._failure is None:
            self._failure = LogFailed(self.folder, cause, range(self.synced_offset, self._end_offset))
            self._store.note(f"{self._failure}")
            self._fail_waiting(self._failure)
        return self._failure.again()

    def _fail_waiting(self, error: Exception) -> None:
        while self._unsynced:
            self._unsynced.popleft().resolve(error)
        self.flush_groups.failed()
        self._queue.fail(error)

    @property
    def failure(self) -> LogFailed | None:
        """Why the log takes no more appends, or None."""
        return self._failure

    @property
    def has_ended(self) -> bool:
        """The log takes no more appends: it has failed, or was closed or deleted."""
        return self._closed or self._failure is not None

    @property
    def has_leftovers(self) -> bool:
        """An earlier process has left segments that are not sealed yet."""
        return self._appender.has_leftovers

    def settle(self) -> None:
        """Flush and seal what an earlier process has left; nothing when that is done. Raises LogFailed, OSError."""
        with self._write_lock:
            if not self._appender.has_leftovers:
                return
            self._check_appendable()
            try:
                self._appender.settle()
            except RescueFailed as error:
                raise self._fail_locked(error) from error
        self.expect_upkeep()

    def seal_rolled(self) -> None:
        """Seal the segments that were left, and those that were rolled. Called by the sealer's thread; raises OSError,
        and can be called again."""
        if self._failure is None and not self._closed:
            self.settle()
        while self._failure is None and (writer := self._appender.oldest_rolled()) is not None:
            with self._sync_lock:
                if self.synced_offset < writer.end_offset:
                    self._flush()
            if writer is not self._appender.oldest_rolled():
                continue  # its flush failed, and another segment has its records now
            trailer = self._appender.seal(writer)
            self.retention.mark()
            with self._write_lock:
                self._appender.replace_sealed(writer, trailer)
            writer.close()
            self.expect_upkeep()
            self._store.note_time()

    # Keeping and deleting: see Retention.

    def configure(self, **settings: Any) -> LogConfig:
        """Change settings of this log for good, fields of LogConfig, and return all of them. `topic_count`
        and `topic_bytes` count from the next open on, a limit of segments from the next append on.

        Raises ValueError or TypeError for what is no setting, OSError, StoreClosed; nothing has changed then.
        """
        # The lock also round the catalogue, where recovery may be noting an offset beside the settings.
        with self._write_lock:
            self.check_open()
            config = with_settings(self.config, settings)
            self._store.remember(self, config)
            self.config = config
            self._appender.configure(config)
        self.expect_upkeep()
        return config

    def expect_upkeep(self) -> None:
        """There may be something to delete, to compress or to compact: look, in the background."""
        self.retention.expect()
        self.compression.expect()
        self.compaction.expect()

    def apply_retention(self) -> int:
        """Delete now what `retention_ms` and `retention_bytes` allow, and return how many segments went. Happens
        in the background anyway. Raises OSError, StoreClosed."""
        self.check_open()
        return self.retention.apply()

    def apply_compression(self) -> int:
        """Compress now the sealed segments that `compression` wants compressed, and return how many were. Happens in
        the background anyway. Raises OSError, StoreClosed."""
        self.check_open()
        return self.compression.apply()

    def apply_compaction(self) -> int:
        """Compact the sealed segments now, as fast as it goes, and return how many records were removed. Happens in
        the background anyway, in a log with `compact`. Raises OSError, StoreClosed."""
        self.check_open()
        return self.compaction.apply()

    def roll(self) -> None:
        """Have the growing segment sealed now, in the background; the next append begins another. Raises
        StoreClosed."""
        with self._write_lock:
            self.check_open()
            self._roll_locked()

    @property
    def growing_base(self) -> int | None:
        """The base offset of the growing segment; None when there is none with a record."""
        return self._appender.growing_base

    @property
    def unsealed_bytes(self) -> int:
        """What the segments that are not sealed take."""
        with self._write_lock:
            return self._appender.unsealed_bytes

    def remember(self) -> None:
        """Make the next offset durable in the catalogue, because no segment will tell it. Raises OSError."""
        self._store.remember(self, self.config)

    def drop(self, segments: Sequence[Segment]) -> None:
        """Segments at the front were deleted."""
        if not segments:
            return
        with self._write_lock:
            gone = set(segments)
            left = next((segment for segment in self.history.segments if segment not in gone), None)
            # The start before the history: whoever sees the new history, sees the new start.
            self._start_offset = left.base_offset if left else self._end_offset
            self._appender.drop(segments)
        for segment in segments:
            self._store.open_segments.forget(segment)

    def read_compacted(self, end_offset: int) -> None:
        """From now on, read what lies below an offset from the files: what the tail still has of it is not
        compacted, and a reader that changes over in the middle would miss the tombstone of what it has seen."""
        self._compacted_to = max(self._compacted_to, end_offset)

    def exchange(self, segment: Segment, trailer: Trailer) -> None:
        """The files of a sealed segment were rewritten: serve it from the new ones, of which this is the trailer."""
        with self._write_lock:
            self._appender.replace(segment, trailer)

    def _moved_on(self, history: History, offset: int, error: FileNotFoundError) -> None:
        self.rewrites.settle()
        super()._moved_on(history, offset, error)


def _wake(woken: Iterable[tuple[Waiter, int]]) -> None:
    for waiter, first_offset in woken:
        try:
            waiter.wake(first_offset)
        except Exception:
            # The append has happened and other readers wait: a reader's mistake is its own.
            _LOGGER.exception("a reader could not be woken")
