"""Batches that feeds with the same filters read one after another: each is read once, and packets that are the same for
all of them are encoded once."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from timestone.reader import Reader
from timestone.reading.batch import Batch

_FILTERS = 8
"""A feed with more filters reads by itself: to compare them takes longer."""
_BATCHES = 8
"""Number of batches that are kept: of feeds that take turns, with different filters or of different logs."""


PacketsKey = tuple[int, tuple[tuple[int, bytes, bytes, bool], ...]]
"""What decides on packets: the maximum packet size of the client, and topic id, head, block and `retain` of the `Form`
of each topic."""


class Cursor(Protocol):
    """Source of the records of a feed: a `timestone.reader.Reader`, or an object with its interface. Any thread may
    call `wake`; the thread that serves the feed calls the rest."""

    @property
    def offset(self) -> int: ...
    @property
    def caught_up(self) -> bool: ...
    def read(self, *, max_records: int = ..., max_bytes: int = ..., max_scan: int | None = None) -> Batch: ...
    def park(self) -> bool: ...
    def seek(self, offset: int) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class SharedBatch:
    """A batch, and its packets by what decides on them (`delivery.packing`)."""

    batch: Batch
    place: tuple[object, int, int, tuple[str, ...] | None]
    """Log, offset of the reader, end of the log, and topic filters."""
    topic_ids: list[int] = field(default_factory=list)
    """Topics of the records, each once; looked up when a second feed reads the batch."""
    packets: dict[PacketsKey, Any] = field(default_factory=dict)


class SharedReads:
    """Last batches that were read from logs in memory. Used by the event loop's thread only."""

    __slots__ = ("_batches", "last")

    def __init__(self) -> None:
        self._batches: dict[tuple[Any, ...], SharedBatch] = {}
        self.last: SharedBatch | None = None
        """What the last call of `read` has returned; None if other feeds cannot have it."""

    def read(self, cursor: Cursor, *, max_records: int, max_bytes: int, max_scan: int) -> Batch:
        """Read as `Reader.read` does; a batch that another one with the same filters has read from the same offset to
        the same end of the log is not read again. Raises as that does."""
        if type(cursor) is not Reader or cursor.filter_count > _FILTERS:
            self.last = None
            return cursor.read(max_records=max_records, max_bytes=max_bytes, max_scan=max_scan)
        log = cursor.log
        place = log, cursor.offset, log.end_offset, cursor.topics
        key = place, max_records
        self.last = self._batches.get(key)
        if self.last is None:
            batch = cursor.read(max_records=max_records, max_bytes=max_bytes, max_scan=max_scan)
            if len(self._batches) == _BATCHES:
                self._batches.clear()
            self.last = self._batches[key] = SharedBatch(batch, place)
        else:
            log.check_open()
            if not self.last.topic_ids:
                self.last.topic_ids = np.unique(self.last.batch.topic_ids).tolist()
            cursor.offset = self.last.batch.next_offset
        return self.last.batch
