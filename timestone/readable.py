"""Reading of a log: the calls that the owner's `Log` and another process's `LogView` have in common. What belongs here:
ranges, the choice between tail cache and files, and filtering by topic. Where the segments and the end come from is
decided by the two classes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from timestone.errors import CorruptRecord, OffsetOutOfRange, OffsetsLost
from timestone.filters import checked_filters
from timestone.format.topics import TopicDictionary
from timestone.kernel import loops
from timestone.kernel.entries import Entries
from timestone.reader import READ_BYTES, READ_RECORDS, Reader, Start
from timestone.reading.batch import Batch, Columns
from timestone.reading.limits import chosen_within, filled, joined_runs, leaves_out
from timestone.reading.named_readers import NamedReaders, ReaderLag, ReaderStore
from timestone.reading.remote_history import RemoteHistory
from timestone.reading.retention_hold import Pin
from timestone.reading.segment_list import LostRange, SegmentList
from timestone.reading.tail_cache import (
    TailRun,
    entries_of,
    fitting_count,
    joined,
    joined_columns,
)
from timestone.reading.topic_mask import TopicMask
from timestone.reading.wakeups import Wakeups
from timestone.record import FLAG_REMOVED, Record, as_whole, time_us
from timestone.segment import RUN_RECORDS

_SCAN_RECORDS = 1 << 16
"""Maximum number of index entries that one step of a filtered read examines."""
_SMALL_RECORDS = 16
"""Runs of at most this many records are examined one by one: the fixed costs of numpy equal those of about twenty."""

T = TypeVar("T")
Numbers = npt.NDArray[np.int64]


class ReadableLog(ABC):
    """Readable log. Every method may be called by any thread."""

    is_replicated = False
    """Whether offsets have no jumps: each of them was written by a leader."""

    def __init__(self, folder: Path, topics: TopicDictionary, store: ReaderStore) -> None:
        self.folder = folder
        self.topics = topics
        self.name = topics.identity.name
        self.partition = topics.identity.partition
        self.id = topics.identity.log_id
        self.key = self.name if self.partition == 0 else f"{self.name}:{self.partition}"
        """Name of the partition in documents that concern several logs; no log is named like that."""
        self.wakeups = Wakeups(topics)
        self.named_readers = NamedReaders(self.name, self.partition, store)
        self._start_offset = self._end_offset = 0
        self._history: RemoteHistory | None = None
        self._joined: tuple[SegmentList, RemoteHistory, SegmentList] | None = None
        self._open_records = loops.OpenRecords(topics.by_id)
        self._closed = False

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<{type(self).__name__} {self.folder.name}: offsets [{self.start_offset}, {self.end_offset}){state}>"

    def __len__(self) -> int:
        """Return how many records can be read: excluding offsets that were skipped after a power loss, that are lost,
        or whose records compaction removed. A view examines every segment for it once."""
        start, end = self.start_offset, self.end_offset
        return self.look_up(
            lambda segment_list: sum(one.shown_count(end) for one in segment_list.within(start, end))
        )

    def __bool__(self) -> bool:
        """Return True: an empty log is a log, too."""
        return True

    def __iter__(self) -> Iterator[Record]:
        """Yield all records from the first one to the end of the log at the time of the call."""
        return iter(self.reader())

    @property
    @abstractmethod
    def segment_list(self) -> SegmentList:
        """Return the current segment list."""

    @property
    def history(self) -> RemoteHistory | None:
        """Part of the log that a bucket holds; None for nothing."""
        return self._history

    def attach_history(self, history: RemoteHistory | None) -> None:
        """Read records below the local start from a bucket from now on."""
        self._history = history

    @property
    def _connected_history(self) -> RemoteHistory | None:
        # What is known of the bucket may be older than a replica whose leader had deleted records it has not got.
        is_apart = self.is_replicated and self._history is not None and self._history.end < self._start_offset
        return None if is_apart else self._history

    @property
    def all_segments(self) -> SegmentList:
        """The segments as of now, those that only a bucket has in front."""
        local, history = self.segment_list, self._connected_history
        if history is None:
            return local
        joined = self._joined
        if joined is None or joined[0] is not local or joined[1] is not history:
            joined = self._joined = local, history, history.in_front_of(local, self._end_offset)
        return joined[2]

    @property
    def start_offset(self) -> int:
        """The offset of the first record that retention has left, on the local disk or in a bucket; equal to
        `end_offset` in an empty log."""
        history, local = self._connected_history, self._start_offset
        return local if history is None or history.start == history.end else min(history.start, local)

    @property
    def local_start_offset(self) -> int:
        """The offset from which on records are on the local disk: reads below it may wait for a bucket, and raise
        HistoryUnavailable when it does not answer."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """Return the next offset: readers see everything below it."""
        return self._end_offset

    @property
    @abstractmethod
    def synced_offset(self) -> int:
        """Return the offset below which everything survives power loss."""

    @abstractmethod
    def check_open(self) -> None:
        """Raise StoreClosed once the log can no longer be read."""

    @abstractmethod
    def _in_tail(self, offset: int) -> TailRun | None:
        """Return the run in the tail cache that holds an offset, or None."""

    @abstractmethod
    def _gathered(self, offset: int, max_records: int, max_bytes: int) -> list[TailRun]:
        """Return that run and those after it, as far as the limits reach; see `TailCache.gather`."""

    @property
    @abstractmethod
    def _memory_offset(self) -> int:
        """Return the offset below which the existing records are read from files from now on."""

    def in_memory(self, offset: int) -> bool:
        """Return whether a read at this offset makes no system call; true at the end, too. For event loops, which leave
        reads of the disk to a thread."""
        return offset >= self._end_offset or self._in_tail(offset) is not None

    def read(self, offset: int, *, max_records: int = READ_RECORDS, max_bytes: int = READ_BYTES) -> Batch:
        """Return the records from `offset` on, across appends and segments: as many as there are, but at most
        `max_records`, and at most `max_bytes` stored bytes unless the first record alone is larger.

        At the end of the log the batch is empty. It ends before a damaged record. Raises OffsetOutOfRange;
        CorruptRecord if the record at `offset` is damaged, OffsetsLost if its whole segment is; OSError from the disk;
        StoreClosed."""
        if self._closed:
            self.check_open()
        if not (type(offset) is type(max_records) is type(max_bytes) is int):
            offset = as_whole(offset, "offset")
            max_records, max_bytes = as_whole(max_records, "max_records"), as_whole(max_bytes, "max_bytes")
        max_records = max(1, max_records)
        end = self.end_offset
        self._check(offset, end)
        if offset >= end:
            return self._nothing(end)
        batch, goes_on = self._part(offset, end, max_records, max_bytes)
        if not goes_on or batch.next_offset >= end:
            return batch
        return filled(
            batch, end, max_records, max_bytes, lambda at, records, size: self._part(at, end, records, size)
        )

    def read_matching(
        self,
        offset: int,
        choice: TopicMask,
        *,
        max_records: int,
        max_bytes: int,
        max_scan: int | None = None,
    ) -> Batch:
        """Return the records of chosen topics from `offset` on; limits and errors as `read`.

        Empty if none is left before the end, or none was found among `max_scan` records; `next_offset` is the next one
        to examine. After the first match it examines at most 65,536 records more, so a rare topic does not cost a
        search of the whole log."""
        if self._closed:
            self.check_open()
        max_records = max(1, max_records)
        end = self.end_offset
        self._check(offset, end)
        stop = end if max_scan is None else min(end, offset + max_scan)
        while offset < stop:
            batch, goes_on = self._matching_part(offset, end, choice, max_records, max_bytes)
            if batch:
                stop = min(stop, batch.next_offset + _SCAN_RECORDS)
                if not goes_on or batch.next_offset >= stop:
                    return batch
                return filled(
                    batch,
                    stop,
                    max_records,
                    max_bytes,
                    lambda at, records, size: self._matching_part(at, end, choice, records, size),
                )
            offset = batch.next_offset
        return self._nothing(offset)

    def record(self, offset: int) -> Record:
        """Return the record at exactly this offset. Raises OffsetOutOfRange if there is none (also for offsets that
        were skipped after a power loss, and for records that compaction has removed), CorruptRecord, OffsetsLost,
        StoreClosed."""
        if self._closed:
            self.check_open()
        if type(offset) is not int:
            offset = as_whole(offset, "offset")
        if self._start_offset <= offset:
            found = self._open_records.record(offset)
            if found is None and offset < self._end_offset:
                run = self._in_tail(offset)
                found = None if run is None else run.record(offset, self.topics.by_id)
            if found is not None:
                return found
        # This opens files, refreshes the segment list if they are missing, and reports damage.
        batch = self.read(offset, max_records=1, max_bytes=0)
        if not batch or batch.offsets[0] != offset:
            first = int(batch.offsets[0]) if batch else self.start_offset
            raise OffsetOutOfRange(offset, first, self.end_offset)
        self._have_at_hand(offset)
        return batch[0]

    def _have_at_hand(self, offset: int) -> None:
        """Keep the files of a segment that was just read at hand for reads of single records around that offset."""
        segment_list, memory_offset = self.all_segments, self._memory_offset
        segment = segment_list.locate(offset)
        if offset >= memory_offset or segment is None or segment.base_offset > offset:
            return
        records = segment.records(memory_offset)
        if records is not None:
            self._open_records.show(records)
            if self.all_segments is not segment_list:  # changed, perhaps before it could close these files
                records.close()

    def offset_at(self, time: int | datetime) -> int:
        """Return the first offset appended at or after a time, a `datetime` with a time zone or microseconds since
        1970; `end_offset` if there is none. Raises ValueError for a time without a zone."""
        timestamp_us = time_us(time) if isinstance(time, datetime) else as_whole(time, "time")
        found = self.look_up(lambda segment_list: segment_list.offset_at(timestamp_us, self.end_offset))
        return min(found, self.end_offset)  # a replica has records behind those that it shows

    def reader(
        self,
        start: Start = "earliest",
        *,
        topics: str | Sequence[str] | None = None,
        name: str | None = None,
        pin: Pin | None = None,
    ) -> Reader:
        """Return a cursor that pulls from `start`: "earliest", "latest", an offset, or a `datetime` with a time zone,
        which means the first record appended at or after it.

        - topics: MQTT topic filters; only matching records are read.
        - name: continue at the offset that a reader of that name has committed to this log; `start` applies only if
          there is none.
        - pin: retention keeps what the reader has not committed, within the limits of the pin and durably from now on.

        Raises InvalidName for a filter that the rules do not allow, OffsetOutOfRange for a `start` outside the log,
        ReaderInUse if this process has an open reader of that name, StoreClosed; with a pin also what `Reader.commit`
        raises."""
        self.check_open()
        return Reader(self, start, topics, name, pin)

    def lags(self) -> list[ReaderLag]:
        """Return how far each named reader with a commit is behind, by name; open or not, in any process. Raises
        OSError, CorruptLog, StoreClosed."""
        self.check_open()
        committed = self.named_readers.all_committed()
        start, end = self.start_offset, self.end_offset
        return [ReaderLag(reader, found, start, end) for reader, found in committed.items()]

    def segment_bounds(self, first: int = 0, last: int | None = None) -> list[tuple[int, int]]:
        """Return the offsets [base, end) of each segment that holds records of the offsets [first, last), in order."""
        first = as_whole(first, "first")
        return self.look_up(
            lambda listed: [(base, end) for base, end, _ in listed.bounded(first, self._stop(last))]
        )

    def segments_with(self, topics: Sequence[str], first: int, last: int) -> list[tuple[int, int]]:
        """Return the offsets [base, end) of each segment that may hold records of `topics`, MQTT topic filters, in the
        offsets [first, last). Opens no segment: the index of a sealed one has a summary of its topics."""
        choice = TopicMask(self.topics, checked_filters(topics))
        first, last = as_whole(first, "first"), as_whole(last, "last")
        return self.look_up(
            lambda listed: [
                (base, end) for base, end, one in listed.bounded(first, last) if choice.in_segment(one)
            ]
        )

    def segment_sizes(self, first: int = 0, last: int | None = None) -> list[tuple[int, int, int]]:
        """Return, for each segment that holds records of the offsets [first, last), its offsets [base, end) and the
        bytes of its records in that range before compression, in order. Reads the index, no record. Raises OSError."""

        first = as_whole(first, "first")

        def sizes(segment_list: SegmentList) -> list[tuple[int, int, int]]:
            stop = self._stop(last)
            found = segment_list.bounded(first, stop)
            return [(base, end, one.bytes_between(first, min(stop, end))) for base, end, one in found]

        return self.look_up(sizes)

    def gap_at(self, offset: int) -> tuple[int, int] | None:
        """Return the offsets [end, base) that were skipped after a power loss, if `offset` lies in them and is not
        their first; else None."""
        offset = as_whole(offset, "offset")
        return self.look_up(lambda segment_list: segment_list.gap_at(offset))

    def lost_offsets(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the runs [start, end) of the offsets [first, last) that were assigned and that no segment holds any
        more, because its index or file is damaged or missing. Reading them raises OffsetsLost."""
        first, last = as_whole(first, "first"), as_whole(last, "last")
        return [(one.first, one.end) for one in self._lost_ranges(first, last)]

    def _lost_ranges(self, first: int, last: int) -> list[LostRange]:
        return self.look_up(lambda segment_list: list(segment_list.lost_between(first, last)))

    def _stop(self, last: int | None) -> int:
        return self.end_offset if last is None else as_whole(last, "last")

    def look_up(self, look: Callable[[SegmentList], T], offset: int | None = None) -> T:
        """Return the result of `look` on the segment list. Repeated if retention deleted a segment during the call.
        offset: what the call concerns, if one in particular. Raises StoreClosed, and OffsetOutOfRange once that was
        deleted."""
        while True:
            self.check_open()
            segment_list = self.all_segments
            try:
                return look(segment_list)
            except FileNotFoundError as error:
                self._moved_on(segment_list, offset, error)

    def _check(self, offset: int, end: int) -> None:
        start = self.start_offset
        if not start <= offset <= end:
            self.check_open()  # a deleted log is empty: report the deletion instead
            # The end was read before the start, which may have passed it since.
            raise OffsetOutOfRange(offset, start, max(end, self.end_offset))

    def _part(self, offset: int, end: int, max_records: int, max_bytes: int) -> tuple[Batch, bool]:
        """Return the records from `offset` on that lie together in memory or in one segment, at least one, and whether
        the limits leave room for what follows them."""
        runs = self._gathered(offset, max_records, max_bytes)
        if runs:
            batch = self._from_tail(runs, offset, end, max_records, max_bytes)
            return batch, batch.next_offset == runs[-1].end_offset
        try:
            found = self.look_up(
                lambda segments: segments.read(offset, end, max_records=max_records, max_bytes=max_bytes),
                offset,
            )
        except CorruptRecord as error:
            self._check_jump(offset, error.offset)
            raise
        if found is None:
            self._check_jump(offset, end)
            return self._nothing(end), False
        segment, read = found
        first = segment.base_offset + read.base_ordinal
        self._check_jump(offset, first)
        following = first + len(read.entries)
        offsets, entries = np.arange(first, following, dtype=np.int64), read.entries
        if segment.may_have_removed:
            shown = (entries["flags"] & FLAG_REMOVED) == 0
            offsets, entries = offsets[shown], entries[shown]
        goes_on = following >= segment.end_offset or len(read.entries) == RUN_RECORDS
        return self._batch(offsets, (entries, read.data, read.position), following), goes_on

    def _moved_on(self, segment_list: SegmentList, offset: int | None, error: FileNotFoundError) -> None:
        """Refresh the segment list after a file of it was missing, if retention or a seal replaced the file; report the
        loss otherwise, or that `offset` was deleted. None: the call concerns no offset in particular."""
        if self.all_segments is segment_list:
            raise error
        if offset is not None:
            self._check(offset, self.end_offset)

    def _check_jump(self, offset: int, first: int) -> None:
        """Check a read that found a later record than the one at the offset. Allowed where offsets were skipped after a
        power loss or compaction has removed records. Records that retention deleted during the read, or that a damaged
        segment had, must be reported."""
        if first == offset:
            return
        if offset < self.start_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        for lost in self._lost_ranges(offset, first):
            raise OffsetsLost(self.folder, *lost)

    def _from_tail(
        self, runs: list[TailRun], offset: int, end: int, max_records: int, max_bytes: int
    ) -> Batch:
        # A run may be in memory shortly before its records are published.
        count = fitting_count(runs, offset, min(max_records, end - offset), max_bytes)
        offsets, following = range(offset, offset + count), offset + count
        # Joining costs as much as all else: a caller that only counts or skips records does not pay for it.
        columns = partial(joined_columns, runs, offset, count)
        return self._batch(offsets, columns() if len(runs) == 1 else columns, following)

    def _matching_part(
        self, offset: int, end: int, choice: TopicMask, max_records: int, max_bytes: int
    ) -> tuple[Batch, bool]:
        """Return the chosen records among those from `offset` on that lie together, perhaps none, and whether the
        limits leave room for what follows them."""
        runs = self._gathered(offset, max_records, max_bytes)
        if runs:
            run = joined(runs)
            entries = entries_of(run, offset, end - offset)
            if len(entries) <= min(_SMALL_RECORDS, max_records) and run.stored.size_bytes <= max_bytes:
                return self._from_small_run(run, offset, entries, choice), True
            chosen = chosen_within(entries, choice, max_records, max_bytes)
            cut = leaves_out(chosen, entries, choice)
            following = offset + (int(chosen[-1]) + 1 if cut else len(entries))
            if len(chosen) == 0:
                return self._nothing(following), True
            entries = entries[chosen]
            return self._batch(chosen + offset, (entries, *run.data_of(entries)), following), not cut
        return self.look_up(
            lambda segments: self._matching_in_files(segments, offset, end, choice, max_records, max_bytes),
            offset,
        )

    def _from_small_run(self, run: TailRun, offset: int, entries: Entries, choice: TopicMask) -> Batch:
        """Return all chosen records among few ones, which every limit allows."""
        following = offset + len(entries)
        places = [place for place, topic_id in enumerate(entries["topic"].tolist()) if choice.wants(topic_id)]
        if not places:
            return self._nothing(following)
        if len(places) == len(entries):
            offsets = np.arange(offset, following, dtype=np.int64)
        else:
            entries, offsets = entries[places], np.array(places, dtype=np.int64) + offset
        return self._batch(offsets, (entries, *run.data_of(entries)), following)

    def _matching_in_files(
        self,
        segment_list: SegmentList,
        offset: int,
        end: int,
        choice: TopicMask,
        max_records: int,
        max_bytes: int,
    ) -> tuple[Batch, bool]:
        segment = segment_list.locate(offset)
        self._check_jump(offset, end if segment is None else max(segment.base_offset, offset))
        if segment is None or segment.base_offset >= end:
            return self._nothing(end), False
        segment_end = min(segment.end_offset, end)
        if not choice.in_segment(segment):
            return self._nothing(segment_end), True
        first = max(offset - segment.base_offset, 0)
        last = min(segment_end - segment.base_offset, first + _SCAN_RECORDS)
        entries = segment.read_entries(first, last)
        chosen = chosen_within(entries, choice, max_records, max_bytes)
        if len(chosen) == 0:
            return self._nothing(segment.base_offset + first + len(entries)), True
        runs = segment.read_some(chosen + first, entries[chosen])
        count = sum(len(run.entries) for run in runs)
        complete = count == len(chosen) and not leaves_out(chosen, entries, choice)
        following = first + (len(entries) if complete else int(chosen[count - 1]) + 1)
        offsets = chosen[:count] + first + segment.base_offset
        return self._batch(offsets, joined_runs(runs), segment.base_offset + following), complete

    def _batch(
        self, offsets: Numbers | range, columns: Columns | Callable[[], Columns], following: int
    ) -> Batch:
        where = self.name, self.partition, self.topics
        if callable(columns):
            return Batch(*where, offsets=offsets, columns=columns, next_offset=following)
        entries, data, position = columns
        return Batch(
            *where, offsets=offsets, entries=entries, data=data, data_position=position, next_offset=following
        )

    def _nothing(self, following: int) -> Batch:
        return Batch(self.name, self.partition, self.topics, next_offset=following)
