"""Keeping only the last record of each topic: which records go, and when.

What belongs here: the choice, the pace, and what is remembered from pass to pass. The work on a segment is
`compacting.py`. Runs on the maintenance thread, a slice at a time and at a bounded rate.

What is promised, whatever happens meanwhile:

- order and offsets stay; a removed record leaves a gap in what is read;
- only sealed segments are compacted, and only records in sealed segments let older ones go: what may not survive a
  power loss supersedes nothing;
- a record goes only for the sake of a newer one of its topic whose bytes were proven in this pass, so a reader from
  the start sees at least the last record of each topic;
- a tombstone (an empty payload, or the flag) goes once nothing older of its topic has been left for `tombstone_ms`,
  so a reader that has seen the older record has that long to see the tombstone as well;
- a record to be retained (MQTT's flag) goes only for the sake of a newer one that is, and while it stays no tombstone
  of its topic goes: what is retained can always be told from the log;
- records without a topic stay.

A pass learns the last offset of each topic from the segments that were sealed since the one before, then rewrites
what that makes worth it, oldest first: the tombstone of a record never goes before the record, not even through a
power loss, because each segment is durable before the next is touched."""

import json
import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timestone.disk.json_document import integer, json_object
from timestone.errors import CorruptLog, CorruptRecord
from timestone.index import DamagedIndex
from timestone.kernel.entries import ENTRY_BYTES, NO_TOPIC, Entries
from timestone.record import FLAG_REMOVED, FLAG_RETAIN, FLAG_TOMBSTONE
from timestone.segment import Segment
from timestone.upkeep.host import UpkeptLog, UpkeptStore
from timestone.upkeep.segment_compaction import CompactedCopy
from timestone.upkeep.sliced_pass import SlicedPass, Slices
from timestone.writing.segment_swap import check_space

_LOGGER = logging.getLogger("timestone")
SPACE = "compaction"
"""The space of the catalogue's documents: one for each log folder."""
_DIRTY_SHARE = 0.5
"""A pass begins when this part of the sealed bytes is newer than the last one: at most as much is written again as was
appended."""
_CHUNK_ENTRIES = 1 << 16
_SLICE_BYTES = 1 << 20
_SWEEPS_MOST = 16
"""Passes that are remembered for tombstones; those in between are left out, and a tombstone stays a little longer."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a log remembers of its passes."""

    clean_to: int = 0
    """Below this offset each topic had one record left when the last pass ended."""
    whole: bool = True
    """Nothing was left out below `clean_to`; else the next pass learns from all records again."""
    sweeps: tuple[tuple[int, int], ...] = ()
    """(when, offset) of passes that left nothing out: from then on no record below the offset had an older one of
    its topic. When: by `SteadyClock`."""

    def horizon(self, before_us: int) -> int:
        """Tombstones below this offset have been without older records since `before_us`."""
        return max((offset for when_us, offset in self.sweeps if when_us <= before_us), default=0)

    def swept(self, now_us: int, clean_to: int, spacing_us: int) -> "Progress":
        """The same after a pass that left nothing out."""
        # One from the future is of an earlier count, which was lost.
        sweeps = tuple(sweep for sweep in self.sweeps if sweep[0] <= now_us)
        if not sweeps or now_us - sweeps[-1][0] >= spacing_us:
            sweeps = (*sweeps, (now_us, clean_to))[-2 * _SWEEPS_MOST :]
        return Progress(clean_to, True, sweeps)

    def encode(self) -> bytes:
        return json.dumps({"clean_to": self.clean_to, "whole": self.whole, "swept": self.sweeps}).encode()

    @classmethod
    def decode(cls, document: bytes | None) -> "Progress":
        """What makes no sense counts for nothing: the next pass does all the work again."""
        try:
            values = json_object(document or b"{}")
            sweeps = tuple((integer(when_us), integer(offset)) for when_us, offset in values.get("swept", ()))
            return cls(integer(values.get("clean_to", 0)), values.get("whole", True) is True, sweeps)
        except (ValueError, TypeError):
            return cls()


class LatestOffsets:
    """The last offset that is known of each topic, and the last with the flag to retain; 16 bytes a topic."""

    def __init__(self, topic_count: int) -> None:
        self._offsets = np.full(topic_count, -1, dtype=np.int64)
        self._retained = np.full(topic_count, -1, dtype=np.int64)

    def hear(self, entries: Entries, offsets: npt.NDArray[np.int64]) -> None:
        """Take in records that are proven, in order."""
        topics = entries["topic"]
        known = topics < len(self._offsets)
        self._offsets[topics[known]] = offsets[known]  # of equal topics, the last one counts
        known &= _is_retained(entries)
        self._retained[topics[known]] = offsets[known]

    def of(self, entries: Entries) -> npt.NDArray[np.int64]:
        """The offset of what each of these records would go for; -1 where that is not known."""
        topics = entries["topic"]
        found = np.full(len(topics), -1, dtype=np.int64)
        known = topics < len(self._offsets)
        found[known] = self._offsets[topics[known]]
        known &= _is_retained(entries)
        found[known] = self._retained[topics[known]]
        return found


class LogCompaction:
    """Compacts one log. Any thread may call; one works at a time."""

    def __init__(self, log: UpkeptLog, store: UpkeptStore) -> None:
        self._log = log
        self._store = store
        self._passes = SlicedPass(lambda: self._pass(at_once=False))
        self._waits = False
        """Somebody else rewrites a segment that this pass wanted to."""

    def expect(self) -> None:
        """There may be something to compact: look, in the background."""
        if self._log.config.compact:
            self._store.maintenance.expect(self.run)

    def run(self) -> float | None:
        """The task for the background: one slice, and in how many seconds the next. Raises OSError."""
        done = self._passes.step()
        return None if done is None else done / self._store.config.compact_bytes_per_s

    def apply(self) -> int:
        """One whole pass now, as fast as it goes; returns how many records were removed. Raises OSError."""
        before = self._removed_count()
        self._passes.finish(self._pass(at_once=True))
        return self._removed_count() - before

    def close(self) -> None:
        """Leave what is half done, without a trace, and begin nothing any more."""
        self._passes.close()

    def _removed_count(self) -> int:
        return sum(one.trailer.removed_count for one in self._log.history.segments if one.trailer)

    def _pass(self, *, at_once: bool) -> Slices:
        log = self._log
        if log.failure is not None or not log.config.compact:
            return
        sealed = log.history.sealed()
        progress = self._progress()
        if not sealed or not (at_once or _is_worth(sealed, progress)):
            return
        latest = LatestOffsets(len(log.topics))
        for segment in sealed:
            if segment.end_offset > progress.clean_to or not progress.whole:
                yield from self._learn(segment, latest)
        tombstone_us = log.config.tombstone_ms * 1000
        horizon = progress.horizon(self._store.steady_clock.now_us() - tombstone_us)
        left = np.zeros(len(log.topics), dtype=np.bool_)
        whole, self._waits = True, False
        for segment in sealed:
            whole = (yield from self._compact(segment, latest, horizon, left)) and whole
        if self._waits:
            return  # the next pass begins where this one did
        clean_to = sealed[-1].end_offset
        if whole:
            now_us = self._store.steady_clock.now_us()
            progress = progress.swept(now_us, clean_to, tombstone_us // _SWEEPS_MOST)
        else:
            progress = Progress(clean_to, False, progress.sweeps)
        self._store.documents.put_many(SPACE, {log.folder.name: progress.encode()})

    def _progress(self) -> Progress:
        try:
            return Progress.decode(self._store.documents.get(SPACE, self._log.folder.name))
        except CorruptLog as error:
            _LOGGER.warning("%s: compaction begins again: %s", self._log.folder, error)
            return Progress()

    def _learn(self, segment: Segment, latest: LatestOffsets) -> Iterator[int]:
        """The last offsets of a segment, of records whose bytes hold."""
        ordinal = 0
        while ordinal < segment.count:
            current = self._current(segment)
            if current is None:
                return
            try:
                run = current.read(ordinal, max_records=_CHUNK_ENTRIES, max_bytes=_SLICE_BYTES)
            except CorruptRecord as error:
                ordinal = error.offset - segment.base_offset + 1
                continue
            except FileNotFoundError:
                if self._log.rewrites.is_current(current):
                    raise
                continue
            ordinals = np.arange(ordinal, ordinal + len(run.entries), dtype=np.int64)
            shown = (run.entries["flags"] & FLAG_REMOVED) == 0
            latest.hear(run.entries[shown], segment.base_offset + ordinals[shown])
            ordinal += len(run.entries)
            yield len(run.data) + len(run.entries) * ENTRY_BYTES

    def _compact(
        self, segment: Segment, latest: LatestOffsets, horizon: int, left: Mask
    ) -> Generator[int, None, bool]:
        """Remove what may go from one segment; false when it has to stay as it is although something should go.

        left: the topics of which an older record stays all the same; their tombstones do, too."""
        current = self._current(segment)
        if current is None:
            return True
        outdated = np.zeros(0, dtype=np.uint32)
        with self._log.rewrites.claim(current) as free:
            try:
                gone = np.zeros(current.count, dtype=np.bool_)
                outdated = yield from self._choose(current, latest, horizon, left, gone)
                if not gone.any():
                    return True
                if free:
                    yield from self._rewrite(current, gone)
                    return True
                self._waits = True
            except FileNotFoundError:
                if self._log.rewrites.is_current(current):
                    raise
                return self._current(segment) is None
            except (CorruptRecord, DamagedIndex) as error:  # damage to the header page the next open mends
                _LOGGER.error("%s is not compacted: %s", current.segment_path, str(error))
        left[outdated[outdated < len(left)]] = True
        return False

    def _choose(
        self, segment: Segment, latest: LatestOffsets, horizon: int, left: Mask, gone: Mask
    ) -> Generator[int, None, npt.NDArray[np.uint32]]:
        """Mark what may go in `gone`, by ordinal; returns the topics of which an older record is there."""
        topics_found: list[npt.NDArray[np.uint32]] = []
        for first in range(0, segment.count, _CHUNK_ENTRIES):
            last = min(first + _CHUNK_ENTRIES, segment.count)
            entries = segment.mapped_entries(segment.pair(), first, last)
            offsets = np.arange(segment.base_offset + first, segment.base_offset + last, dtype=np.int64)
            topics = entries["topic"]
            named = (topics != NO_TOPIC) & ((entries["flags"] & FLAG_REMOVED) == 0)
            older = named & (latest.of(entries) > offsets)
            topics_found.append(np.unique(topics[older]))
            held = named & ~older & _is_retained(entries) & ~_is_tombstone(entries) & (topics < len(left))
            left[topics[held]] = True
            expired = named & _is_tombstone(entries) & (offsets < horizon) & (topics < len(left))
            expired[expired] = ~left[topics[expired]]
            gone[first:last] = older | expired
            yield len(entries) * ENTRY_BYTES
        return np.concatenate(topics_found) if topics_found else np.zeros(0, dtype=np.uint32)

    def _rewrite(self, segment: Segment, gone: Mask) -> Iterator[int]:
        assert segment.trailer is not None
        added_bytes = segment.trailer.segment_bytes + segment.trailer.file_bytes
        check_space(self._store.files, segment.segment_path, added_bytes, self._store.config.min_free_bytes)
        copy = CompactedCopy(self._store.files, segment, gone | _removed_before(segment))
        try:
            yield from copy.slices()
            if self._log.rewrites.replace(segment, copy.replacement, copy.trailer):
                self._log.read_compacted(segment.end_offset)
                self._log.compression.expect()
        finally:
            copy.close()

    def _current(self, segment: Segment) -> Segment | None:
        """The segment as it is now: another may have rewritten it, or retention deleted it."""
        history = self._log.history.segments
        return next((one for one in history if one.base_offset == segment.base_offset), None)


def _is_worth(sealed: list[Segment], progress: Progress) -> bool:
    sizes = [(one.trailer.segment_bytes + one.trailer.file_bytes, one) for one in sealed if one.trailer]
    dirty = sum(size for size, one in sizes if one.end_offset > progress.clean_to)
    return dirty > 0 and dirty >= _DIRTY_SHARE * sum(size for size, _ in sizes)


def _removed_before(segment: Segment) -> Mask:
    entries = segment.mapped_entries(segment.pair(), 0, segment.count)
    return np.asarray((entries["flags"] & FLAG_REMOVED) != 0, dtype=np.bool_)


def _is_retained(entries: Entries) -> Mask:
    return np.asarray((entries["flags"] & FLAG_RETAIN) != 0, dtype=np.bool_)


def _is_tombstone(entries: Entries) -> Mask:
    empty = entries["length"] == entries["header_length"]
    return np.asarray(empty | ((entries["flags"] & FLAG_TOMBSTONE) != 0), dtype=np.bool_)
