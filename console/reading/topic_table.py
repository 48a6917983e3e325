"""Counts of the topics of a log, followed from its index while a page is open: no record is read for them. Columns by
topic id; the tree is the sorted names, in which a subtree is one run."""

import bisect
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from timestone.errors import TimestoneError
from timestone.kernel.entries import NO_TOPIC
from timestone.reading.segment_list import SegmentList
from timestone.view import LogView

from .topic_runs import AFTER, SEPARATOR, children, key_of, matching_runs

FIRST_RECORDS = 1_000_000
"""Newest records that the first look counts; also how far a later look may be behind before it leaves some out."""
_LOOK_S = 1.0
"""Least time between two looks at the index."""
_RATE_S = 30.0
"""Span over which rates are measured, at least."""
_STEP = 65_536
_LEVELS = 64
_TABLES, _KEPT_S = 8, 600.0
Column = npt.NDArray[np.int64]


class Node(NamedTuple):
    """Level of the tree with all topics below it."""

    name: str
    path: str
    is_topic: bool
    topics_below: int
    records: int
    bytes: int
    records_per_s: float
    last_us: int | None
    last_offset: int | None


class Level(NamedTuple):
    """Children of a level: where the run of each begins in the sorted names, and where the last one ends."""

    names: list[str]
    starts: npt.NDArray[np.int64]
    end: int


class TopicTable:
    """Counts by topic of one log. Any thread may call it."""

    def __init__(self, log: LogView) -> None:
        self.log = log
        self._lock = threading.Lock()
        self._looked_s = -_LOOK_S
        self.from_offset = self.to_offset = max(log.start_offset, log.end_offset - FIRST_RECORDS)
        self.from_us: int | None = None
        self.left_out = 0
        """Records that were not counted since `from_offset`."""
        self._records: Column = np.zeros(0, np.int64)
        self._bytes: Column = np.zeros(0, np.int64)
        self._last_us: Column = np.zeros(0, np.int64)
        self._last_offset: Column = np.full(0, -1, np.int64)
        self._before: tuple[float, Column] = (0.0, self._records)
        """Moment and counts that rates are measured from."""
        self._later: tuple[float, Column] | None = None
        self._names: list[str] = []
        self._keys: list[str] = []
        self._order: Column = np.zeros(0, np.int64)
        self._rank: Column = np.zeros(0, np.int64)
        """Ids by name, and by id the place of each among them."""
        self._levels: OrderedDict[str | None, Level] = OrderedDict()
        self._sums: dict[str | None, Mapping[str, npt.NDArray[Any]]] = {}
        """By level, until the next look."""

    def follow(self) -> None:
        """Count what was appended since the last look. Raises TimestoneError, OSError."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._looked_s < _LOOK_S:
                return
            end = self.log.refresh()
            if self._looked_s < 0:
                now_us = time.time_ns() // 1000
                middle = min(end, max(self.to_offset, self.log.offset_at(now_us - int(_RATE_S * 1e6))))
                self._count_up_to(middle)
                self._before = now_s - _RATE_S, self._records.copy()
            elif end - self.to_offset > FIRST_RECORDS:
                self.left_out += end - FIRST_RECORDS - self.to_offset
                self.to_offset = end - FIRST_RECORDS
            self._count_up_to(end)
            self._turn(now_s)
            self._sort()
            self._looked_s = time.monotonic()
            self._sums.clear()

    def _turn(self, now_s: float) -> None:
        """Move on the moment that rates are measured from: it is one to two spans back."""
        if self._later is None:
            self._later = now_s, self._records.copy()
        elif now_s - self._later[0] >= _RATE_S:
            self._before, self._later = self._later, (now_s, self._records.copy())

    def _count_up_to(self, end: int) -> None:
        while self.to_offset < end:
            following = self.log.look_up(lambda segments: self._step(segments, end))
            if following <= self.to_offset:
                return
            self.to_offset = following

    def _step(self, segments: SegmentList, end: int) -> int:
        """Count the entries of a part of one segment; return the offset behind it."""
        at = self.to_offset
        segment = segments.locate(at)
        if segment is None or segment.base_offset >= end:
            return end
        at = max(at, segment.base_offset)
        first, last = at - segment.base_offset, min(end, segment.end_offset) - segment.base_offset
        if first >= last:
            return end
        try:
            entries = segment.read_entries(first, min(last, first + _STEP))
        except TimestoneError:
            return at + 1  # a damaged entry has no topic that could be believed
        if self.from_us is None and len(entries):
            self.from_us = int(entries["timestamp_us"][0])
        self._add(at, entries["topic"], entries["length"], entries["timestamp_us"])
        return at + len(entries)

    def _add(
        self, offset: int, topics: npt.NDArray[np.uint32], lengths: npt.NDArray[np.uint32], times: Column
    ) -> None:
        named = np.flatnonzero(topics != NO_TOPIC)
        if not len(named):
            return
        ids = topics[named].astype(np.int64)
        self._make_room(int(ids.max()) + 1)
        count = len(self._records)
        self._records += np.bincount(ids, minlength=count)
        self._bytes += np.bincount(ids, weights=lengths[named], minlength=count).astype(np.int64)
        # Of equal indexes the last one counts, and both columns rise.
        self._last_us[ids] = times[named]
        self._last_offset[ids] = named + offset

    def _make_room(self, count: int) -> None:
        """Lengthen the columns to a number of topics."""
        more = max(count, len(self.log.topics)) - len(self._records)
        if more > 0:
            self._records = np.concatenate([self._records, np.zeros(more, np.int64)])
            self._bytes = np.concatenate([self._bytes, np.zeros(more, np.int64)])
            self._last_us = np.concatenate([self._last_us, np.zeros(more, np.int64)])
            self._last_offset = np.concatenate([self._last_offset, np.full(more, -1, np.int64)])

    def _sort(self) -> None:
        """Sort the names again if there are new ones."""
        if len(self.log.topics) == len(self._names) and self._keys:
            return
        names = self.log.topics.names()
        self._names = [name or "" for name in names]
        keyed = sorted((key_of(name), number) for number, name in enumerate(names) if name is not None)
        self._keys = [key for key, _ in keyed]
        self._order = np.array([number for _, number in keyed], dtype=np.int64)
        self._rank = np.zeros(len(names), np.int64)
        self._rank[self._order] = np.arange(len(self._order))
        self._make_room(len(names))
        self._levels.clear()

    def rates(self) -> npt.NDArray[np.float64]:
        """Return the records a second of each topic, by id."""
        at_s, counts = self._before
        earlier = np.zeros(len(self._records), np.int64)
        earlier[: len(counts)] = counts
        return (self._records - earlier) / max(1.0, self._looked_s - at_s)

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all topics."""
        return int(self._bytes.sum())

    def last_offset(self, topic: str) -> int | None:
        """Return the offset of the newest record of a topic among those counted; None if there is none."""
        number = self.log.topics.find(topic)
        found = -1 if number is None or number >= len(self._last_offset) else int(self._last_offset[number])
        return found if found >= 0 else None

    def level(self, under: str | None, sort: str, after: int, limit: int) -> tuple[list[Node], int]:
        """Return some children of a level in an order, and the number of all. under: None for the first level."""
        with self._lock:
            level = self._level(under)
            if not level.names:
                return [], 0
            sums = self._sums_of(under, level)
            order = np.arange(len(level.names))
            if sort != "name":
                order = np.argsort(-sums[sort], kind="stable")
            ends = np.append(level.starts[1:], level.end)
            prefix = "" if under is None else under + "/"
            found = []
            for number in order[after : after + limit]:
                start, end = int(level.starts[number]), int(ends[number])
                path = prefix + level.names[number]
                is_topic = self._keys[start] == key_of(path)
                found.append(
                    Node(
                        name=level.names[number],
                        path=path,
                        is_topic=is_topic,
                        topics_below=end - start - is_topic,
                        records=int(sums["records"][number]),
                        bytes=int(sums["bytes"][number]),
                        records_per_s=float(sums["records_per_s"][number]),
                        last_us=int(sums["last_us"][number]) or None,
                        last_offset=_or_none(int(self._last_offset[self._order[start:end]].max())),
                    )
                )
            return found, len(level.names)

    def _sums_of(self, under: str | None, level: Level) -> Mapping[str, npt.NDArray[Any]]:
        """Return the sums of each child of a level as of the last look."""
        found = self._sums.get(under)
        if found is None:
            run = self._order[int(level.starts[0]) : level.end]
            places = level.starts - level.starts[0]
            found = self._sums[under] = {
                "records": np.add.reduceat(self._records[run], places),
                "bytes": np.add.reduceat(self._bytes[run], places),
                "records_per_s": np.add.reduceat(self.rates()[run], places),
                "last_us": np.maximum.reduceat(self._last_us[run], places),
            }
        return found

    def _level(self, under: str | None) -> Level:
        if under in self._levels:
            self._levels.move_to_end(under)
            return self._levels[under]
        prefix = "" if under is None else key_of(under) + SEPARATOR
        at = bisect.bisect_left(self._keys, prefix)
        end = len(self._keys) if under is None else bisect.bisect_left(self._keys, prefix[:-1] + AFTER)
        names, starts = [], []
        for name, start, _ in children(self._keys, prefix, at, end):
            names.append(name)
            starts.append(start)
        found = Level(names, np.array(starts, dtype=np.int64), end)
        self._levels[under] = found
        if len(self._levels) > _LEVELS:
            self._levels.popitem(last=False)
        return found

    def chosen(self, ids: npt.NDArray[np.int64], sort: str, after: int, limit: int) -> list[Node]:
        """Return some of the topics with these ids, in an order."""
        with self._lock:
            ids = ids[ids < len(self._names)]
            rates = self.rates()
            columns = {
                "records": self._records,
                "bytes": self._bytes,
                "records_per_s": rates,
                "last_us": self._last_us,
            }
            if sort == "name":
                ids = ids[np.argsort(self._rank[ids])]
            else:
                ids = ids[np.argsort(-columns[sort][ids], kind="stable")]
            return [
                Node(
                    name=self._names[number],
                    path=self._names[number],
                    is_topic=True,
                    topics_below=0,
                    records=int(self._records[number]),
                    bytes=int(self._bytes[number]),
                    records_per_s=float(rates[number]),
                    last_us=int(self._last_us[number]) or None,
                    last_offset=_or_none(int(self._last_offset[number])),
                )
                for number in ids[after : after + limit].tolist()
            ]

    def matching(self, topic_filter: str) -> Column:
        """Return the ids of the topics that match a valid filter, by name."""
        with self._lock:
            runs = [self._order[first:end] for first, end in matching_runs(self._keys, topic_filter)]
        return np.concatenate(runs) if runs else np.zeros(0, np.int64)

    def with_text(self, text: str, among: Column) -> Column:
        """Return those ids whose topics have a text in their name."""
        names = self._names
        if len(among) == len(self._order):  # in the order in which they lie in memory
            return np.array([number for number, name in enumerate(names) if text in name], dtype=np.int64)
        return np.array([number for number in among.tolist() if text in names[number]], dtype=np.int64)

    @property
    def ids(self) -> Column:
        """Return the ids of all topics, by name."""
        return self._order


def _or_none(offset: int) -> int | None:
    return offset if offset >= 0 else None


class TopicTables:
    """Tables of the logs whose topics are looked at. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[int, tuple[float, TopicTable]] = OrderedDict()

    def of(self, log: LogView) -> TopicTable:
        """Return the table of a log; those that were not asked for in ten minutes are dropped."""
        now_s = time.monotonic()
        with self._lock:
            _, table = self._tables.pop(log.id, (0.0, None))
            if table is None or table.log is not log:
                table = TopicTable(log)
            self._tables[log.id] = now_s, table
            for key in [key for key, (at_s, _) in self._tables.items() if now_s - at_s > _KEPT_S]:
                del self._tables[key]
            while len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
            return table
