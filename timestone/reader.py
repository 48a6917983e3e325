"""Cursor that pulls records from a log and can be parked at its end.

A reader costs its offset and, while parked, an entry in the log's set of waiters. It is used by one thread at a time;
`wake` is called by the thread that appends."""

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol, Self

from timestone.config import MIB
from timestone.disk.signal_safe_event import SignalSafeEvent
from timestone.errors import OffsetOutOfRange, OffsetsLost, StoreClosed
from timestone.filters import checked_filters, validate_filter
from timestone.format.topics import TopicDictionary
from timestone.kernel import loops
from timestone.reading.batch import Batch
from timestone.reading.named_readers import NamedReaders
from timestone.reading.retention_hold import Pin
from timestone.reading.topic_mask import TopicMask
from timestone.reading.wakeups import Wakeups
from timestone.record import Record, as_whole

Start = int | datetime | Literal["earliest", "latest"]
READ_RECORDS = 65_536
READ_BYTES = MIB
"""Default limit of one read in bytes: it bounds the memory of a batch."""


class ReadFrom(Protocol):
    """Log, as a reader sees it. Implemented by `timestone.readable.ReadableLog`."""

    name: str
    folder: Path
    topics: TopicDictionary
    wakeups: Wakeups
    named_readers: NamedReaders

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...

    def check_open(self) -> None: ...
    def offset_at(self, time: int | datetime) -> int: ...
    def read(self, offset: int, *, max_records: int = ..., max_bytes: int = ...) -> Batch: ...
    def read_matching(
        self,
        offset: int,
        choice: TopicMask,
        *,
        max_records: int,
        max_bytes: int,
        max_scan: int | None = None,
    ) -> Batch: ...


class Reader(loops.ReaderCursor):
    """Reader of a log in order from an offset; `offset` is the next one to read.

    Iterating yields records up to the end of the log at that moment. `offset` is always behind the last yielded record,
    so after leaving the loop the next loop or `read` continues there.

    A named reader continues where it has committed, also in a later process. It holds its name until `close`."""

    log: ReadFrom

    def __init__(
        self,
        log: ReadFrom,
        start: Start = "earliest",
        topics: str | Sequence[str] | None = None,
        name: str | None = None,
        pin: Pin | None = None,
    ) -> None:
        if pin is not None and name is None:
            raise ValueError("invalid pin: expected a reader with a name, log.reader(name=…, pin=…)")
        self.log = log
        self.name = name
        self._pin = pin
        found = None if name is None else log.named_readers.committed(name)
        # The committed offset is not compared with the log here: if retention has passed it, the first read raises
        # OffsetOutOfRange with all numbers, and then there is a reader to `seek` with.
        self.offset = self._resolve(start) if found is None else found.offset
        self.on_wake: Callable[[Reader, int], None] | None = None
        """Called once after each `park` that returned True, with the first offset that concerns this reader, by the
        appending thread, which it must not block. The reader's offset has then moved up to that offset."""
        self._choice: TopicMask | None = None
        self._lost = range(0)
        """Lost offsets that were reported to the caller. Stepping past the first of them acknowledges all: reporting
        millions one by one is useless."""
        self._registered = False
        self._closed = False
        self._woken: SignalSafeEvent | None = None
        """For `wait`, created by its first call: most of ten thousand readers use `on_wake` instead."""
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

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def topics(self) -> tuple[str, ...] | None:
        """Return the topic filters; None for all records."""
        return None if self._filters is None else tuple(self._filters)

    @property
    def filter_count(self) -> int:
        """Return the number of topic filters; 0 for all records."""
        return 0 if self._filters is None else len(self._filters)

    @property
    def caught_up(self) -> bool:
        """Return whether there is nothing at or after `offset` now."""
        return self.offset >= self.log.end_offset

    def set_topics(self, filters: str | Sequence[str] | None) -> None:
        """Read only records whose topic matches one of the MQTT filters, from the next read on; None for all. Raises
        InvalidName."""
        chosen = self._filters = None if filters is None else checked_filters(filters)
        self._choice = None if chosen is None else TopicMask(self.log.topics, chosen)
        if self._registered:
            self.log.wakeups.register(self, self._filters)

    def successor(self, start: int, added: Collection[str], removed: Collection[str]) -> "Reader":
        """Return a reader at `start` that replaces this one, which is closed, with some topic filters added and some
        removed.

        The cost depends on the filters that change, not on those that stay. A wake-up of this reader that is under way
        does not reach the new one: it may concern the old filters only. Raises InvalidName, OffsetOutOfRange (then
        nothing is changed), ValueError for a reader with a name or of all topics."""
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
        """Return the next records, and advance past them. The batch is empty at the end of the log, or if none of the
        first `max_scan` records matched.

        Raises OffsetOutOfRange if retention has passed the reader, CorruptRecord for a damaged record and OffsetsLost
        for a lost segment (`seek` to their `next_offset` to continue), StoreClosed."""
        self._check_open()
        if not (type(max_records) is type(max_bytes) is int and (max_scan is None or type(max_scan) is int)):
            max_records, max_bytes = as_whole(max_records, "max_records"), as_whole(max_bytes, "max_bytes")
            max_scan = None if max_scan is None else as_whole(max_scan, "max_scan")
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

    def __iter__(self) -> Iterator[Record]:
        while batch := self.read():
            following = self.offset
            for record in batch:
                self.offset = behind = record.offset + 1
                yield record
                if self.offset != behind:  # the offset was changed by another caller
                    break
            else:
                self.offset = following

    def _park(self) -> bool:
        self._check_open()
        log = self.log
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
        """Wake the reader; called by the log. Records before `first_offset` do not concern this reader."""
        if self.offset < first_offset:
            self.offset = first_offset
        if self._woken is not None:
            self._woken.set()
        if self.on_wake is not None:
            self.on_wake(self, first_offset)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until there is something to read; return False after the timeout. Raises StoreClosed when the log
        closes. Only for a store that this process owns: in a view nothing wakes a reader (see `LogView.refresh`)."""
        if not isinstance(timeout_s, int | float | None):
            raise TypeError(f"invalid timeout_s: expected seconds, got {timeout_s!r:.60}")
        woken = self._woken
        if woken is None:
            woken = self._woken = SignalSafeEvent()
        if self.park() and not woken.wait(timeout_s):
            # Taken out of the set, or a late wake would move the offset while this thread reads.
            self.log.wakeups.unpark(self)
            return woken.is_set
        self._check_open()
        return True

    def seek(self, offset: Start) -> None:
        """Continue at another offset. Raises OffsetOutOfRange, StoreClosed."""
        self._check_open()
        self.offset = self._resolve(offset)

    def commit(self, offset: int | None = None, *, metadata: str = "") -> None:
        """Store durably where a reader of this name continues: at `offset`, the next one to read; by default that of
        this reader, which during iteration is the one after the current record.

        Costs a flush of the catalogue: commit once a batch, not once a record, and use `Store.commit_readers` for many
        readers. The commit survives every crash that the records below it survive; after one that they do not, the
        reader continues behind the gap. With a pin, retention continues from there; without one, the pin of an earlier
        reader of this name is released. `metadata`: a text of up to 4 KiB for `Commitment.metadata`.

        Raises ValueError without a name or for longer metadata, OffsetOutOfRange beyond the end, OSError (the earlier
        commit remains), StoreClosed; in a view ReadOnlyStore if this user may not write."""
        self._check_open()
        if self.name is None:
            raise ValueError("invalid commit: expected a reader with a name, log.reader(name=…)")
        at = as_whole(self.offset if offset is None else offset, "offset")
        self.log.named_readers.commit(self.name, at, self._pin, metadata)

    @property
    def committed_offset(self) -> int | None:
        """Return the last offset committed under this reader's name, by any process; None if there is none."""
        found = None if self.name is None else self.log.named_readers.committed(self.name)
        return None if found is None else found.offset

    def close(self) -> None:
        """End the reader and free its name; its commits stay. May be called twice."""
        self._closed = True
        if self.name is not None:
            self.log.named_readers.release(self.name, self)
        if self._registered:
            self._registered = False
            self.log.wakeups.unregister(self)

    def _commit_first(self) -> None:
        """Commit the start, so that the pin holds from now on, not from the end of the first batch."""
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
        if isinstance(start, datetime):
            return self.log.offset_at(start)
        try:
            offset = operator.index(start)  # accepts every integer type, such as numpy's
        except TypeError:
            expected = "an offset, 'earliest', 'latest' or a datetime"
            raise TypeError(f"invalid start of a reader: expected {expected}, got {start!r}") from None
        if not self.log.start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.log.start_offset, end)
        return offset

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this reader is closed")
        self.log.check_open()
