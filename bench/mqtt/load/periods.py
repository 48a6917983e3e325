"""Latencies of a run, separate for each of its periods, so that a disturbance shows only in its own period."""

import numpy as np
import numpy.typing as npt

from .histogram import Histogram


class Periods:
    """Equal periods from the start of a run on; a message belongs to the one in which it was due."""

    def __init__(self, period_ns: int = 0) -> None:
        """0: the whole run is one period."""
        self.start_ns = 0
        self.latencies: list[Histogram] = []
        self._period_ns = period_ns

    def add(self, due_ns: npt.NDArray[np.int64], latencies_ns: npt.NDArray[np.int64]) -> None:
        """Add latencies of messages with their due times."""
        if not self._period_ns:
            self._latencies_of(0).add(latencies_ns)
            return
        numbers = (due_ns - self.start_ns) // self._period_ns
        for number in np.unique(numbers):
            self._latencies_of(int(number)).add(latencies_ns[numbers == number])

    def _latencies_of(self, number: int) -> Histogram:
        while len(self.latencies) <= number:
            self.latencies.append(Histogram())
        return self.latencies[number]
