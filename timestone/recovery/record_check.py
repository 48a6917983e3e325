"""Which records have the bytes that their index entries promise. Reads through a function of the caller's, so it
knows no file.

Neighbours are read together and checked in the kernel: what a restart waits for is how fast this goes."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from timestone.kernel import loops
from timestone.kernel.entries import Entries

WINDOW_BYTES = 4 << 20
"""The most that is read at once, unless a single record is larger."""

Mask = npt.NDArray[np.bool_]


def holding(entries: Entries, read: Callable[[int, int], bytes]) -> Mask:
    """For each entry: do the bytes it points to match its crc?

    read: gives the bytes of the segment at a position, of a length; fewer where there are no more."""
    holds = np.zeros(len(entries), dtype=np.bool_)
    entries = np.ascontiguousarray(entries)
    for start, count in pieces(entries):
        piece = entries[start : start + count]
        first = int(piece["position"][0])
        data = read(first, int(ends(piece).max()) - first)
        at = 0
        while at < count:
            good = loops.proven_count(piece[at:], data, first)
            holds[start + at : start + at + good] = True
            at += good + 1
    return holds


def ends(entries: Entries) -> npt.NDArray[np.int64]:
    """Where the bytes of each entry end."""
    return np.asarray(entries["position"].astype(np.int64) + entries["length"], dtype=np.int64)


def pieces(entries: Entries) -> Iterator[tuple[int, int]]:
    """Neighbours that lie within a window of each other: where they start, and how many."""
    starts, stops, at = entries["position"].astype(np.int64), ends(entries), 0
    while at < len(entries):
        count = _window(starts[at:], stops[at:])
        yield at, count
        at += count


def _window(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> int:
    within = (starts >= starts[0]) & (stops <= starts[0] + WINDOW_BYTES)
    return max(1, len(within) if within.all() else int(within.argmin()))
