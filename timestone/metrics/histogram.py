"""Histogram of durations. An observation is one call of the kernel for a whole batch: a message pays nothing for it."""

from timestone.kernel.loops import DurationCounts

_FIRST_BITS = 4
BOUNDS_S = tuple((1 << bits) / 1_000_000 for bits in range(_FIRST_BITS, len(DurationCounts().counts) - 1))
"""Upper bounds of the buckets in seconds, inclusive: powers of two from 16 µs to 134 s, the same in every histogram, so
that histograms can be added and subtracted."""


class Histogram(DurationCounts):
    """Distribution of durations. Any thread may read it; one at a time may write it."""

    __slots__ = ()

    @property
    def count(self) -> int:
        """Return the number of observations."""
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Return the number of observations up to each of `BOUNDS_S`, and at the end that of all."""
        counts = list(self.counts)  # a later observation must not be in one bucket and not in the next
        totals, total = [], sum(counts[:_FIRST_BITS])
        for count in counts[_FIRST_BITS:]:
            total += count
            totals.append(total)
        return totals
