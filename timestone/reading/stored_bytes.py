"""The stored bytes of consecutive records, in the pieces they came in.

What belongs here: which bytes are copied together, and when. It knows no record and no file."""

import bisect
import itertools


class StoredBytes:
    """Bytes on their way to a segment and, afterwards, in the tail. One logical run, regardless of the pieces.

    pieces: together the run; no record lies across two of them. A disk takes them as they are (pwritev), so a
    batch of large records is not copied for it. size_bytes: of all pieces."""

    __slots__ = ("_ends", "pieces", "size_bytes")

    def __init__(self, pieces: tuple[bytes, ...], size_bytes: int) -> None:
        self.pieces = pieces
        self.size_bytes = size_bytes
        self._ends: list[int] | None = None

    def covering(self, start: int, end: int) -> tuple[bytes, int]:
        """One buffer with the bytes [start, end) of the run, perhaps more, and where in the run it begins.

        Of a run in several pieces only those concerned are copied, and nothing is kept: a copy that lives as
        long as the tail would need fresh memory each time, whose first touch costs many times the copy."""
        pieces = self.pieces
        if len(pieces) == 1:
            return pieces[0], 0
        if self._ends is None:  # two threads at once make the same list
            self._ends = list(itertools.accumulate(map(len, pieces)))
        first = bisect.bisect_right(self._ends, start)
        last = bisect.bisect_left(self._ends, end)
        return b"".join(pieces[first : last + 1]), self._ends[first - 1] if first else 0

    def joined(self) -> bytes:
        """The whole run in one buffer."""
        return b"".join(self.pieces)
