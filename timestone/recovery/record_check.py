"""Verification of records against the checksums in their index entries. Reads through a function of the caller and
knows no file.

Adjacent records are read together and checked by the kernel: this check takes most of the time of a restart."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from timestone.kernel import loops
from timestone.kernel.entries import Entries

WINDOW_BYTES = 4 << 20
"""Maximum size of one read, unless a single record is larger."""

Mask = npt.NDArray[np.bool_]


def holding(entries: Entries, read: Callable[[int, int], bytes]) -> Mask:
    """Return, for each entry, whether the bytes it points to match its CRC-32C.

    read: returns bytes of the segment by position and length; fewer at the end of the file."""
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
    """Return the end position of the bytes of each entry."""
    return np.asarray(entries["position"].astype(np.int64) + entries["length"], dtype=np.int64)


def pieces(entries: Entries) -> Iterator[tuple[int, int]]:
    """Yield runs of adjacent entries whose bytes fit into one read: index of the first, and count."""
    starts, stops, at = entries["position"].astype(np.int64), ends(entries), 0
    while at < len(entries):
        count = _window(starts[at:], stops[at:])
        yield at, count
        at += count


def _window(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> int:
    within = (starts >= starts[0]) & (stops <= starts[0] + WINDOW_BYTES)
    return max(1, len(within) if within.all() else int(within.argmin()))
