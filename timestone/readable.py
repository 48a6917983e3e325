"""Reading a log: the calls that the owner's `Log` and another process's `LogView` have in common.

What belongs here: ranges, the choice between tail and files, and filtering by topic. Where the segments and
the end come from is up to the two classes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from timestone.errors import CorruptRecord, OffsetOutOfRange, OffsetsLost
from timestone.format.topics import TopicDictionary
from timestone.kernel import loops
from timestone.kernel.entries import ENTRY, Entries
from timestone.reader import READ_BYTES, READ_RECORDS, Reader, Start
from timestone.reading.batch import Batch
from timestone.reading.named_readers import NamedReaders, ReaderLag, ReaderStore
from timestone.reading.retention_hold import Pin
from timestone.reading.segment_list import History
from timestone.reading.tail_cache import SingleRecord, TailRun, entries_of
from timestone.reading.topic_mask import TopicChoice
from timestone.reading.wakeups import Wakeups
from timestone.record import FLAG_REMOVED, Record
from timestone.segment import Run, Segment

_SCAN_RECORDS = 1 << 16
"""How many index entries one step of a filtered read looks at."""
_SMALL_RECORDS = 16
"""Up to so many records of a run are looked at one by one: numpy's fixed costs are those of some twenty."""


T = TypeVar("T")


class ReadableLog(ABC):
    """A log that can be read. Every method may be called by any thread."""

    def __init__(self, folder: Path, topics: TopicDictionary, store: ReaderStore) -> None:
        self.folder = folder
        self.topics = topics
        self.name = topics.identity.name
        self.partition = topics.identity.partition
        self.id = topics.identity.log_id
        self.wakeups = Wakeups(topics)
        self.named_readers = NamedReaders(self.name, self.partition, store)
        self._start_offset = self._end_offset = 0
        self._open_records = loops.OpenRecords(topics.by_id)
        self._closed = False

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<{type(self).__name__} {self.folder.name}: offsets [{self.start_offset}, {self.end_offset}){state}>"

    @property
    @abstractmethod
    def history(self) -> History:
        """The segments as of now."""

    @property
    def start_offset(self) -> int:
        """The offset of the first record that retention has left; equal to `end_offset` in an empty log."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset that comes next: readers see everything below it."""
        return self._end_offset

    @property
    @abstractmethod
    def synced_offset(self) -> int:
        """Everything below it survives power loss."""

    @abstractmethod
    def check_open(self) -> None:
        """Raise StoreClosed once the log can no longer be read."""

    @abstractmethod
    def _in_tail(self, offset: int) -> TailRun | None:
        """The run in memory that holds an offset."""

    @property
    @abstractmethod
    def _memory_offset(self) -> int:
        """Of the records that are there now, those below it are read from files from now on."""

    def in_memory(self, offset: int) -> bool:
        """Is a read at `offset` served without touching a file? For event loops, which must not wait for a
        disk."""
        return offset >= self.end_offset or self._in_tail(offset) is not None

    def read(self, offset: int, *, max_records: int = READ_RECORDS, max_bytes: int = READ_BYTES) -> Batch:
        """The records from `offset` on: at least one unless `offset` is the end, at most `max_records`, and
        not more than `max_bytes` stored bytes unless the first alone is larger. May return fewer than there
        are; read on at `next_offset`.

        Raises OffsetOutOfRange; CorruptRecord when the record at `offset` is damaged, OffsetsLost when a whole segment
        is; OSError from the disk; StoreClosed.
        """
        if self._closed:
            self.check_open()
        max_records = max(1, max_records)
        end = self.end_offset
        self._check(offset, end)
        if offset < end:
            run = self._in_tail(offset)
            if run is not None:
                return self._from_tail(run, offset, end, max_records, max_bytes)
            try:
                found = self._from_files(offset, end, max_records, max_bytes)
            except CorruptRecord as error:
                self._check_jump(offset, error.offset)
                raise
            if found is not None:
                segment, read = found
                first = segment.base_offset + read.base_ordinal
                self._check_jump(offset, first)
                following = first + len(read.entries)
                offsets, entries = np.arange(first, following, dtype=np.int64), read.entries
                if segment.may_have_removed:
                    shown = (entries["flags"] & FLAG_REMOVED) == 0
                    offsets, entries = offsets[shown], entries[shown]
                return self._batch(offsets, entries, read.data, read.position, following)
            self._check_jump(offset, end)
        return self._nothing(end)

    def read_matching(
        self,
        offset: int,
        choice: TopicChoice,
        *,
        max_records: int,
        max_bytes: int,
        max_scan: int | None = None,
    ) -> Batch:
        """Like `read`, only records of chosen topics. Empty when none is left before the end, or before
        `max_scan` records were looked at; `next_offset` says how far it got."""
        if self._closed:
            self.check_open()
        max_records = max(1, max_records)
        end = self.end_offset
        self._check(offset, end)
        stop = end if max_scan is None else min(end, offset + max_scan)
        while offset < stop:
            batch = self._matching_step(offset, end, choice, max_records, max_bytes)
            if batch:
                return batch
            offset = batch.next_offset
        return self._nothing(offset)

    def single(self, offset: int) -> SingleRecord | None:
        """The record at `offset` when it was appended by itself and is still in memory; None when it was not, or is not
        there. For who serves one record at a time: a batch of one costs several times as much."""
        run = self._in_tail(offset)
        # A run may be in memory an instant before its records are published.
        if run is None or run.end_offset > self._end_offset or offset < self._start_offset:
            return None
        return run.single()

    def record(self, offset: int) -> Record:
        """The record at exactly this offset.

        Raises OffsetOutOfRange when there is none (also for offsets that a power loss has left out, and for records
        that compaction has removed), CorruptRecord, OffsetsLost, StoreClosed."""
        if self._closed:
            self.check_open()
        if self._start_offset <= offset:
            found = self._open_records.record(offset)
            if found is not None:
                return found
        # This opens files, looks elsewhere when they are gone, and knows what to say of damage.
        batch = self.read(offset, max_records=1, max_bytes=0)
        if not batch or batch.offsets[0] != offset:
            first = int(batch.offsets[0]) if batch else self.start_offset
            raise OffsetOutOfRange(offset, first, self.end_offset)
        self._have_at_hand(offset)
        return batch[0]

    def _have_at_hand(self, offset: int) -> None:
        """Serve the records around a record that was just read from files out of these files from now on."""
        history, memory_offset = self.history, self._memory_offset
        segment = history.locate(offset)
        if offset >= memory_offset or segment is None or segment.base_offset > offset:
            return
        records = segment.records(memory_offset)
        if records is not None:
            self._open_records.show(records)
            if self.history is not history:  # whoever changed it may have come too early to close them
                records.close()

    def offset_at(self, timestamp_us: int) -> int:
        """The first offset appended at or after a time (microseconds since 1970); `end_offset` when there is
        none."""
        return self.look_up(lambda history: history.offset_at(timestamp_us, self.end_offset))

    def reader(
        self,
        start: Start = "earliest",
        *,
        topics: str | Sequence[str] | None = None,
        name: str | None = None,
        pin: Pin | None = None,
    ) -> Reader:
        """A cursor that pulls from `start`: "earliest", "latest" or an offset; with `topics`, MQTT topic
        filters, only matching records; with `name`, from the offset that a reader of that name has committed
        to this log, and from `start` only when there is none yet; with `pin`, retention keeps what it has not
        committed, within the limits of the pin and durably from now on.

        Raises InvalidName for a filter that can match nothing by the rules, OffsetOutOfRange for a `start`
        that is not in the log, ReaderInUse when this process has one of that name open, StoreClosed; with a pin also
        what `Reader.commit` does."""
        self.check_open()
        return Reader(self, start, topics, name, pin)

    def lags(self) -> list[ReaderLag]:
        """How far each named reader that has committed is behind, by name; whether it is open or not, and in
        whichever process. Raises OSError, CorruptLog, StoreClosed."""
        self.check_open()
        committed = self.named_readers.all_committed()
        start, end = self.start_offset, self.end_offset
        return [ReaderLag(reader, found, start, end) for reader, found in committed.items()]

    def segment_bounds(self, first: int = 0, last: int | None = None) -> list[tuple[int, int]]:
        """The offsets [base, end) of each segment that holds records of the offsets [first, last), in order."""
        return self.look_up(lambda history: _bounds(history.within(first, self._stop(last))))

    def segments_with(self, topics: Sequence[str], first: int, last: int) -> list[tuple[int, int]]:
        """The offsets [base, end) of each segment that may hold records of `topics`, MQTT topic filters, in the
        offsets [first, last). Opens no segment: a sealed one says in its index what it holds."""
        choice = TopicChoice(self.topics, topics)
        return self.look_up(lambda history: _bounds(filter(choice.in_segment, history.within(first, last))))

    def segment_sizes(self, first: int = 0, last: int | None = None) -> list[tuple[int, int, int]]:
        """The offsets [base, end) of each segment that holds records of the offsets [first, last), and the bytes of all
        its records before compression, in order. Raises OSError."""
        return self.look_up(
            lambda history: [
                (segment.base_offset, segment.end_offset, segment.size_bytes())
                for segment in history.within(first, self._stop(last))
            ]
        )

    def gap_at(self, offset: int) -> tuple[int, int] | None:
        """The offsets [end, base) that a power loss has left out, when `offset` lies in them and is not their first;
        else None."""
        return self.look_up(lambda history: history.gap_at(offset))

    def lost_offsets(self, first: int, last: int) -> list[tuple[int, int]]:
        """The runs [start, end) of the offsets [first, last) that were given out and that no segment holds any more,
        because its index or file is damaged or gone. Reading them raises OffsetsLost."""
        return self.look_up(lambda history: list(history.lost_between(first, last)))

    def _stop(self, last: int | None) -> int:
        return self.end_offset if last is None else last

    def look_up(self, look: Callable[[History], T]) -> T:
        """What a history says, of segments that retention may delete while it is asked: then it is asked once more.
        Raises StoreClosed."""
        self.check_open()
        while True:
            history = self.history
            try:
                return look(history)
            except FileNotFoundError as error:
                self._moved_on(history, self.end_offset, error)

    def _check(self, offset: int, end: int) -> None:
        start = self.start_offset
        if not start <= offset <= end:
            self.check_open()  # a deleted log holds nothing, and there is more to say of that
            # The end was looked at before the start, which may have passed it since.
            raise OffsetOutOfRange(offset, start, max(end, self.end_offset))

    def _from_files(
        self, offset: int, end: int, max_records: int, max_bytes: int
    ) -> tuple[Segment, Run] | None:
        while True:
            history = self.history
            try:
                return history.read(offset, end, max_records=max_records, max_bytes=max_bytes)
            except FileNotFoundError as error:
                self._moved_on(history, offset, error)

    def _moved_on(self, history: History, offset: int, error: FileNotFoundError) -> None:
        """A file of the history was gone. Fine if retention or a seal replaced it: then look again; else it
        is missing."""
        if self.history is history:
            raise error
        self._check(offset, self.end_offset)

    def _check_jump(self, offset: int, first: int) -> None:
        """The record found is not the one at the offset. Fine where a power loss has left offsets out, or compaction
        has removed records. What retention has deleted since the start was looked at must not pass in silence, nor
        what a damaged segment had."""
        if first == offset:
            return
        if offset < self.start_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        for lost in self.lost_offsets(offset, first):
            raise OffsetsLost(self.folder, *lost)

    def _from_tail(self, run: TailRun, offset: int, end: int, max_records: int, max_bytes: int) -> Batch:
        # A run may be in memory an instant before its records are published.
        entries = entries_of(run, offset, min(max_records, end - offset))
        if run.stored.size_bytes > max_bytes:
            ends = np.cumsum(entries["length"], dtype=np.int64)
            entries = entries[: max(1, int(np.searchsorted(ends, max_bytes, side="right")))]
        offsets = np.arange(offset, offset + len(entries), dtype=np.int64)
        data, position = run.data_of(entries)
        return self._batch(offsets, entries, data, position, offset + len(entries))

    def _matching_step(
        self, offset: int, end: int, choice: TopicChoice, max_records: int, max_bytes: int
    ) -> Batch:
        run = self._in_tail(offset)
        if run is not None:
            entries = entries_of(run, offset, end - offset)
            if len(entries) <= min(_SMALL_RECORDS, max_records) and run.stored.size_bytes <= max_bytes:
                return self._from_small_run(run, offset, entries, choice)
            chosen = _chosen(entries, choice, max_records, max_bytes)
            following = offset + (int(chosen[-1]) + 1 if _cut(chosen, entries, choice) else len(entries))
            if len(chosen) == 0:
                return self._nothing(following)
            data, position = run.data_of(entries[chosen])
            return self._batch(chosen + offset, entries[chosen], data, position, following)
        while True:
            history = self.history
            try:
                return self._matching_in_files(history, offset, end, choice, max_records, max_bytes)
            except FileNotFoundError as error:
                self._moved_on(history, offset, error)

    def _from_small_run(self, run: TailRun, offset: int, entries: Entries, choice: TopicChoice) -> Batch:
        """All chosen records of a few, within every limit."""
        following = offset + len(entries)
        places = [place for place, topic_id in enumerate(entries["topic"].tolist()) if choice.wants(topic_id)]
        if not places:
            return self._nothing(following)
        if len(places) == len(entries):
            offsets = np.arange(offset, following, dtype=np.int64)
        else:
            entries, offsets = entries[places], np.array(places, dtype=np.int64) + offset
        data, position = run.data_of(entries)
        return self._batch(offsets, entries, data, position, following)

    def _matching_in_files(
        self, history: History, offset: int, end: int, choice: TopicChoice, max_records: int, max_bytes: int
    ) -> Batch:
        segment = history.locate(offset)
        self._check_jump(offset, end if segment is None else max(segment.base_offset, offset))
        if segment is None or segment.base_offset >= end:
            return self._nothing(end)
        segment_end = min(segment.end_offset, end)
        if not choice.in_segment(segment):
            return self._nothing(segment_end)
        first = max(offset - segment.base_offset, 0)
        last = min(segment_end - segment.base_offset, first + _SCAN_RECORDS)
        entries = segment.read_entries(first, last)
        chosen = _chosen(entries, choice, max_records, max_bytes)
        if len(chosen) == 0:
            return self._nothing(segment.base_offset + first + len(entries))
        runs = segment.read_some(chosen + first, entries[chosen])
        count = sum(len(run.entries) for run in runs)
        complete = count == len(chosen) and not _cut(chosen, entries, choice)
        following = first + (len(entries) if complete else int(chosen[count - 1]) + 1)
        data, position, kept = _joined(runs)
        offsets = chosen[:count] + first + segment.base_offset
        return self._batch(offsets, kept, data, position, segment.base_offset + following)

    def _batch(
        self,
        offsets: "np.ndarray[tuple[int], np.dtype[np.int64]]",
        entries: Entries,
        data: bytes,
        position: int,
        following: int,
    ) -> Batch:
        return Batch(
            self.name,
            self.partition,
            self.topics,
            offsets=offsets,
            entries=entries,
            data=data,
            data_position=position,
            next_offset=following,
        )

    def _nothing(self, following: int) -> Batch:
        return Batch(self.name, self.partition, self.topics, next_offset=following)


def _bounds(segments: Iterable[Segment]) -> list[tuple[int, int]]:
    return [(segment.base_offset, segment.end_offset) for segment in segments]


def _chosen(
    entries: Entries, choice: TopicChoice, max_records: int, max_bytes: int
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The places of the chosen entries, within the limits; at least one if there is any."""
    places = np.flatnonzero(choice.mask(entries["topic"]))[:max_records]
    ends = np.cumsum(entries["length"][places], dtype=np.int64)
    return places[: max(1, int(np.searchsorted(ends, max_bytes, side="right")))].astype(np.int64)


def _cut(chosen: "np.ndarray[tuple[int], np.dtype[np.int64]]", entries: Entries, choice: TopicChoice) -> bool:
    """Did the limits leave out chosen records of these entries?"""
    return len(chosen) > 0 and bool(choice.mask(entries["topic"][int(chosen[-1]) + 1 :]).any())


def _joined(runs: Sequence[Run]) -> tuple[bytes, int, Entries]:
    """The runs as one buffer, with positions that fit it."""
    if len(runs) == 1:
        return runs[0].data, runs[0].position, runs[0].entries
    data = b"".join(run.data for run in runs)
    entries = np.empty(sum(len(run.entries) for run in runs), dtype=ENTRY)
    at, base = 0, 0
    for run in runs:
        piece = entries[at : at + len(run.entries)]
        piece[:] = run.entries
        piece["position"] = piece["position"].astype(np.int64) + (base - run.position)
        at, base = at + len(run.entries), base + len(run.data)
    return data, 0, entries
