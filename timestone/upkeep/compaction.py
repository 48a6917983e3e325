"""Compaction: keeps only the last record of each topic. Decides which records are removed and when;
`segment_compaction.py` rewrites a segment. Runs on the maintenance thread in slices at a limited rate.

Guarantees:

- order and offsets stay; a removed record leaves a gap in what is read;
- only sealed segments are compacted, and only records in sealed segments supersede older ones, because a record that a
  power loss may take must supersede nothing;
- a record is removed only for a newer one of its topic that was verified in this pass, so a reader from the start gets
  at least the last record of each topic;
- a tombstone (an empty payload, or the flag) is removed when no older record of its topic has been left for
  `tombstone_ms`, so a reader that has seen the older record has that long to see the tombstone;
- a record to be retained (flag of MQTT) is removed only for a newer one that is retained, and while it stays, no
  tombstone of its topic is removed: the retained message can always be found in the log;
- records without a topic stay.

A pass learns the last offset of each topic from the segments sealed since the last pass, then rewrites the segments
for which that is worth it, oldest first. A tombstone is never removed before the record, not even by a power loss,
because each segment is durable before the next is rewritten."""

import json
import logging
from collections.abc import Generator, Iterator
from contextlib import closing
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
from timestone.upkeep.segment_check import NotProven
from timestone.upkeep.segment_compaction import CompactedCopy
from timestone.upkeep.sliced_pass import SlicedPass, Slices
from timestone.writing.segment_swap import check_space

_LOGGER = logging.getLogger("timestone")
SPACE = "compaction"
"""Namespace in the catalogue: one document for each log folder."""
_DIRTY_SHARE = 0.5
"""A pass begins when this share of the sealed bytes is newer than the last one, so at most as many bytes are
rewritten as appended."""
_CHUNK_ENTRIES = 1 << 16
_SLICE_BYTES = 1 << 20
_SWEEPS_MOST = 16
"""Maximum number of remembered passes; others are dropped, which keeps a tombstone a little longer."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of compaction of a log."""

    clean_to: int = 0
    """Offset below which each topic had one record left at the end of the last pass."""
    whole: bool = True
    """Whether no record was skipped below `clean_to`; otherwise the next pass learns from all records again."""
    sweeps: tuple[tuple[int, int], ...] = ()
    """(time, offset) of passes that skipped nothing: no record below the offset has had an older one of its topic
    since. Time by `SteadyClock`."""

    @property
    def clean_offset(self) -> int:
        """Return the offset below which no record has an older one of its topic."""
        return self.clean_to if self.whole else max((offset for _, offset in self.sweeps), default=0)

    def horizon(self, before_us: int) -> int:
        """Return the offset below which tombstones have been without older records since `before_us`."""
        return max((offset for when_us, offset in self.sweeps if when_us <= before_us), default=0)

    def swept(self, now_us: int, clean_to: int, spacing_us: int) -> "Progress":
        """Return the progress after a pass that skipped nothing."""
        # A time in the future is of an earlier count of the clock, which was lost.
        sweeps = tuple(sweep for sweep in self.sweeps if sweep[0] <= now_us)
        if not sweeps or now_us - sweeps[-1][0] >= spacing_us:
            sweeps = (*sweeps, (now_us, clean_to))[-2 * _SWEEPS_MOST :]
        return Progress(clean_to, True, sweeps)

    def encode(self) -> bytes:
        return json.dumps({"clean_to": self.clean_to, "whole": self.whole, "swept": self.sweeps}).encode()

    @classmethod
    def decode(cls, document: bytes | None) -> "Progress":
        """Decode a document. An invalid one gives no progress: the next pass does all the work again."""
        try:
            values = json_object(document or b"{}")
            sweeps = tuple((integer(when_us), integer(offset)) for when_us, offset in values.get("swept", ()))
            return cls(integer(values.get("clean_to", 0)), values.get("whole", True) is True, sweeps)
        except (ValueError, TypeError):
            return cls()


class LatestOffsets:
    """Last known offset of each topic, and the last with the retain flag; 16 bytes a topic."""

    def __init__(self, topic_count: int) -> None:
        self._offsets = np.full(topic_count, -1, dtype=np.int64)
        self._retained = np.full(topic_count, -1, dtype=np.int64)

    def hear(self, entries: Entries, offsets: npt.NDArray[np.int64]) -> None:
        """Add verified records in order."""
        topics = entries["topic"]
        known = topics < len(self._offsets)
        self._offsets[topics[known]] = offsets[known]  # of equal topics, the last one wins
        known &= _is_retained(entries)
        self._retained[topics[known]] = offsets[known]

    def of(self, entries: Entries) -> npt.NDArray[np.int64]:
        """Return the offset of the record that supersedes each of these; -1 if unknown."""
        topics = entries["topic"]
        found = np.full(len(topics), -1, dtype=np.int64)
        known = topics < len(self._offsets)
        found[known] = self._offsets[topics[known]]
        known &= _is_retained(entries)
        found[known] = self._retained[topics[known]]
        return found


class LogCompaction:
    """Compaction of one log. Any thread may call; one works at a time."""

    def __init__(self, log: UpkeptLog, store: UpkeptStore) -> None:
        self._log = log
        self._store = store
        self._passes = SlicedPass(lambda: self._pass(at_once=False))
        self._waits = False
        """Whether another task is rewriting a segment of this pass."""
        self._known: Progress | None = None

    def expect(self) -> None:
        """Schedule a check in the background."""
        if self._log.config.compact:
            self._store.maintenance.expect(self.run)

    def run(self) -> float | None:
        """Run one slice. Return the seconds until the next; None to stop. Raises OSError."""
        done = self._passes.step()
        return None if done is None else done / self._store.config.compact_bytes_per_s

    def apply(self) -> int:
        """Run one whole pass now, unthrottled. Return the number of removed records. Raises OSError."""
        before = self._removed_count()
        self._passes.finish(self._pass(at_once=True))
        return self._removed_count() - before

    @property
    def clean_offset(self) -> int:
        """Return the offset below which no record has an older one of its topic; 0 if the log is not compacted."""
        return self._progress().clean_offset if self._log.config.compact else 0

    def close(self) -> None:
        """Discard the unfinished pass and begin no other."""
        self._passes.close()

    def _removed_count(self) -> int:
        return sum(one.trailer.removed_count for one in self._log.segment_list.segments if one.trailer)

    def _pass(self, *, at_once: bool) -> Slices:
        log = self._log
        if log.failure is not None or not log.config.compact:
            return
        sealed = log.rewrites.segments()
        progress = self._progress()
        if not sealed or not (at_once or _is_worth(sealed, progress)):
            return
        latest = LatestOffsets(len(log.topics))
        for segment in sealed:
            if segment.end_offset > progress.clean_to or not progress.whole:
                yield from self._learn(segment, latest)
        tombstone_us = log.config.tombstone_ms * 1000
        horizon = progress.horizon(self._store.steady_clock.now_us() - tombstone_us)
        horizon = log.rewrites.tombstones_below(horizon)
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
        self._known = progress

    def _progress(self) -> Progress:
        if self._known is None:
            try:
                self._known = Progress.decode(self._store.documents.get(SPACE, self._log.folder.name))
            except CorruptLog as error:
                _LOGGER.warning("%s: compaction begins again: %s", self._log.folder, error)
                self._known = Progress()
        return self._known

    def _learn(self, segment: Segment, latest: LatestOffsets) -> Iterator[int]:
        """Learn the last offsets of a segment, of verified records."""
        ordinal = 0
        while ordinal < segment.count:
            current = self._current(segment)
            if current is None:
                return
            try:
                run = current.read(ordinal, max_records=_CHUNK_ENTRIES, max_bytes=_SLICE_BYTES)
            except CorruptRecord as error:
                ordinal = error.next_offset - segment.base_offset
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
        """Remove superseded records from one segment. Return False if it stays although records should be removed.
        left: topics of which an older record stays; their tombstones stay too."""
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
            except (CorruptRecord, DamagedIndex, NotProven) as error:  # the next open repairs a header page
                _LOGGER.error("%s is not compacted: %s", current.segment_path, str(error))
        left[outdated[outdated < len(left)]] = True
        return False

    def _choose(
        self, segment: Segment, latest: LatestOffsets, horizon: int, left: Mask, gone: Mask
    ) -> Generator[int, None, npt.NDArray[np.uint32]]:
        """Mark records to remove in `gone`, by ordinal. Return the topics that keep an older record."""
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
        with closing(CompactedCopy(self._store.files, segment, gone | _removed_before(segment))) as copy:
            yield from copy.slices()
            if self._log.rewrites.replace(segment, copy.replacement, copy.trailer):
                self._log.read_compacted(segment.end_offset)
                self._log.compression.expect()

    def _current(self, segment: Segment) -> Segment | None:
        """Return the current segment: it may have been rewritten by another task, or deleted by retention."""
        segment_list = self._log.segment_list.segments
        return next((one for one in segment_list if one.base_offset == segment.base_offset), None)


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
