"""A log that this process owns: its interface, and the wiring of its parts.

Appending is done by `LogEnd` (the write lock), waiting and flushing by `LogCommit` (the sync lock), background work by
`timestone.upkeep`. Locks are always taken in this order: `sync_lock`, `LogEnd.lock`, `wakeups.lock` (the published end
and the parked readers; held for microseconds, the only one that an event loop waits for)."""

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from timestone.commit.background_seal import Sealer
from timestone.commit.committer import Committer
from timestone.commit.log_commit import LogCommit
from timestone.commit.submission import Submission
from timestone.config import Ack, LogConfig, with_settings
from timestone.errors import LogFailed, StoreClosed
from timestone.format.topics import TopicDictionary
from timestone.index import Trailer
from timestone.kernel.entries import NO_TOPIC
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
from timestone.writing.active_segment import Appender, LogPlace
from timestone.writing.log_end import LogEnd
from timestone.writing.write_batch import Draft

_LOGGER = logging.getLogger("timestone")


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
        self._end = LogEnd(
            self._appender, topics, self, store.files, folder, min_free_bytes=store.config.min_free_bytes
        )
        self._commit = LogCommit(
            self._end, topics, store.config, store.committer, events=self, log=folder.name
        )
        self._start_offset = start_offset
        self._end_offset = next_offset
        self._tail = LogTail(store.tail_budget)
        self._compacted_to = 0
        self.rewrites = Rewrites(self, store)
        self.retention = Retention(self, store)
        self.compression = LogCompression(self, store)
        self.compaction = LogCompaction(self, store)

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
        if self._closed:
            self.check_open()  # without the lock: at the exit of the interpreter a stopped thread may hold it
        draft.check(self.config.record_bytes, len(self._topic_names))
        first = self._commit.append(draft, level)
        return range(first, first + draft.count)

    def append_now(self, draft: Draft) -> range | None:
        """Append a small draft at level `written` in the caller's thread if nothing suggests that this would wait for
        the disk or for somebody; None otherwise: then `submit` it. For event loops: it spares them two hand-overs
        (docs/decisions/0016-direct-writes.md). Errors as `append_draft`."""
        draft.check(self.config.record_bytes, len(self._topic_names))
        first = self._commit.append_inline(draft)
        return None if first is None else range(first, first + draft.count)

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
        self._end.check_appendable()
        draft.check(self.config.record_bytes, len(self._topic_names))
        return self._commit.submit(draft, Ack(ack), done)

    @property
    def queued_bytes(self) -> int:
        """What was submitted and is not written yet, as memory."""
        return self._commit.queued_bytes

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
        self._commit.sync()
        return self.synced_offset

    def check_open(self) -> None:
        """Raise StoreClosed once the store is closed, or the log deleted."""
        self._end.check_open(": the interpreter is shutting down" if sys.is_finalizing() else "")

    def _closed_error(self) -> StoreClosed:
        return StoreClosed(f"log {self.folder.name} is closed")

    def close(self) -> None:
        """Write and sync what was submitted, seal, wake all parked readers. Called by `Store.close`."""
        if self._closed:
            return
        try:
            self._commit.close(self._closed_error())
        finally:
            self._closed = True
            _wake(self.wakeups.wake_all(self._end_offset))

    def delete(self, note: Callable[[], None]) -> None:
        """End once `note` has returned, which makes it durable that the log is deleted; wake all parked readers and
        close all files. If `note` raises, nothing has happened. Called by `Store.delete_log`."""
        with self.rewrites.lock:
            segments, writers = self._commit.delete(note, StoreClosed(f"log {self.folder.name} was deleted"))
            self._closed = True
            self._start_offset = self._end_offset
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
        self._end.abandon(self._closed_error())
        self._commit.abandon()
        self.topics.abandon()

    def release(self) -> None:
        """Close all files. After `close` and the last seal."""
        self._appender.release()
        self.topics.close()

    # Events of the end of the log: see EndEvents.

    def published(self, run: TailRun, draft: Draft, end_offset: int) -> None:
        """Make records visible: tail first, so that a reader that sees the new end finds them there. This is where
        parked readers are woken."""
        self._tail.add(run)
        wakeups, growing = self.wakeups, self._appender.history.segments[-1]
        with wakeups.lock:
            self._end_offset = end_offset
            growing.count = end_offset - growing.base_offset
            woken = wakeups.published(run.base_offset, draft.topic_ids) if wakeups.parked else ()
        if woken:
            _wake(woken)

    def tail_lost(self) -> None:
        """Read the newest records from the files again."""
        self._tail = LogTail(self._store.tail_budget)
        _wake(self.wakeups.wake_all(self._end_offset))

    def segment_rolled(self) -> None:
        """Have a rolled segment sealed in the background."""
        self._store.sealer.expect(self._commit)

    def segment_began(self) -> None:
        """Have retention look at the age of the new segment."""
        self.retention.expect()

    def segment_sealing(self) -> None:
        """Note by when the records of a segment were appended."""
        self.retention.mark()

    def segment_sealed(self) -> None:
        """Have the segment compressed, compacted and deleted in time."""
        self.expect_upkeep()
        self._store.note_time()

    def failed(self, failure: LogFailed) -> None:
        """Report a failure that no flush can make good, and answer all that wait."""
        self._store.note(f"{failure}")
        self._commit.fail_waiting(failure)

    @property
    def failure(self) -> LogFailed | None:
        """Why the log takes no more appends, or None."""
        return self._end.failure

    @property
    def has_ended(self) -> bool:
        """The log takes no more appends: it has failed, or was closed or deleted."""
        return self._end.has_ended

    @property
    def has_leftovers(self) -> bool:
        """An earlier process has left segments that are not sealed yet."""
        return self._appender.has_leftovers

    def settle(self) -> None:
        """Flush and seal what an earlier process has left; nothing when that is done. Raises LogFailed, OSError."""
        self._commit.settle()

    def seal_rolled(self) -> None:
        """Seal the segments that an earlier process left, and those that were rolled. Raises OSError, and can be called
        again."""
        self._commit.seal_rolled()

    # Keeping and deleting: see Retention.

    def configure(self, **settings: Any) -> LogConfig:
        """Change settings of this log for good, fields of LogConfig, and return all of them. `topic_count`
        and `topic_bytes` count from the next open on, a limit of segments from the next append on.

        Raises ValueError or TypeError for what is no setting, OSError, StoreClosed; nothing has changed then.
        """
        # The lock also round the catalogue, where recovery may be noting an offset beside the settings.
        with self._end.lock:
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
        with self._end.lock:
            self.check_open()
            self._end.roll_locked()

    @property
    def growing_base(self) -> int | None:
        """The base offset of the growing segment; None when there is none with a record."""
        return self._appender.growing_base

    @property
    def unsealed_bytes(self) -> int:
        """What the segments that are not sealed take."""
        with self._end.lock:
            return self._appender.unsealed_bytes

    def remember(self) -> None:
        """Make the next offset durable in the catalogue, because no segment will tell it. Raises OSError."""
        self._store.remember(self, self.config)

    def drop(self, segments: Sequence[Segment]) -> None:
        """Segments at the front were deleted."""
        if not segments:
            return
        with self._end.lock:
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
        with self._end.lock:
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
