"""The segments of a log in order, as an immutable value, and how records are found in them.

Replaced whole whenever a segment comes, is sealed or goes, so a reader that took it sees one consistent past
and needs no lock. Used by the owner's `Log` and by the read-only `LogView` alike."""

import bisect
import itertools
from collections.abc import Sequence

from timestone.segment import Run, Segment


class History:
    """Sealed segments and at most one growing one, by base offset. There may be gaps between them where an
    offset was never given out again after a power loss."""

    __slots__ = ("_bases", "segments")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        self._bases = [segment.base_offset for segment in self.segments]

    def sealed(self) -> list[Segment]:
        """The sealed segments in front of the first that is not."""
        return list(itertools.takewhile(lambda segment: segment.trailer is not None, self.segments))

    def replaced(self, old: Segment, new: Segment | None) -> "History":
        """The same history with one segment exchanged or, for None, removed."""
        exchanged = (new if segment is old else segment for segment in self.segments)
        return History([segment for segment in exchanged if segment is not None])

    def without(self, base_offset: int) -> "History":
        """The same history less the segment with this base offset."""
        return History([segment for segment in self.segments if segment.base_offset != base_offset])

    def followed_by(self, segment: Segment) -> "History":
        """The same history with one more segment at its end."""
        return History((*self.segments, segment))

    def locate(self, offset: int) -> Segment | None:
        """The segment that holds `offset`, or the first one behind it; None behind the last record."""
        at = bisect.bisect_right(self._bases, offset) - 1
        if at >= 0 and offset < self.segments[at].end_offset:
            return self.segments[at]
        for segment in self.segments[at + 1 :]:
            if segment.count:
                return segment
        return None

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
        for segment in self.segments:
            if segment.count == 0 or (segment.trailer and segment.trailer.last_timestamp_us < timestamp_us):
                continue
            ordinal = segment.first_at_or_after(timestamp_us)
            if ordinal < segment.count:
                return segment.base_offset + ordinal
        return end
