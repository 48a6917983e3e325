"""Segments of a log in order, as an immutable value, and the search for records in them.

Replaced as a whole whenever a segment is added, sealed or removed, so a reader that took it sees one consistent past
and needs no lock. Used by the owner's `Log` and by the read-only `LogView`."""

import bisect
import itertools
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from timestone.disk.catalog import CatalogRow
from timestone.kernel.loops import ShownSegments
from timestone.reading.listed_segments import ListedSegments
from timestone.segment import Run, Segment


class LostRange(NamedTuple):
    """Offsets [first, end) that were assigned and that no segment holds."""

    first: int
    end: int
    reason: str = ""
    """The cause and the file; empty if unknown."""


def start_in_front(first_offset: int, lost: Iterable[tuple[int, int]]) -> int:
    """Return the start of a log whose first record has `first_offset`: that offset, or the first of the lost offsets
    [first, end) that end there."""
    for first, end in sorted(lost, reverse=True):
        if first < first_offset <= end:
            first_offset = first
    return first_offset


class SegmentList(ShownSegments):
    """Sealed segments and at most one growing one, by base offset. Gaps are possible where offsets were skipped after a
    power loss."""

    __slots__ = ("_bases", "local", "missing")
    segments: Sequence[Segment]

    def __init__(self, segments: Sequence[Segment], missing: Sequence[LostRange] = ()) -> None:
        """missing: lost offsets, as noted by a recovery and found in the files, in order."""
        self.local: SegmentList | None = None
        """The segments on the disk, when others are in front of them here."""
        self.missing = missing
        if isinstance(segments, ListedSegments):
            self.segments = segments
            self._bases: Sequence[int] = segments.bases
        else:
            self.segments = tuple(segments)
            self._bases = [segment.base_offset for segment in self.segments]

    def sealed(self) -> list[Segment]:
        """Return the sealed segments before the first that is not sealed."""
        return list(itertools.takewhile(lambda segment: segment.trailer is not None, self.segments))

    def start(self, end: int) -> int:
        """Return the first offset of the log: that of the first segment, or of the lost offsets before it. end: of the
        log. What retention deleted is not lost."""
        lost = [(one.first, one.end) for one in self.missing]
        return start_in_front(self._bases[0] if self._bases else end, lost)

    def replaced(self, old: Segment, new: Segment) -> "SegmentList":
        """Return the list with one segment exchanged."""
        return SegmentList([new if segment is old else segment for segment in self.segments], self.missing)

    def without(self, base_offsets: Container[int]) -> "SegmentList":
        """Return the list without the segments of these base offsets."""
        return SegmentList(
            [segment for segment in self.segments if segment.base_offset not in base_offsets], self.missing
        )

    def behind(self, deleted: Container[Segment]) -> "SegmentList":
        """Return the list without these segments at its front, and without the lost offsets before the next one."""
        kept = [segment for segment in self.segments if segment not in deleted]
        return SegmentList(kept, [one for one in self.missing if kept and one.first >= kept[0].base_offset])

    def followed_by(self, segment: Segment) -> "SegmentList":
        """Return the list with one more segment at its end."""
        return SegmentList((*self.segments, segment), self.missing)

    def locate(self, offset: int) -> Segment | None:
        """Return the segment that holds `offset`, or the first one after it; None after the last record."""
        at = bisect.bisect_right(self._bases, offset) - 1
        if at >= 0 and offset < self.segments[at].end_offset:
            return self.segments[at]
        for place in range(at + 1, len(self.segments)):
            if self.segments[place].count:
                return self.segments[place]
        return None

    def within(self, first: int, last: int) -> Iterator[Segment]:
        """Yield the segments that hold records of the offsets [first, last), in order."""
        place = max(0, bisect.bisect_right(self._bases, first) - 1)
        while first < last and place < len(self._bases) and self._bases[place] < last:
            segment = self.segments[place]
            if segment.count and segment.end_offset > first:
                yield segment
            place += 1

    def bounded(self, first: int, last: int) -> list[tuple[int, int, Segment]]:
        """Return the same segments with the offsets [base, end) that are read from each: one of a bucket may reach into
        the first one on the disk, because replicas end segments at offsets of their own."""
        found = list(self.within(first, last))
        ends = itertools.chain((one.base_offset for one in found[1:]), [sys.maxsize])
        return [
            (one.base_offset, min(one.end_offset, end), one) for one, end in zip(found, ends, strict=False)
        ]

    def gap_at(self, offset: int) -> tuple[int, int] | None:
        """Return the offsets [end, base) between two segments, if `offset` is one of them and not the first; else
        None."""
        following = self.locate(offset)
        if following is None or following.base_offset <= offset:
            return None
        for place in range(bisect.bisect_right(self._bases, offset) - 1, -1, -1):
            if self.segments[place].count:
                end = self.segments[place].end_offset
                return (end, following.base_offset) if end < offset else None
        return None

    def lost_between(self, offset: int, end: int) -> Iterator[LostRange]:
        """Yield, in order, the ranges of assigned offsets in [offset, end) that no segment holds any more.

        Offsets are skipped only where the epoch rises, so a gap within an epoch is a loss. In any other gap, before the
        first segment and after the last one, only offsets in `missing` are lost."""
        for first, following, within_epoch in self._gaps(offset, end):
            known = sorted(one for one in self.missing if one.first < following and one.end > first)
            if within_epoch:
                yield LostRange(first, following, next((one.reason for one in known if one.reason), ""))
                continue
            for one in known:  # they may overlap
                lost = LostRange(max(one.first, first), min(one.end, following), one.reason)
                if lost.first < lost.end:
                    yield lost
                    first = lost.end

    def _gaps(self, offset: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the offsets [first, following) in [offset, end) that no segment has, and whether the segments around
        them are of one epoch."""
        place = max(0, bisect.bisect_right(self._bases, offset) - 1)
        while place and not self.segments[place].count:
            place -= 1  # for a segment that has lost all its records, the gap begins after the one before it
        before: Segment | None = None
        reached = offset
        while place < len(self._bases) and reached < end:
            segment = self.segments[place]
            place += 1
            if not segment.count:
                continue
            if segment.base_offset > reached:
                epoch = before.epoch if before is not None else None
                yield reached, segment.base_offset, epoch is not None and epoch == segment.epoch
            before, reached = segment, max(reached, segment.end_offset)
        if reached < end:
            yield reached, end, False

    def read(self, offset: int, end: int, *, max_records: int, max_bytes: int) -> tuple[Segment, Run] | None:
        """Return the next records in [offset, end), from one segment; None if there are none. The first of them is
        visible; compaction may have removed others."""
        segment = self.locate(offset)
        while segment is not None and segment.base_offset < end:
            ordinal = max(offset - segment.base_offset, 0)
            if segment.may_have_removed:
                ordinal = segment.first_shown(ordinal)
            room = min(max_records, end - segment.base_offset - ordinal)
            if ordinal < segment.count:
                return (
                    (segment, segment.read(ordinal, max_records=room, max_bytes=max_bytes))
                    if room > 0
                    else None
                )
            segment = self.locate(segment.end_offset)
        return None

    def offset_at(self, timestamp_us: int, end: int) -> int:
        """Return the first offset whose append time is at or after the given one; `end` if there is none. Lost offsets
        right before it may have been appended after that time, so the first of them is returned."""
        places = range(len(self.segments))
        first = bisect.bisect_left(places, True, key=lambda place: self._reaches(place, timestamp_us))
        found = end
        for place in places[first:]:
            segment = self.segments[place]
            ordinal = segment.first_at_or_after(timestamp_us)
            if ordinal < segment.count:
                if ordinal:
                    return segment.base_offset + ordinal
                found = segment.base_offset
                break
        before = next(
            (one for one in map(self.segments.__getitem__, reversed(places[:first])) if one.count), None
        )
        behind = before.end_offset if before is not None else 0
        return next((one.first for one in self.lost_between(behind, found)), found)

    def _reaches(self, place: int, timestamp_us: int) -> bool:
        """Return whether one of the segments up to this one has a record of this time or later. Times never
        decrease."""
        for segment in map(self.segments.__getitem__, range(place, -1, -1)):
            if segment.trailer is None and segment.count:
                return segment.first_at_or_after(timestamp_us) < segment.count
            if segment.trailer is not None and segment.trailer.last_timestamp_us:
                return segment.trailer.last_timestamp_us >= timestamp_us
        return False


def lost_behind(last: Segment, row: CatalogRow, known: Sequence[LostRange]) -> list[LostRange]:
    """Return the offsets lost after the last segment according to the catalogue, unless they are in `known`. If a power
    loss could have removed records, the epoch has risen: see `SegmentScan.lost_behind`."""
    end, following = last.end_offset, row.next_offset
    sealed = last.trailer is not None and last.epoch == row.epoch
    if not sealed or end >= following or any(one.end >= following for one in known):
        return []
    return [LostRange(end, following)]
