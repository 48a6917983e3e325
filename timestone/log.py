"""A log that this process owns: append, roll, sync.

Locks, always taken in this order: `_sync_lock` (one flush at a time), `_write_lock` (one writer at a time),
`wakeups.lock` (the published end and the parked readers; held for microseconds, the only one that an event
loop may take).

An append goes: drafts → one pwrite of records, one of entries → tail → the published end rises → readers
wake. Those who wait for `synced` then meet at `_sync_lock`: whoever gets it flushes for all that were written
before."""

import collections
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from timestone.config import Ack, LogConfig
from timestone.draft import Draft
from timestone.entries import ENTRY, NO_TOPIC
from timestone.errors import LogFailed, RecordTooLarge, StorageFull, StoreClosed
from timestone.history import History
from timestone.index import IndexHeader, Trailer
from timestone.readable import ReadableLog
from timestone.record import Header, HeaderKind, encode_headers
from timestone.rescue import put_pair_aside, rewrite
from timestone.segment import Segment
from timestone.segment_writer import FailedFlush, HalfWritten, SegmentWriter
from timestone.submission import Submission
from timestone.tail import LogTail, TailRun
from timestone.topics import TopicDictionary
from timestone.wakeups import Waiter, Wakeups

if TYPE_CHECKING:
    from timestone.store import Store

_LOGGER = logging.getLogger("timestone")
_POSITION_MAX = 2**32 - 1
_COMBINED_BYTES = 8 * 1024 * 1024
"""Drafts that wait together are written together up to this size: more would only delay the first of them."""
_FREE_CHECK_BYTES = 4 * 1024 * 1024
"""Free space is looked at once per this much written: a statvfs a batch would cost as much as the batch."""


class Log(ReadableLog):
    """One partition of a log in an open store. Made by `Store.log`; every method may be called by any
    thread."""

    def __init__(
        self,
        store: "Store",
        folder: Path,
        topics: TopicDictionary,
        config: LogConfig,
        history: History,
        *,
        start_offset: int,
        next_offset: int,
        epoch: int,
        last_timestamp_us: int,
    ) -> None:
        self.name = topics.identity.name
        self.partition = topics.identity.partition
        self.id = topics.identity.log_id
        self.topics = topics
        self.wakeups = Wakeups(topics)
        self.config = config
        self.epoch = epoch
        self.folder = folder
        self._store = store
        self._history = history
        self._start_offset = start_offset
        self._end_offset = next_offset
        self._synced_offset = next_offset
        self._last_timestamp_us = last_timestamp_us
        self._tail = LogTail(store.tail_budget)
        self._writer: SegmentWriter | None = None
        self._rolled: list[SegmentWriter] = []
        self._queue: collections.deque[Submission] = collections.deque()
        self._unsynced: collections.deque[Submission] = collections.deque()
        self._unsynced_runs: collections.deque[TailRun] = collections.deque()
        """What no flush has covered yet: after a failed one it is written again from here."""
        self._unsynced_bytes = 0
        self._unchecked_bytes = _FREE_CHECK_BYTES
        self._write_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._failure: LogFailed | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Log {self.name}-{self.partition}: offsets [{self.start_offset}, {self.end_offset})>"

    # Reading: see ReadableLog.

    @property
    def history(self) -> History:
        return self._history

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def synced_offset(self) -> int:
        return self._synced_offset

    def _in_tail(self, offset: int) -> TailRun | None:
        return self._tail.find(offset)

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
        unknown.

        Raises RecordTooLarge, TopicLimit, InvalidName, StorageFull, LogFailed, StoreClosed, OSError.
        """
        block = (
            encode_headers(Header(HeaderKind.USER, name, value) for name, value in headers)
            if headers
            else b""
        )
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
        if topics is not None and len(topics) != len(payloads):
            raise ValueError(f"{len(payloads)} payloads with {len(topics)} topics")
        if topics is not None:
            draft = Draft(payloads, [self.topics.add(one) for one in topics])
        else:
            draft = Draft(payloads, NO_TOPIC if topic is None else self.topics.add(topic))
        return self.append_draft(draft, ack=ack)

    def append_draft(self, draft: Draft, *, ack: Ack | str | None = None) -> range:
        """Append a draft, all or none, and return its offsets; see `append`."""
        level = self._store.config.ack if ack is None else Ack(ack)
        if level is Ack.MEMORY:
            raise ValueError("a record has no offset at level 'memory'; use submit, or ack='written'")
        draft.check(self.config.record_bytes)
        with self._write_lock:
            self._write_queued_locked()
            first = self._write_locked(draft)
        if level is Ack.SYNCED:
            self._sync_to(first + draft.count)
        else:
            self._store.committer.expect_sync(self)
        return range(first, first + draft.count)

    def submit(
        self, draft: Draft, *, ack: Ack | str, done: Callable[[Submission], None] | None = None
    ) -> Submission:
        """Hand over a draft without waiting for the disk; for event loops. Drafts are written in the order of
        submission.

        `done` is called once the level is reached or the append failed (`submission.error`): for `memory` at
        once by the caller's thread, else by the committer's, which it must not block.

        Raises RecordTooLarge, LogFailed, StoreClosed; nothing was submitted then.
        """
        self._check_appendable()
        draft.check(self.config.record_bytes)
        submission = Submission(draft, Ack(ack), done)
        self._queue.append(submission)
        self._store.committer.expect_write(self)
        if submission.ack is Ack.MEMORY:
            submission.resolve()
        return submission

    def topic_id(self, topic: str) -> int:
        """The id of a topic in this log, a new one when needed. Raises InvalidName, TopicLimit."""
        return self.topics.add(topic)

    def topic_name(self, topic_id: int) -> str | None:
        """The topic with this id, or None."""
        return self.topics.name(topic_id)

    def sync(self) -> int:
        """Make everything written so far durable; returns the offset below which it is. Raises LogFailed,
        StoreClosed."""
        self.check_open()
        with self._write_lock:
            self._write_queued_locked()
        self._sync_to(self._end_offset)
        return self._synced_offset

    def check_open(self) -> None:
        """Raise StoreClosed once the store is closed."""
        if self._closed:
            raise StoreClosed(f"log {self.name}-{self.partition} is closed")

    def _check_appendable(self) -> None:
        self.check_open()
        if self._failure is not None:
            raise self._failure.again()

    # For the committer.

    def write_queued(self) -> None:
        """Write everything submitted. Errors go to the submissions they concern."""
        with self._write_lock:
            self._write_queued_locked()

    @property
    def sync_wanted(self) -> bool:
        """Somebody waits for a flush, or so much is unsynced that it is time."""
        return bool(self._unsynced) or self._unsynced_bytes >= self._store.config.sync_interval_bytes

    @property
    def dirty(self) -> bool:
        """Something written is not yet durable."""
        return self._synced_offset < self._end_offset and self._failure is None

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
                self._sync_to(self._end_offset)
        finally:
            with self._sync_lock, self._write_lock:
                self._closed = True
                if self._writer is not None and self._writer.count == 0:
                    self._writer.remove_empty()
                    self._writer = None
                self._roll_locked()
                self._fail_waiting(StoreClosed(f"log {self.name}-{self.partition} is closed"))
            _wake(self.wakeups.wake_all(self._end_offset))

    def abandon(self) -> None:
        """Refuse everything from now on, without touching the disk: this is the copy in a forked child."""
        self._closed = True

    def release(self) -> None:
        """Let go of all files. After `close` and the last seal."""
        for writer in self._rolled:
            writer.close()
        self._rolled.clear()
        self.topics.close()

    # Writing, under the write lock.

    def _write_queued_locked(self) -> None:
        """Write what was submitted: neighbours together, one system call for records and one for entries."""
        while self._queue:
            group, size_bytes = [self._queue.popleft()], 0
            while self._queue and (size_bytes := size_bytes + group[-1].draft.size_bytes) < _COMBINED_BYTES:
                group.append(self._queue.popleft())
            try:
                first = self._write_locked(Draft.joined([submission.draft for submission in group]))
            except BaseException as error:
                failure = error if isinstance(error, Exception) else LogFailed(self.folder, error)
                for submission in group:
                    submission.resolve(failure)
                if not isinstance(error, Exception):
                    raise
                continue
            for submission in group:
                submission.offsets = range(first, first + submission.draft.count)
                first = submission.offsets.stop
                if submission.ack is Ack.SYNCED:
                    self._unsynced.append(submission)
                else:
                    submission.resolve()

    def _write_locked(self, draft: Draft) -> int:
        """Write and publish a draft; returns its first offset."""
        self._check_appendable()
        if draft.count == 0:
            return self._end_offset
        self._check_space_locked(draft.size_bytes)
        now_us = max(self._last_timestamp_us, self._store.now_us())
        writer = self._writer_for_locked(draft, now_us)
        self.topics.write_added()
        position = writer.size_bytes
        data = draft.data()
        entries = draft.entries(writer.seal, ordinal=writer.count, position=position, timestamp_us=now_us)
        first = writer.end_offset
        try:
            writer.raise_ceiling(first + draft.count)
            writer.write(data, entries)
        except (HalfWritten, FailedFlush) as error:
            self._rescue_locked(error)
            return self._write_locked(draft)
        self._last_timestamp_us = now_us
        self._unsynced_bytes += len(data) + len(entries)
        run = TailRun(first, entries, data, position)
        self._unsynced_runs.append(run)
        self._publish_locked(run)
        return first

    def _writer_for_locked(self, draft: Draft, now_us: int) -> SegmentWriter:
        """The growing segment, after a roll if the draft does not fit. A draft is never split: it is in one
        segment, so it is written whole or not at all."""
        config, writer = self.config, self._writer
        if draft.size_bytes > _POSITION_MAX:
            raise RecordTooLarge(draft.size_bytes, _POSITION_MAX, "batch")
        if writer is not None and writer.count:
            full = writer.size_bytes + draft.size_bytes > config.segment_bytes
            full = full or writer.count + draft.count > config.segment_entries
            if full or now_us - writer.header.created_us >= config.segment_age_ms * 1000:
                self._roll_locked()
                writer = None
        if writer is None:
            writer = self._created_locked(now_us)
        return writer

    def _created_locked(self, now_us: int) -> SegmentWriter:
        header = IndexHeader(self.id, self._end_offset, now_us, self.epoch, self._store.boot_id)
        writer = self._writer = SegmentWriter(self._store.files, self.folder, header)
        self._history = self._history.followed_by(self._new_segment(header.base_offset))
        return writer

    def _roll_locked(self) -> None:
        """Take the growing segment out of use; it is sealed in the background. The next append that needs one
        creates the next segment, so a log that falls silent has no empty files."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._rolled.append(writer)
            self._store.sealer.expect(self)

    def _publish_locked(self, run: TailRun) -> None:
        """Make records visible: tail first, so that whoever sees the new end finds them there. This is where
        parked readers are woken."""
        self._tail.add(run)
        topic_ids = np.frombuffer(run.entries, dtype=ENTRY)["topic"]
        with self.wakeups.lock:
            self._history.segments[-1].count = run.end_offset - self._history.segments[-1].base_offset
            self._end_offset = run.end_offset
            woken = self.wakeups.published(run.base_offset, topic_ids)
        _wake(woken)

    def _check_space_locked(self, added_bytes: int) -> None:
        self._unchecked_bytes += added_bytes
        limit = self._store.config.min_free_bytes
        if self._unchecked_bytes < min(_FREE_CHECK_BYTES, limit // 4) or not limit:
            return
        free = self._store.files.free_bytes(self.folder)
        if free < limit + added_bytes:
            raise StorageFull(self.folder, free, limit)
        self._unchecked_bytes = 0

    # Syncing.

    def _sync_to(self, end_offset: int) -> None:
        """Return once everything below `end_offset` is durable. One flush serves all who came before it
        began."""
        while self._synced_offset < end_offset:
            with self._sync_lock:
                if self._synced_offset >= end_offset:
                    break
                self._check_appendable()
                self._flush()
        self._resolve_synced()

    def _flush(self) -> None:
        """Flush every segment with unsynced records, oldest first, so that a durable record has only durable
        ones before it. The caller holds the sync lock."""
        with self._write_lock:
            end = self._end_offset
            writers = [*self._rolled, *([self._writer] if self._writer else [])]
            marks = [
                (writer, writer.count, writer.size_bytes)
                for writer in writers
                if writer.synced_count < writer.count
            ]
            self._unsynced_bytes = 0
        try:
            self.topics.sync()
        except OSError as error:
            with self._write_lock:
                failure = self._fail_locked(error)
            raise failure from error
        try:
            for writer, count, _ in marks:
                writer.flush(count)
            with self._write_lock:
                for writer, count, size_bytes in marks:
                    writer.note_synced(count, size_bytes)
        except OSError as error:
            with self._write_lock:
                self._rescue_locked(error)
            return
        self._synced_offset = end
        with self._write_lock:
            while self._unsynced_runs and self._unsynced_runs[0].base_offset < end:
                self._unsynced_runs.popleft()

    def _resolve_synced(self) -> None:
        synced = []
        with self._write_lock:
            while self._unsynced and self._unsynced[0].offsets.stop <= self._synced_offset:
                synced.append(self._unsynced.popleft())
        for submission in synced:
            submission.resolve()

    # Failing and sealing.

    def _rescue_locked(self, cause: Exception) -> None:
        """A flush failed, so nothing it covered counts any more: write the unsynced records again, into a new
        segment, and flush that. Raises LogFailed when the disk refuses this too."""
        first = self._synced_offset
        writers = [*self._rolled, *([self._writer] if self._writer else [])]
        poisoned = [writer for writer in writers if writer.end_offset > first or writer is self._writer]
        self.epoch += 1
        header = IndexHeader(self.id, first, self._store.now_us(), self.epoch, self._store.boot_id)
        try:
            for writer in poisoned:
                if writer.base_offset >= first:
                    put_pair_aside(self._store.files, self.folder, writer.base_offset)
            fresh = rewrite(self._store.files, self.folder, header, list(self._unsynced_runs))
        except (OSError, FailedFlush, HalfWritten) as error:
            raise self._fail_locked(cause) from error
        self._take_over_locked(poisoned, fresh)
        _LOGGER.error(
            "%s: %s; offsets from %d on were written again, in epoch %d",
            self.folder,
            cause,
            first,
            self.epoch,
        )

    def _take_over_locked(self, poisoned: list[SegmentWriter], fresh: SegmentWriter) -> None:
        """Let the new segment serve what the poisoned ones did."""
        kept = [segment for segment in self._history.segments if segment.end_offset <= fresh.base_offset]
        for segment in self._history.segments:
            if segment.base_offset < fresh.base_offset < segment.end_offset:
                kept.append(
                    self._new_segment(segment.base_offset, count=fresh.base_offset - segment.base_offset)
                )
        self._history = History([*kept, self._new_segment(fresh.base_offset, count=fresh.count)])
        self._rolled = [writer for writer in self._rolled if writer not in poisoned]
        for writer in poisoned:
            writer.close()
        self._writer = fresh
        self._unsynced_runs.clear()
        self._synced_offset = self._end_offset

    def _new_segment(self, base_offset: int, *, count: int = 0, trailer: Trailer | None = None) -> Segment:
        store = self._store
        return Segment(
            store.files, self.folder, base_offset, self.id, store.open_segments, count=count, trailer=trailer
        )

    def _fail_locked(self, cause: Exception) -> LogFailed:
        """After a write that could not be taken back, or a failed fsync, nobody knows what the disk holds:
        the log takes no more appends, and everybody who waits is told."""
        if self._failure is None:
            self._failure = LogFailed(self.folder, cause, range(self._synced_offset, self._end_offset))
            self._store.note(f"{self._failure}")
            self._fail_waiting(self._failure)
        return self._failure.again()

    def _fail_waiting(self, error: Exception) -> None:
        for waiting in (self._unsynced, self._queue):
            while waiting:
                waiting.popleft().resolve(error)

    @property
    def failure(self) -> LogFailed | None:
        """Why the log takes no more appends, or None."""
        return self._failure

    def seal_rolled(self) -> None:
        """Seal the segments that were rolled. Called by the sealer's thread; raises OSError, and can be
        called again."""
        while self._rolled and self._failure is None:
            with self._sync_lock:
                writer = self._rolled[0]
                if writer.synced_count < writer.count:
                    self._flush()
            trailer = writer.seal_files(self._store.now_us())
            with self._write_lock:
                self._rolled.remove(writer)
                self._replace_locked(writer, trailer)
            writer.close()

    def _replace_locked(self, writer: SegmentWriter, trailer: Trailer) -> None:
        old = next(segment for segment in self._history.segments if segment.base_offset == writer.base_offset)
        new = self._new_segment(old.base_offset, trailer=trailer)
        self._history = self._history.replaced(old, new)
        self._store.open_segments.forget(old)


def _wake(woken: Iterable[tuple[Waiter, int]]) -> None:
    for waiter, first_offset in woken:
        waiter.wake(first_offset)
