"""The segments of a log as a listing of its folder names them, each looked at when it is first needed.

A log has thousands of segments and most of those who open a view of it read from a few. Until then a name says enough:
where a segment begins, and so where the one before it ends at the latest."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import overload

from timestone.segment import Segment


class ListedSegments(Sequence[Segment]):
    """Segments in order of their base offsets. Thread-safe."""

    def __init__(
        self, bases: Sequence[int], seen: Mapping[int, Segment], look: Callable[[int], Segment]
    ) -> None:
        """seen: those that were looked at. look: how the others are, by base offset; it raises FileNotFoundError for
        one that is not there, or not the log's, and whoever asked lists the folder again then."""
        self.bases = tuple(bases)
        self._seen = dict(seen)
        self._look = look
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.bases)

    @overload
    def __getitem__(self, place: int) -> Segment: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Segment, ...]: ...

    def __getitem__(self, place: int | slice) -> Segment | tuple[Segment, ...]:
        if isinstance(place, slice):
            return tuple(map(self._at, self.bases[place]))
        return self._at(self.bases[place])

    def seen(self) -> dict[int, Segment]:
        """Those that were looked at so far, by base offset."""
        with self._lock:
            return dict(self._seen)

    def has_lost(self, earlier: Sequence[Segment]) -> bool:
        """Has one of an earlier listing gone, or got other files, or been looked at since?"""
        assert isinstance(earlier, ListedSegments)
        now, then = self.seen(), earlier.seen()
        if not set(earlier.bases) <= set(self.bases):
            return True
        return any(now.get(base) is not then.get(base) for base in earlier.bases)

    def _at(self, base: int) -> Segment:
        segment = self._seen.get(base)
        if segment is None:
            with self._lock:
                segment = self._seen.get(base)
                if segment is None:
                    segment = self._seen[base] = self._look(base)
        return segment
