"""Older segments of a log that are kept elsewhere, as an immutable value in front of those on the local disk."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from timestone.disk.files import Files
from timestone.errors import HistoryUnavailable
from timestone.reading.listed_segments import ListedSegments
from timestone.reading.segment_list import LostRange, SegmentList
from timestone.segment import OpenPair, Segment, SegmentCache


@dataclass(frozen=True, slots=True, eq=False)
class RemoteHistory:
    """Part of a log that a bucket holds. Its segments are fetched when they are read, and raise HistoryUnavailable when
    that fails. Replaced whole when segments come or go."""

    start: int
    """Offset of the first record there; equal to `end` when there is none."""
    end: int
    """Behind the last record there."""
    segments: Sequence[Segment] = ()
    """Sealed, in order; they may reach further than the local start."""
    missing: tuple[LostRange, ...] = ()
    """Offsets that were lost to damage before they were uploaded."""
    confirmed: bool = False
    """The owner of the log has found or committed exactly this in the bucket: a local segment below `end` may go."""

    def starting_at(self, offset: int) -> "RemoteHistory":
        """Return the history without what ends at or below an offset."""
        return replace(
            self,
            start=min(max(self.start, offset), self.end),
            segments=tuple(one for one in self.segments if one.end_offset > offset),
            missing=tuple(one for one in self.missing if one.end > offset),
        )

    def in_front_of(self, local: SegmentList, end_offset: int) -> SegmentList:
        """Return the segments of a log from the start of this history on. local: those on the disk. end_offset: of the
        log."""
        first = local.start(end_offset)
        older = [segment for segment in self.segments if segment.base_offset < first]
        missing = [one for one in self.missing if one.first < first]
        segments = local.segments
        listed = segments.behind(older) if isinstance(segments, ListedSegments) else (*older, *segments)
        joined = SegmentList(listed, (*missing, *local.missing))
        joined.local = local
        return joined


class UnseenSegment(Segment):
    """Records [base, base + count) of a log that a bucket may have: it has not answered since they left the disk.
    Reading them raises HistoryUnavailable."""

    def size_bytes(self) -> int:
        raise self._unseen()

    def _open_pair(self) -> OpenPair:
        raise self._unseen()

    def _unseen(self) -> HistoryUnavailable:
        reason = "it is not known yet what the bucket has of them"
        return HistoryUnavailable(self.base_offset, self.end_offset, reason)


class SegmentStore(Protocol):
    """Store of a log, as its segments see it. Implemented by `Store` and `StoreView`."""

    @property
    def files(self) -> Files: ...
    @property
    def open_segments(self) -> SegmentCache: ...


def reaching(
    start: int, known: RemoteHistory | None, folder: Path, log_id: int, store: SegmentStore
) -> RemoteHistory:
    """Return an unconfirmed history that ends at the local start of a log at the earliest: what is known of the bucket,
    and an `UnseenSegment` for what lies between."""
    known = known or RemoteHistory(0, 0)
    if known.end >= start:
        return known
    count = start - known.end
    unseen = UnseenSegment(store.files, folder, known.end, log_id, store.open_segments, count=count)
    return RemoteHistory(known.start, start, (*known.segments, unseen), known.missing)
