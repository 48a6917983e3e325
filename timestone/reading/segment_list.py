"""The segments of a log in order, as an immutable value, and how records are found in them.

Replaced whole whenever a segment comes, is sealed or goes, so a reader that took it sees one consistent past
and needs no lock. Used by the owner's `Log` and by the read-only `LogView` alike."""

import bisect
import itertools
from collections.abc import Container, Iterator, Sequence

from timestone.reading.listed_segments import ListedSegments
from timestone.segment import Run, Segment


class History:
    """Sealed segments and at most one growing one, by base offset. There may be gaps between them where an
    offset was never given out again after a power loss."""

    __slots__ = ("_bases", "missing", "segments")

    def __init__(self, segments: Sequence[Segment], missing: Sequence[tuple[int, int]] = ()) -> None:
        """missing: offsets [first, end) that a recovery found lost to damage, in order."""
        self.missing = missing
        if isinstance(segments, ListedSegments):
            self.segments: Sequence[Segment] = segments
            self._bases: Sequence[int] = segments.bases
        else:
            self.segments = tuple(segments)
            self._bases = [segment.base_offset for segment in self.segments]

    def sealed(self) -> list[Segment]:
        """The sealed segments in front of the first that is not."""
        return list(itertools.takewhile(lambda segment: segment.trailer is not None, self.segments))

    def replaced(self, old: Segment, new: Segment) -> "History":
        """The same history with one segment exchanged."""
        return History([new if segment is old else segment for segment in self.segments], self.missing)

    def without(self, base_offsets: Container[int]) -> "History":
        """The same history less the segments with these base offsets."""
        return History(
            [segment for segment in self.segments if segment.base_offset not in base_offsets], self.missing
        )

    def followed_by(self, segment: Segment) -> "History":
        """The same history with one more segment at its end."""
        return History((*self.segments, segment), self.missing)

    def locate(self, offset: int) -> Segment | None:
        """The segment that holds `offset`, or the first one behind it; None behind the last record."""
        at = bisect.bisect_right(self._bases, offset) - 1
        if at >= 0 and offset < self.segments[at].end_offset:
            return self.segments[at]
        for place in range(at + 1, len(self.segments)):
            if self.segments[place].count:
                return self.segments[place]
        return None

    def within(self, first: int, last: int) -> Iterator[Segment]:
        """The segments that hold records of the offsets [first, last), in order."""
        place = max(0, bisect.bisect_right(self._bases, first) - 1)
        while first < last and place < len(self._bases) and self._bases[place] < last:
            segment = self.segments[place]
            if segment.count and segment.end_offset > first:
                yield segment
            place += 1

    def gap_at(self, offset: int) -> tuple[int, int] | None:
        """The offsets [end, base) between two segments, when `offset` is one of them and not the first; else None."""
        following = self.locate(offset)
        if following is None or following.base_offset <= offset:
            return None
        for place in range(bisect.bisect_right(self._bases, offset) - 1, -1, -1):
            if self.segments[place].count:
                end = self.segments[place].end_offset
                return (end, following.base_offset) if end < offset else None
        return None

    def lost_between(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """The runs of offsets [first, following) from `offset` on that were given out below `end` and are in no segment
        any more, in order. What is missing because it is meant to be is not among them.

        Offsets are left out only where the epoch rises, so a gap within one is a loss. In any other gap, and behind the
        last segment, recovery has noted what was."""
        for first, following, within_epoch in self._gaps(offset, end):
            if within_epoch:
                yield max(first, offset), following
                continue
            for lost, lost_end in self.missing:
                if max(lost, first, offset) < min(lost_end, following):
                    yield max(lost, first, offset), min(lost_end, following)

    def _gaps(self, offset: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """The offsets [first, following) that no segment has, of those from `offset` to `end`, and whether the segments
        around them are of one epoch."""
        place = max(0, bisect.bisect_right(self._bases, offset) - 1)
        while place and not self.segments[place].count:
            place -= 1  # of one that has lost all its records, the gap begins behind the one in front
        before: Segment | None = None
        while place < len(self._bases) and (before is None or before.end_offset < end):
            segment = self.segments[place]
            place += 1
            if not segment.count:
                continue
            if before is not None and segment.base_offset > max(offset, before.end_offset):
                within_epoch = before.epoch is not None and before.epoch == segment.epoch
                yield before.end_offset, segment.base_offset, within_epoch
            before = segment
        if before is not None and before.end_offset < end:
            yield before.end_offset, end, False

    def read(self, offset: int, end: int, *, max_records: int, max_bytes: int) -> tuple[Segment, Run] | None:
        """The next records at or behind `offset` and below `end`, from one segment; None when there are none.
        The first of them is shown; others may have been removed by compaction."""
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
        """The first offset whose append time is at or after the given one; `end` when there is none."""
        places = range(len(self.segments))
        first = bisect.bisect_left(places, True, key=lambda place: self._reaches(place, timestamp_us))
        for place in places[first:]:
            segment = self.segments[place]
            ordinal = segment.first_at_or_after(timestamp_us)
            if ordinal < segment.count:
                return segment.base_offset + ordinal
        return end

    def _reaches(self, place: int, timestamp_us: int) -> bool:
        """Has one of the segments up to this one a record of this time or later? Times never decrease."""
        for segment in map(self.segments.__getitem__, range(place, -1, -1)):
            if segment.trailer is None and segment.count:
                return segment.first_at_or_after(timestamp_us) < segment.count
            if segment.trailer is not None and segment.trailer.last_timestamp_us:
                return segment.trailer.last_timestamp_us >= timestamp_us
        return False
