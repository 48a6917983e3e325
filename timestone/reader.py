"""A cursor that pulls records from a log and can be parked at its end.

A reader costs its offset and, while it is parked, an entry in the log's set of waiters. It is used by one
thread at a time; `wake` is called by the thread that appends."""

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from timestone.config import MIB
from timestone.disk.signal_safe_event import Flag
from timestone.errors import OffsetOutOfRange, OffsetsLost, StoreClosed
from timestone.filters import validate_filter
from timestone.format.topics import TopicDictionary
from timestone.reading.batch import Batch
from timestone.reading.named_readers import NamedReaders
from timestone.reading.retention_hold import Pin
from timestone.reading.tail_cache import SingleRecord
from timestone.reading.topic_mask import TopicChoice
from timestone.reading.wakeups import Wakeups
from timestone.record import Record

Start = int | Literal["earliest", "latest"]
READ_RECORDS = 65_536
READ_BYTES = MIB
"""What one read returns at most when it is not told: these bound what a batch takes in memory."""


class ReadFrom(Protocol):
    """What a reader needs of a log. Implemented by `timestone.readable.ReadableLog`, whose methods these are."""

    name: str
    partition: int
    folder: Path
    topics: TopicDictionary
    wakeups: Wakeups
    named_readers: NamedReaders

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...

    def check_open(self) -> None: ...
    def single(self, offset: int) -> SingleRecord | None: ...
    def read(self, offset: int, *, max_records: int = ..., max_bytes: int = ...) -> Batch: ...
    def read_matching(
        self,
        offset: int,
        choice: TopicChoice,
        *,
        max_records: int,
        max_bytes: int,
        max_scan: int | None = None,
    ) -> Batch: ...


class Reader:
    """Reads a log in order from an offset; `offset` is the next one it will look at.

    Iterating yields records until the end that the log has at that moment. `offset` is behind the record that was
    yielded last, so a loop that is left continues there with the next one, or with `read`.

    One with a name continues where it has committed, also in a later process. It holds its name until `close`.
    """

    def __init__(
        self,
        log: ReadFrom,
        start: Start = "earliest",
        topics: str | Sequence[str] | None = None,
        name: str | None = None,
        pin: Pin | None = None,
    ) -> None:
        if pin is not None and name is None:
            raise ValueError("only a reader with a name has an offset to pin: log.reader(name=…, pin=…)")
        self.log = log
        self.name = name
        self._pin = pin
        found = None if name is None else log.named_readers.committed(name)
        # What was committed is not checked against the log: the first read raises OffsetOutOfRange with all
        # numbers when retention has passed it, and there is a reader then to `seek` with.
        self.offset = self._resolve(start) if found is None else found.offset
        self.on_wake: Callable[[Reader, int], None] | None = None
        """Called once after each `park` that returned True, with the first offset that concerns this reader,
        by the thread that appended, which it must not block. The reader's offset has then moved up to that
        offset."""
        self._choice: TopicChoice | None = None
        self._lost = range(0)
        """Offsets that it was told are lost. Whoever steps behind the first of them has taken note: to be told of
        millions one by one helps nobody."""
        self._registered = False
        self._closed = False
        self._woken: Flag | None = None
        """For `wait`, made by its first call: most of ten thousand readers have `on_wake` instead."""
        self._filters: tuple[str, ...] | dict[str, None] | None = None
        if topics is not None:
            self.set_topics(topics)
        if name is not None:
            log.named_readers.take(name, self)
        if pin is not None and (found is None or found.pin != pin):
            self._commit_first()

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        name = "" if self.name is None else f" {self.name!r}"
        place = "closed" if self._closed else f"next offset {self.offset}"
        topics = "" if self._filters is None else f", topics {', '.join(self._filters)}"
        return f"<Reader{name} of {self.log.folder.name}: {place}{topics}>"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topic filters; None for all records."""
        return None if self._filters is None else tuple(self._filters)

    @property
    def caught_up(self) -> bool:
        """There is nothing behind `offset` now."""
        return self.offset >= self.log.end_offset

    def set_topics(self, filters: str | Sequence[str] | None) -> None:
        """From the next read on, only records whose topic matches one of the MQTT filters; None for all.

        Raises InvalidName.
        """
        chosen = (filters,) if isinstance(filters, str) else filters
        for topic_filter in chosen or ():
            validate_filter(topic_filter)
        self._filters = None if chosen is None else tuple(chosen)
        self._choice = None if chosen is None else TopicChoice(self.log.topics, chosen)
        if self._registered:
            self.log.wakeups.register(self, self._filters)

    def successor(self, start: int, added: Collection[str], removed: Collection[str]) -> "Reader":
        """A reader at `start` in place of this one, which is closed, with some topic filters more and some less. The
        cost is that of the filters that change, not of those that stay.

        A wake-up that is on its way to this reader does not reach the new one: it may be about the old filters only.

        Raises InvalidName, OffsetOutOfRange; then nothing is changed. ValueError for a reader with a name or of all
        topics."""
        if self._filters is None or self.name is not None:
            raise ValueError("invalid reader: expected one with topic filters and without a name")
        for topic_filter in added:
            validate_filter(topic_filter)
        other = Reader(self.log, start)
        assert self._choice is not None
        filters = self._filters if isinstance(self._filters, dict) else dict.fromkeys(self._filters)
        for topic_filter in removed:
            filters.pop(topic_filter, None)
        filters.update(dict.fromkeys(added))
        other._filters, self._filters = filters, ()
        other._choice = self._choice.changed(added, removed)
        other._registered = self.log.wakeups.replace(self, other, filters, added=added, removed=removed)
        self._registered = False
        self.close()
        return other

    def read(
        self, *, max_records: int = READ_RECORDS, max_bytes: int = READ_BYTES, max_scan: int | None = None
    ) -> Batch:
        """The next records, and move behind them. Empty when it has caught up, or when the first `max_scan`
        records that it looked at did not match.

        Raises OffsetOutOfRange when retention has passed it, CorruptRecord for a damaged record and OffsetsLost for
        a lost segment (`seek` to their `next_offset` to continue), StoreClosed."""
        self._check_open()
        if self._lost.start < self.offset < self._lost.stop:
            self.offset = self._lost.stop
        try:
            batch = self._read(max_records, max_bytes, max_scan)
        except OffsetsLost as error:
            self._lost = range(error.offset, error.next_offset)
            raise
        self.offset = batch.next_offset
        return batch

    def _read(self, max_records: int, max_bytes: int, max_scan: int | None) -> Batch:
        if self._choice is None:
            return self.log.read(self.offset, max_records=max_records, max_bytes=max_bytes)
        return self.log.read_matching(
            self.offset, self._choice, max_records=max_records, max_bytes=max_bytes, max_scan=max_scan
        )

    def single(self) -> SingleRecord | None:
        """The next record when it was appended by itself, is still in memory and wanted; None for all others. Does not
        move. Raises StoreClosed."""
        self._check_open()
        found = self.log.single(self.offset)
        if found is None or self._choice is None or self._choice.wants(found.topic_id):
            return found
        return None

    def __iter__(self) -> Iterator[Record]:
        while batch := self.read():
            following = self.offset
            for record in batch:
                self.offset = behind = record.offset + 1
                yield record
                if self.offset != behind:  # sought elsewhere, or read on by another caller
                    break
            else:
                self.offset = following

    def park(self) -> bool:
        """Wait for the next append that concerns this reader without costing anything. False when there
        already is something to look at: continue reading.

        After True, `on_wake` is called exactly once, or `wait` returns.
        """
        if self._closed:
            self._check_open()
        log = self.log
        log.check_open()
        wakeups = log.wakeups
        if not self._registered:
            wakeups.register(self, self._filters)
            self._registered = True
        with wakeups.lock:
            if self.offset < log.end_offset:
                return False
            if self._woken is not None:
                self._woken.clear()
            wakeups.park(self)
            return True

    def wake(self, first_offset: int) -> None:
        """Called by the log. What lies before `first_offset` was not for this reader."""
        if self.offset < first_offset:
            self.offset = first_offset
        if self._woken is not None:
            self._woken.set()
        if self.on_wake is not None:
            self.on_wake(self, first_offset)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until there is something to read; False when the time is over. Raises StoreClosed when the
        log closes.

        Only for a store this process owns: a view has nobody to wake it (`LogView.refresh`).
        """
        woken = self._woken
        if woken is None:
            woken = self._woken = Flag()
        if self.park() and not woken.wait(timeout_s):
            # Taken back out, or a late wake would move the offset while this thread reads.
            self.log.wakeups.unpark(self)
            return woken.is_set
        self._check_open()
        return True

    def seek(self, offset: Start) -> None:
        """Read on from another offset. Raises OffsetOutOfRange, StoreClosed."""
        self._check_open()
        self.offset = self._resolve(offset)

    def commit(self, offset: int | None = None) -> None:
        """Store durably where a reader of this name continues: `offset`, the next one to read, by default that of
        this reader, while iterating the one behind the record at hand. Costs a flush of the catalogue: once a batch,
        not once a record, and for many readers together `Store.commit_readers`.

        Survives every crash that the records below it survive; after one that it does not, the reader continues
        behind the gap. With a pin, retention continues from there; without one, a pin that an earlier reader of
        this name had is released.

        Raises ValueError without a name, OffsetOutOfRange beyond the end, OSError (what was committed before
        still is), StoreClosed; in a view ReadOnlyStore when this user may not write."""
        self._check_open()
        if self.name is None:
            raise ValueError("this reader has no name to commit under: log.reader(name=…)")
        self.log.named_readers.commit(self.name, self.offset if offset is None else offset, self._pin)

    @property
    def committed_offset(self) -> int | None:
        """The offset last committed under this reader's name, by whomever; None when there is none."""
        found = None if self.name is None else self.log.named_readers.committed(self.name)
        return None if found is None else found.offset

    def close(self) -> None:
        """Forget the reader and free its name; what it has committed stays. Closing twice is fine."""
        self._closed = True
        if self.name is not None:
            self.log.named_readers.release(self.name, self)
        if self._registered:
            self._registered = False
            self.log.wakeups.unregister(self)

    def _commit_first(self) -> None:
        """Have the pin hold from now on, not from the first batch that is done."""
        try:
            self.commit()
        except BaseException:
            self.close()
            raise

    def _resolve(self, start: Start) -> int:
        if start == "earliest":
            return self.log.start_offset
        end = self.log.end_offset
        if start == "latest":
            return end
        try:
            offset = operator.index(start)  # of whatever counts as a whole number, such as numpy's
        except TypeError:
            raise TypeError(
                f"a reader begins at an offset, 'earliest' or 'latest', not at {start!r}"
            ) from None
        if not self.log.start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.log.start_offset, end)
        return offset

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this reader is closed")
        self.log.check_open()
