"""A set of offsets as sorted ranges [first, end) that do not touch."""

import bisect
from collections.abc import Iterable, Iterator


class OffsetRanges:
    """Grows; never forgets. Iterates over its ranges in order."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in ranges:
            self.add(first, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._ends, strict=True)

    def __len__(self) -> int:
        """Return the number of offsets."""
        return sum(end - first for first, end in self)

    def add(self, first: int, end: int) -> None:
        """Take in [first, end)."""
        if first >= end:
            return
        low = bisect.bisect_left(self._ends, first)
        high = bisect.bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def missing(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [first, end) that are not in the set, in order."""
        at = bisect.bisect_right(self._ends, first)
        while first < end:
            if at == len(self._firsts) or self._firsts[at] >= end:
                yield first, end
                return
            if first < self._firsts[at]:
                yield first, self._firsts[at]
            first = self._ends[at]
            at += 1
