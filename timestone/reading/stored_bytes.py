"""Stored bytes of consecutive records, in the pieces in which they arrived, and the rule of which pieces are copied
together. Knows no record and no file."""

import bisect
import itertools
from collections.abc import Callable
from functools import partial

from timestone.kernel.loops import StoredPieces


class StoredBytes(StoredPieces):
    """One logical run of bytes for a segment and the tail cache.

    pieces: the run; no record spans two of them. pwritev takes them as they are, so a batch of large records is not
    copied. size_bytes: total size."""

    __slots__ = ()

    def covering(self, start: int, end: int) -> tuple[bytes | Callable[[], bytes], int]:
        """Return a buffer with the bytes [start, end) of the run, or more, and its position in the run.

        Of several pieces, the buffer is a function that copies those needed: many readers use the columns of records
        only. The copy is not kept here: one that lives as long as the tail would need fresh memory each time, whose
        first touch costs many times the copy."""
        pieces = self.pieces
        if len(pieces) == 1:
            return pieces[0], 0
        ends = self._piece_ends()
        first = bisect.bisect_right(ends, start)
        last = bisect.bisect_left(ends, end)
        return partial(b"".join, pieces[first : last + 1]), ends[first - 1] if first else 0

    def piece_at(self, start: int) -> tuple[bytes, int]:
        """Return the piece with the byte at `start` of the run, and the position of the piece; the last one for the end
        of the run."""
        pieces = self.pieces
        if len(pieces) == 1:
            return pieces[0], 0
        ends = self._piece_ends()
        at = min(bisect.bisect_right(ends, start), len(pieces) - 1)
        return pieces[at], ends[at - 1] if at else 0

    def _piece_ends(self) -> list[int]:
        if self._ends is None:  # two threads at once make the same list
            self._ends = list(itertools.accumulate(map(len, self.pieces)))
        return self._ends

    def joined(self) -> bytes:
        """Return the whole run as one buffer."""
        return b"".join(self.pieces)
