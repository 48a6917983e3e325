"""A cursor that pulls records from a log and can be parked at its end.

A reader costs its offset and, while it is parked, an entry in the log's set of waiters. It is used by one
thread at a time; `wake` is called by the thread that appends."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from timestone.batch import Batch
from timestone.errors import OffsetOutOfRange, StoreClosed
from timestone.filters import validate_filter
from timestone.record import Record
from timestone.topic_choice import TopicChoice

if TYPE_CHECKING:
    from timestone.readable import ReadableLog

Start = int | Literal["earliest", "latest"]
_READ_RECORDS = 65_536
_READ_BYTES = 1 << 20


class Reader:
    """Reads a log in order from an offset; `offset` is the next one it will look at.

    Iterating yields records until the end that the log has at that moment.
    """

    def __init__(
        self, log: "ReadableLog", start: Start = "earliest", topics: Sequence[str] | None = None
    ) -> None:
        self.log = log
        self.offset = self._resolve(start)
        self.on_wake: Callable[[Reader, int], None] | None = None
        """Called once after each `park` that returned True, with the first offset that concerns this reader,
        by the thread that appended, which it must not block. The reader's offset has then moved up to that
        offset."""
        self._choice: TopicChoice | None = None
        self._registered = False
        self._closed = False
        self._woken = threading.Event()
        self._filters: tuple[str, ...] | None = None
        if topics is not None:
            self.set_topics(topics)

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topic filters; None for all records."""
        return self._filters

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

    def read(
        self, *, max_records: int = _READ_RECORDS, max_bytes: int = _READ_BYTES, max_scan: int | None = None
    ) -> Batch:
        """The next records, and move behind them. Empty when it has caught up, or when the first `max_scan`
        records that it looked at did not match.

        Raises OffsetOutOfRange when retention has passed it, CorruptRecord for a damaged record (`seek`
        behind it to go on), StoreClosed."""
        self._check_open()
        if self._choice is None:
            batch = self.log.read(self.offset, max_records=max_records, max_bytes=max_bytes)
        else:
            batch = self.log.read_matching(
                self.offset, self._choice, max_records=max_records, max_bytes=max_bytes, max_scan=max_scan
            )
        self.offset = batch.next_offset
        return batch

    def __iter__(self) -> Iterator[Record]:
        while batch := self.read():
            yield from batch

    def park(self) -> bool:
        """Wait for the next append that concerns this reader without costing anything. False when there
        already is something to look at: go on reading.

        After True, `on_wake` is called exactly once, or `wait` returns.
        """
        self._check_open()
        wakeups = self.log.wakeups
        if not self._registered:
            wakeups.register(self, self._filters)
            self._registered = True
        with wakeups.lock:
            if self.offset < self.log.end_offset:
                return False
            self._woken.clear()
            wakeups.park(self)
            return True

    def wake(self, first_offset: int) -> None:
        """Called by the log. What lies before `first_offset` was not for this reader."""
        self.offset = max(self.offset, first_offset)
        self._woken.set()
        if self.on_wake is not None:
            self.on_wake(self, first_offset)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until there is something to read; False when the time is over. Raises StoreClosed when the
        log closes.

        Only for a store this process owns: a view has nobody to wake it (`LogView.refresh`).
        """
        if self.park() and not self._woken.wait(timeout_s):
            # Taken back out, or a late wake would move the offset while this thread reads.
            self.log.wakeups.unpark(self)
            return self._woken.is_set()
        self._check_open()
        return True

    def seek(self, offset: Start) -> None:
        """Read on from another offset. Raises OffsetOutOfRange."""
        self.offset = self._resolve(offset)

    def close(self) -> None:
        """Forget the reader. Closing twice is fine."""
        self._closed = True
        if self._registered:
            self._registered = False
            self.log.wakeups.unregister(self)

    def _resolve(self, start: Start) -> int:
        if start == "earliest":
            return self.log.start_offset
        end = self.log.end_offset
        if start == "latest":
            return end
        if not self.log.start_offset <= start <= end:
            raise OffsetOutOfRange(start, self.log.start_offset, end)
        return start

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this reader is closed")
        self.log.check_open()
