"""A log that this process owns: its interface, and the wiring of its parts.

Appending is done by `LogEnd` (the write lock), waiting and flushing by `LogCommit` (the sync lock), background work by
`timestone.upkeep`. Locks are always taken in this order: `sync_lock`, `LogEnd.lock`, `wakeups.lock` (the published end
and the parked readers; held for microseconds, the only one that an event loop waits for)."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from timestone.commit.background import Sealer
from timestone.commit.committer import Committer
from timestone.commit.log_commit import LogCommit
from timestone.commit.submission import Submission
from timestone.config import Ack, LogConfig, with_settings
from timestone.errors import LogFailed, StoreClosed
from timestone.index import Trailer
from timestone.kernel import loops
from timestone.kernel.entries import NO_TOPIC
from timestone.metrics.log_counts import LogCounts
from timestone.readable import ReadableLog
from timestone.reading.named_readers import ReaderStore
from timestone.reading.remote_history import reaching
from timestone.reading.segment_list import SegmentList
from timestone.reading.tail_cache import TailBudget, TailCache, TailRun
from timestone.reading.wakeups import Woken
from timestone.record import as_bytes, as_whole, encode_headers, user_headers
from timestone.recovery.log_opener import OpenedLog
from timestone.segment import Segment
from timestone.upkeep.compaction import LogCompaction
from timestone.upkeep.compression import LogCompression
from timestone.upkeep.host import UpkeptStore
from timestone.upkeep.retention import Retention
from timestone.upkeep.segment_rewrites import Rewrites
from timestone.writing.active_segment import ActiveSegment
from timestone.writing.log_end import LogEnd
from timestone.writing.write_batch import Data, WriteBatch, check_write_batch, checked_flags, checked_list

_LEVELS = {level.value: level for level in Ack}
_MEMORY = Ack.MEMORY
"""Used for each append: access to a global name is faster than access to a member of an enumeration."""


class LogOwner(UpkeptStore, ReaderStore, Protocol):
    """Store of a log, as the log sees it. Implemented by `timestone.store.Store`."""

    tail_budget: TailBudget
    committer: Committer
    sealer: Sealer

    def remember(self, log: "Log", config: LogConfig) -> None: ...
    def note(self, text: str) -> None: ...


class Log(loops.Published, ReadableLog):
    """One partition of a log in an open store. Made by `Store.log`; any thread may call every method."""

    _active_segment: ActiveSegment
    _end: LogEnd
    _commit: LogCommit
    _tail: TailCache
    _segments_type, _end_type, _retention_type, _rewrites_type = ActiveSegment, LogEnd, Retention, Rewrites

    def __init__(self, store: LogOwner, opened: OpenedLog, config: LogConfig) -> None:
        place, topics, recovered, segment_list = opened
        super().__init__(place.folder, topics, store)
        self.config = config
        self.config_checks: list[Callable[[LogConfig], None]] = []
        """Raise ValueError for settings that a user of the log could not work with, such as a front."""
        self._store = store
        self._active_segment = self._segments_type(
            place,
            config,
            segment_list,
            next_offset=recovered.next_offset,
            epoch=recovered.epoch,
            last_timestamp_us=recovered.last_timestamp_us,
            sync_topics=topics.sync,
            deferred_seals=recovered.deferred_seals,
            closed=recovered.closed,
        )
        self._end = self._end_type(
            self._active_segment,
            topics,
            self,
            place.files,
            place.folder,
            min_free_bytes=store.config.min_free_bytes,
        )
        self._commit = LogCommit(self._end, store.config, store.committer, events=self, log=place.folder.name)
        self._start_offset = segment_list.start(recovered.next_offset)
        self._end_offset = self._opened_offset = recovered.next_offset
        self._tail = TailCache(store.tail_budget)
        self._compacted_to = 0
        self.rewrites = self._rewrites_type(self, store)
        self.retention = self._retention_type(self, store)
        self.compression = LogCompression(self, store)
        self.compaction = LogCompaction(self, store)

    # Reading: see ReadableLog.

    @property
    def segment_list(self) -> SegmentList:
        return self._active_segment.segment_list

    @property
    def synced_offset(self) -> int:
        return self._active_segment.synced_offset

    @property
    def next_offset(self) -> int:
        """Return the next offset for the catalogue."""
        return self._end_offset

    @property
    def epoch(self) -> int:
        """Return a number that rises whenever offsets may have been lost or records were moved to another segment."""
        return self._active_segment.epoch

    @property
    def _memory_offset(self) -> int:
        return max(self._tail.first_offset, self._compacted_to)

    def _in_tail(self, offset: int) -> TailRun | None:
        return self._tail.find(offset) if offset >= self._compacted_to else None

    def _gathered(self, offset: int, max_records: int, max_bytes: int) -> list[TailRun]:
        return self._tail.gather(offset, max_records, max_bytes) if offset >= self._compacted_to else []

    # Appending.

    def append(
        self,
        payload: Data,
        *,
        topic: str | None = None,
        headers: Sequence[tuple[str, Data]] = (),
        flags: int = 0,
        ack: Ack | str | None = None,
    ) -> int:
        """Append one record and return its offset, once it is `written` or `synced` (default: the store's setting).

        `written`: visible to readers, survives kill -9. `synced`: survives power loss. After an error nothing was
        appended, except for LogFailed at level `synced`: the record may be visible, and its durability is unknown. At
        level `written` the call waits for the disk once `queue_bytes` were written since a flush began.

        Raises RecordTooLarge, TopicLimit, InvalidName, StorageFull, LogFailed, StoreClosed, OSError."""
        offset = self._commit.append_single(payload, topic, headers, flags, ack)
        if offset is not None:
            return offset
        if type(payload) is not bytes:
            payload = as_bytes(payload, "payload")
        header_length = 0
        if headers:
            block = encode_headers(user_headers(headers))
            payload, header_length = block + payload, len(block)
        topic_id = NO_TOPIC if topic is None else self.topics.add(topic)
        return self._append(WriteBatch.single(payload, topic_id, checked_flags(flags), header_length), ack)

    def append_many(
        self,
        payloads: Sequence[Data],
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
                raise ValueError(
                    "invalid topics: expected `topic` for all records or `topics` with one for each, got both"
                )
            payloads, topics = checked_list("payloads", payloads), checked_list("topics", topics)
            if len(topics) != len(payloads):
                raise ValueError(
                    f"invalid topics: expected {len(payloads)}, one for each payload, got {len(topics)}"
                )
            write_batch = WriteBatch(payloads, self.topics.add_all(topics))
        else:
            first = self._commit.append_gathered(payloads, topic, ack)
            if first is not None:
                return range(first, first + len(payloads))
            write_batch = WriteBatch(payloads, NO_TOPIC if topic is None else self.topics.add(topic))
        return self.append_batch(write_batch, ack=ack)

    def append_batch(self, write_batch: WriteBatch, *, ack: Ack | str | None = None) -> range:
        """Append a write batch, all records or none, and return their offsets; levels and errors as `append`."""
        check_write_batch(write_batch)
        first = self._append(write_batch, ack)
        return range(first, first + write_batch.count)

    def _append(self, write_batch: WriteBatch, ack: Ack | str | None) -> int:
        if type(ack) is Ack:
            level = ack
        else:  # asking the enumeration takes half a microsecond
            level = self._store.config.ack if ack is None else _level(ack)
        if level is _MEMORY:
            raise ValueError(
                "invalid ack 'memory': expected 'written' or 'synced'; use submit, which returns no offset"
            )
        if self._closed:
            self.check_open()  # without the lock: at the exit of the interpreter a stopped thread may hold it
        write_batch.check(self.config.record_bytes, len(self.topics))
        return self._commit.append(write_batch, level)

    def submit(
        self,
        write_batch: WriteBatch,
        *,
        ack: Ack | str,
        done: Callable[[Submission], None] | None = None,
        woken: list[Woken] | None = None,
    ) -> Submission:
        """Queue a write batch without waiting for the disk; for event loops.

        Batches are written in order: at level `synced` by the caller's thread where `append_now` would write, so that
        readers have them at once. `done` is called once the level is reached or the append has failed
        (`submission.error`), by the caller's thread or by the committer's, which it must not block. woken: see
        `append_now`. Raises QueueFull while more than `queue_bytes` wait for the disk (see `queued_bytes`), at any
        level; RecordTooLarge, LogFailed, StoreClosed; TypeError for another type. Then nothing is submitted."""
        check_write_batch(write_batch)
        if done is not None:
            _check_call(done)
        self._end.check_appendable()
        write_batch.check(self.config.record_bytes, len(self.topics))
        return self._commit.submit(write_batch, ack if type(ack) is Ack else _level(ack), done, woken)

    def when_synced(self, offset: int, done: Callable[[Exception | None], None]) -> None:
        """Call `done`, with the error of the flush or None, once everything below `offset`, which is written, is
        durable; at once in the caller's thread, or later in the committer's. Raises as `submit`."""
        offset = as_whole(offset, "offset")
        _check_call(done)
        if self.synced_offset >= offset:
            done(None)
        else:
            # An empty batch is durable with all that was written before it.
            self.submit(WriteBatch(()), ack=Ack.SYNCED, done=lambda submission: done(submission.error))

    @property
    def queued_bytes(self) -> int:
        """Return the memory in bytes of what was submitted and is not written yet."""
        return self._commit.queued_bytes

    @property
    def flush_s(self) -> float:
        """Return the duration in seconds of the flush under way, or of the last one if it has just ended; 0 while the
        disk is idle."""
        return self._commit.flush_s

    @property
    def counts(self) -> LogCounts:
        """Return the counts of appends since the log was opened. The histograms continue to change."""
        end, count = self._end, self._end_offset - self._opened_offset
        return LogCounts(count, end.written_bytes, end.writes, self._commit.flushes)

    def topic_id(self, topic: str) -> int:
        """Return the id of a topic in this log, and assign one to a new topic. Raises InvalidName, TopicLimit."""
        return self.topics.add(topic)

    def topic_name(self, topic_id: int) -> str | None:
        """Return the topic with this id, or None."""
        return self.topics.name(as_whole(topic_id, "topic_id"))

    def sync(self) -> int:
        """Make everything written durable, and return the offset below which it is. Raises as `append`."""
        self.check_open()
        self._commit.sync()
        return self.synced_offset

    def check_open(self) -> None:
        """Raise StoreClosed once the store is closed, or the log deleted."""
        if self._end.closed is not None:
            self._end.check_open(": the interpreter is shutting down" if sys.is_finalizing() else "")

    def close(self) -> None:
        """Write and sync what was submitted, seal, wake all parked readers. Called by `Store.close`."""
        if self._closed:
            return
        try:
            self._commit.close(StoreClosed(f"log {self.folder.name} is closed"))
        finally:
            self._closed = True
            self.wakeups.wake(self.wakeups.wake_all(self._end_offset))

    def delete(self, note: Callable[[], None]) -> None:
        """Close the log for good once `note` has returned, which makes the deletion durable; wake all parked readers
        and close all files. If `note` raises, the log is unchanged. Called by `Store.delete_log`."""
        with self.rewrites.lock:
            segments, writers = self._commit.delete(note, StoreClosed(f"log {self.folder.name} was deleted"))
            self._closed = True
            self._start_offset = self._end_offset
            self._history = None
        self.wakeups.wake(self.wakeups.wake_all(self._end_offset))
        for segment in segments:
            self._store.open_segments.forget(segment)
        self.compression.close()
        self.compaction.close()
        self._store.sealer.settle()
        for writer in writers:
            writer.close()
        self.topics.close()

    def abandon(self) -> None:
        """Refuse every call from now on, without touching the disk; for a forked child."""
        self._closed = True
        self._end.abandon(StoreClosed(f"log {self.folder.name} is closed"))
        self._commit.abandon()
        self.topics.abandon()

    def release(self) -> None:
        """Close all files. Called after `close` and the last seal."""
        self._active_segment.release()
        self.topics.close()

    # Events of the end of the log: see EndEvents.

    @property
    def written_offset(self) -> int:
        return self._end_offset

    def begin_at(self, start: int) -> None:
        """Begin at another offset on the disk. What lies in front is not gone while a bucket may have it."""
        tier = self._store.tier
        if tier is not None and tier.keeps(self.name) and not self.config.compact:
            self.await_history(start)
        self._start_offset = start
        if tier is not None:
            tier.look()

    def await_history(self, start: int) -> None:
        """Have reads from the end of the history to `start` raise HistoryUnavailable, until another is attached."""
        self._history = reaching(start, self._history, self.folder, self.id, self._store)

    def tail_lost(self) -> None:
        """Drop the tail cache; the newest records are read from the files again."""
        self._tail = TailCache(self._store.tail_budget)
        self.wakeups.wake(self.wakeups.wake_all(self._end_offset))

    def segment_rolled(self) -> None:
        """Have a rolled segment sealed in the background."""
        self._store.sealer.put(self._commit)

    def segment_began(self) -> None:
        """Have retention look at the age of the new segment."""
        self.retention.expect()

    def segment_sealing(self) -> None:
        """Note by when the records of a segment were appended."""
        self.retention.mark()

    def segment_sealed(self) -> None:
        """Have the sealed segment compressed, compacted and deleted when each is due."""
        self.expect_upkeep()
        self._store.note_time()
        if self._store.tier is not None:
            self._store.tier.look()

    def failed(self, failure: LogFailed) -> None:
        """Report a failure that no flush can repair, and answer all waiting callers with it."""
        self._store.note(f"{failure}")
        self._commit.fail_waiting(failure)

    @property
    def failure(self) -> LogFailed | None:
        """Return why the log takes no more appends, or None."""
        return self._end.failure

    @property
    def has_ended(self) -> bool:
        """Return whether the log takes no more appends: it has failed, or was closed or deleted."""
        return self._end.has_ended

    @property
    def has_deferred_seals(self) -> bool:
        """Return whether segments of an earlier process are still to be sealed."""
        return self._active_segment.has_deferred_seals

    def settle(self) -> None:
        """Flush and seal the segments left by an earlier process, if there are any. Raises LogFailed, OSError."""
        self._commit.settle()

    def seal_rolled(self) -> None:
        """Seal the segments left by an earlier process, and those that were rolled. Raises OSError; may then be called
        again."""
        self._commit.seal_rolled()

    # Keeping and deleting: see Retention.

    def configure(self, **settings: Any) -> LogConfig:
        """Change settings of this log permanently, and return all of them; the arguments are fields of LogConfig.

        `topic_count` and `topic_bytes` apply from the next open on, a limit of segments from the next append on. Raises
        ValueError or TypeError for an invalid setting, OSError, StoreClosed; nothing has changed then."""
        # The lock covers the catalogue too, where recovery may be noting an offset beside the settings.
        with self._end.lock:
            self.check_open()
            config = self.checked_config(settings)
            self._store.remember(self, config)
            self.config = config
            self._active_segment.configure(config)
        self.expect_upkeep()
        return config

    def checked_config(self, settings: Mapping[str, Any]) -> LogConfig:
        """Return the settings with some changed, without effect. Raises ValueError, TypeError for an invalid one."""
        config = with_settings(self.config, settings)
        for check in self.config_checks:
            check(config)
        return config

    def expect_upkeep(self) -> None:
        """Have retention, compression and compaction look for work, in the background."""
        self.retention.expect()
        self.compression.expect()
        self.compaction.expect()

    def apply_retention(self) -> int:
        """Delete now what `retention_ms` and `retention_bytes` allow, and return how many segments were deleted. Also
        runs in the background. Raises OSError, StoreClosed."""
        self.check_open()
        return self.retention.apply()

    def apply_compression(self) -> int:
        """Compress now the sealed segments selected by the setting `compression`, and return how many were compressed.
        Also runs in the background. Raises OSError, StoreClosed."""
        self.check_open()
        return self.compression.apply()

    def apply_compaction(self) -> int:
        """Compact the sealed segments now, at full speed, and return how many records were removed. Also runs in the
        background, in a log with `compact`. Raises OSError, StoreClosed."""
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
        """The base offset of the growing segment; None if there is none with a record."""
        return self._active_segment.growing_base

    @property
    def unsealed_bytes(self) -> int:
        """Return the bytes taken by segments that are not sealed."""
        with self._end.lock:
            return self._active_segment.unsealed_bytes

    def remember(self) -> None:
        """Make the next offset durable in the catalogue, for a log without a segment that records it. Raises
        OSError."""
        self._store.remember(self, self.config)

    def drop(self, segments: Sequence[Segment]) -> None:
        """Remove deleted segments at the front of the segment list."""
        if not segments:
            return
        with self._end.lock:
            left = self.segment_list.behind(set(segments))
            # Set before the segment list, so that readers of the new list find the new start.
            self._start_offset = left.start(self._end_offset)
            self._active_segment.drop(segments)
        for segment in segments:
            self._store.open_segments.forget(segment)

    def read_compacted(self, end_offset: int) -> None:
        """Read records below an offset from the files from now on. The tail cache has them uncompacted, and a reader
        that changed over in the middle would miss the tombstone of a record that it has seen."""
        self._compacted_to = max(self._compacted_to, end_offset)

    def exchange(self, segment: Segment, trailer: Trailer) -> None:
        """Serve a sealed segment from its rewritten files, whose trailer is given."""
        with self._end.lock:
            self._active_segment.replace(segment, trailer)

    def _moved_on(self, segment_list: SegmentList, offset: int | None, error: FileNotFoundError) -> None:
        self.rewrites.settle()
        super()._moved_on(segment_list, offset, error)


def _level(ack: object) -> Ack:
    """Return a level by its name. Raises ValueError."""
    found = _LEVELS.get(ack) if isinstance(ack, str) else None
    if found is None:
        raise ValueError(f"invalid ack: expected one of {', '.join(_LEVELS)}, got {ack!r:.60}")
    return found


def _check_call(done: object) -> None:
    if not callable(done):
        raise TypeError(f"invalid done: expected a function, got {done!r:.60}")
