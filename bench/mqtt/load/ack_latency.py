"""Latency of acknowledgements, which arrive in the order in which the messages were sent.

Runs of both are therefore noted, a number and a time each, and compared in bulk: one by one would cost more than the
messages themselves.
"""

import numpy as np
import numpy.typing as npt

from .histogram import Histogram

_AT_ONCE = 1 << 16
"""Messages that are compared together."""

Times = npt.NDArray[np.int64]


class AckLatency:
    """Latency of the acknowledgements of one publisher. Times are nanoseconds of one clock."""

    def __init__(self) -> None:
        self._histogram = Histogram()
        self._due = _Runs()
        self._acknowledged = _Runs()

    def sent(self, count: int, due_ns: int) -> None:
        """Note messages that were sent with one due time."""
        self._due.add(count, due_ns)

    def sent_apart(self, due_ns: Times) -> None:
        """Note messages that were sent with a due time each."""
        for one_ns in due_ns.tolist():
            self._due.add(1, one_ns)

    def acknowledged(self, count: int, now_ns: int) -> None:
        """Note that the next messages are acknowledged."""
        self._acknowledged.add(count, now_ns)
        if self._acknowledged.total >= _AT_ONCE:
            self._compare()

    def histogram(self) -> Histogram:
        """Return the histogram of all acknowledged messages."""
        self._compare()
        return self._histogram

    def _compare(self) -> None:
        if self._acknowledged.total:
            acknowledged_ns = self._acknowledged.take(self._acknowledged.total)
            self._histogram.add(acknowledged_ns - self._due.take(len(acknowledged_ns)))


class _Runs:
    """Times, each of a number of consecutive messages."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._times_ns: list[int] = []
        self.total = 0

    def add(self, count: int, time_ns: int) -> None:
        self._counts.append(count)
        self._times_ns.append(time_ns)
        self.total += count

    def take(self, count: int) -> Times:
        """Remove the first messages and return the time of each."""
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
