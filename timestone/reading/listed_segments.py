"""Segments of a log by the names in its folder, each examined on first use.

A log has thousands of segments, and most views read from a few. Until then the name states enough: the base offset,
and so the maximum end of the segment before it."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import overload

from timestone.segment import Segment


class ListedSegments(Sequence[Segment]):
    """Segments in order of base offset. Thread-safe."""

    def __init__(
        self, bases: Sequence[int], seen: Mapping[int, Segment], look: Callable[[int], Segment]
    ) -> None:
        """seen: segments already examined. look: examines one by its base offset; it raises FileNotFoundError for a
        missing or foreign one, and the caller lists the folder again."""
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
        """Return the examined segments by base offset."""
        with self._lock:
            return dict(self._seen)

    def behind(self, older: Sequence[Segment]) -> "ListedSegments":
        """Return the same segments behind others, still examined on first use."""
        seen = {segment.base_offset: segment for segment in older}
        return ListedSegments((*seen, *self.bases), seen, self._at)

    def has_lost(self, earlier: Sequence[Segment]) -> bool:
        """Return whether a segment of an earlier listing is gone, has other files, or has been examined since."""
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
