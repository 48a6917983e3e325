"""Size of one batch of a stream: at most so many records or bytes, and not before so many are waiting. Pure arithmetic
on offsets, and a clock. Spark's read limits cannot be combined, so Spark gets only one of them, and all of them are
applied here."""

import bisect
import time
from collections.abc import Callable, Mapping, Sequence

from pyspark_timestone.offsets import LogPartition, Positions
from pyspark_timestone.options.read_options import TriggerLimits
from pyspark_timestone.reading.planning import limited

Sizes = Sequence[tuple[int, int, int]]
"""[base, end) and bytes of each segment of a log, in order."""


def end_within(
    limits: TriggerLimits, start: Positions, end: Positions, sizes: Mapping[LogPartition, Sizes]
) -> dict[LogPartition, int]:
    """Return `end`, brought nearer to `start` to keep the limits; there is progress whenever something is waiting."""
    near = limited(start, end, limits.most_records)
    return near if limits.most_bytes is None else _within_bytes(start, near, sizes, limits.most_bytes)


def _within_bytes(
    start: Positions, end: Positions, sizes: Mapping[LogPartition, Sizes], most_bytes: int
) -> dict[LogPartition, int]:
    """Return the end of a batch limited in bytes, distributed like records: computed with the average size of each
    segment, which is exact enough for planning and reads no record."""
    first = {key: _bytes_below(sizes[key], start[key]) for key in end}
    last = {key: _bytes_below(sizes[key], end[key]) for key in end}
    shares = limited(first, last, most_bytes)
    near = {key: _offset_at(sizes[key], start[key], end[key], share) for key, share in shares.items()}
    # The next record of these exceeds their share. One of them is read all the same, each in turn, the others while
    # rounding leaves bytes.
    short = [key for key in sorted(end) if near[key] == start[key] < end[key]]
    turn = sum(start.values()) % len(short) if short else 0
    left = most_bytes - sum(_bytes_below(sizes[key], near[key]) - first[key] for key in near)
    for place, key in enumerate([*short[turn:], *short[:turn]]):
        size = _bytes_below(sizes[key], start[key] + 1) - first[key]
        if size <= left or place == 0:
            near[key] += 1
            left -= size
    return near


def _bytes_below(sizes: Sizes, offset: int) -> int:
    """Return the bytes of the records below an offset."""
    total = 0
    for base, end, size in sizes:
        if offset >= end:
            total += size
        elif offset > base:
            total += size * (offset - base) // (end - base)
    return total


def _offset_at(sizes: Sizes, start: int, end: int, position: int) -> int:
    """Return the highest offset in [start, end] below which there are at most `position` bytes."""
    if _bytes_below(sizes, end) <= position:
        return end
    at = bisect.bisect_right(range(start, end), position, key=lambda offset: _bytes_below(sizes, offset))
    return max(start, start + at - 1)


class Patience:
    """Delay of a batch until enough records are waiting, or a time has passed. Knows when the last batch was read;
    after a restart the first one is not delayed, as in Kafka's source."""

    def __init__(self, limits: TriggerLimits, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._least = limits.least_records
        self._delay_s = limits.delay_s
        self._now_s = now_s
        self._last_s = float("-inf")

    def waits(self, count: int) -> bool:
        """Return whether a batch of `count` records, at least one, is delayed. If not, the delay begins again."""
        now_s = self._now_s()
        if self._least is not None and count < self._least and now_s - self._last_s < self._delay_s:
            return True
        self._last_s = now_s
        return False
