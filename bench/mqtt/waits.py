"""How long messages wait for their acknowledgements, which come in the order in which they were sent.

So runs of both are noted, a number and a time each, and compared once many have gathered: at once would cost more than
the messages they are about.
"""

import numpy as np
import numpy.typing as npt

from .histogram import Histogram

_AT_ONCE = 1 << 16
"""Messages that are compared together."""

Times = npt.NDArray[np.int64]


class Waits:
    """Of one publisher. Times are nanoseconds of one clock."""

    def __init__(self) -> None:
        self._histogram = Histogram()
        self._due = _Runs()
        self._acknowledged = _Runs()

    def sent(self, count: int, due_ns: int) -> None:
        """So many messages went out that were due at one time."""
        self._due.add(count, due_ns)

    def sent_apart(self, due_ns: Times) -> None:
        """Messages went out, each of which was due at a time of its own."""
        for one_ns in due_ns.tolist():
            self._due.add(1, one_ns)

    def acknowledged(self, count: int, now_ns: int) -> None:
        """The next so many of them are acknowledged."""
        self._acknowledged.add(count, now_ns)
        if self._acknowledged.total >= _AT_ONCE:
            self._compare()

    def histogram(self) -> Histogram:
        """Of all that were acknowledged so far."""
        self._compare()
        return self._histogram

    def _compare(self) -> None:
        if self._acknowledged.total:
            acknowledged_ns = self._acknowledged.take(self._acknowledged.total)
            self._histogram.add(acknowledged_ns - self._due.take(len(acknowledged_ns)))


class _Runs:
    """Times, each of so many messages in a row."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._times_ns: list[int] = []
        self.total = 0

    def add(self, count: int, time_ns: int) -> None:
        self._counts.append(count)
        self._times_ns.append(time_ns)
        self.total += count

    def take(self, count: int) -> Times:
        """The times of the first so many messages, each its own; the others stay."""
        ends = np.cumsum(self._counts)
        runs = int(np.searchsorted(ends, count)) + 1
        counts = np.array(self._counts[:runs])
        left = int(ends[runs - 1]) - count
        counts[-1] -= left
        times = np.repeat(np.array(self._times_ns[:runs], np.int64), counts)
        kept = runs - 1 if left else runs
        del self._counts[:kept], self._times_ns[:kept]
        if left:
            self._counts[0] = left
        self.total -= count
        return times
