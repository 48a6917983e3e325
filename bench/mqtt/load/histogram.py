"""Latencies counted in buckets of about one percent: any number of messages in twenty kilobytes."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_STEPS = 64
"""Buckets from each power of two to the next: 1.1 % apart."""
_BUCKETS = 45 * _STEPS
"""Up to 2^45 nanoseconds, which is ten hours."""
_AT_ONCE = 1 << 18
"""Durations counted together: two megabytes, in most runs all of them, after the end of the run."""
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


class Histogram:
    """Counts of durations in nanoseconds."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._max_ns = 0
        self._waiting: list[npt.NDArray[np.int64]] = []
        self._waiting_count = 0

    def add(self, durations_ns: npt.NDArray[np.int64]) -> None:
        """Add each duration. One below a nanosecond counts as one."""
        # Counting them one by one would cost more than the messages themselves.
        self._waiting.append(durations_ns)
        self._waiting_count += len(durations_ns)
        if self._waiting_count >= _AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        if not self._waiting_count:
            return
        durations_ns = np.concatenate(self._waiting)
        self._waiting, self._waiting_count = [], 0
        at = (np.log2(np.maximum(durations_ns, 1)) * _STEPS).astype(np.int64)
        self._counts += np.bincount(np.minimum(at, _BUCKETS - 1), minlength=_BUCKETS)
        self._max_ns = max(self._max_ns, int(durations_ns.max()))

    def merge(self, other: "Histogram") -> None:
        """Add all counts of the other."""
        self._settle()
        other._settle()
        self._counts += other._counts
        self._max_ns = max(self._max_ns, other._max_ns)

    @classmethod
    def merged(cls, histograms: Iterable["Histogram"]) -> Self:
        """Return a new histogram with all counts of these."""
        made = cls()
        for histogram in histograms:
            made.merge(histogram)
        return made

    @property
    def count(self) -> int:
        self._settle()
        return int(self._counts.sum())

    def percentile_us(self, share: float) -> float:
        """Return the duration in microseconds below which `share` of the durations are; needs at least one."""
        self._settle()
        ranks = np.cumsum(self._counts)
        bucket = int(np.searchsorted(ranks, max(1, np.ceil(share * ranks[-1]))))
        return float(min(2.0 ** ((bucket + 0.5) / _STEPS), self._max_ns) / 1000)

    def summary_us(self) -> dict[str, float]:
        """Return the percentiles by name, and the maximum; empty without any durations."""
        if not self.count:
            return {}
        found = {name: self.percentile_us(share) for name, share in PERCENTILES.items()}
        return found | {"max": self._max_ns / 1000}

    def to_json(self) -> dict[str, Any]:
        """Return the buckets that are not empty, for another process."""
        self._settle()
        used = np.flatnonzero(self._counts)
        return {"max_ns": self._max_ns, "at": used.tolist(), "counts": self._counts[used].tolist()}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read the object that `to_json` made."""
        made = cls()
        at: Sequence[int] = document["at"]
        made._counts[list(at)] = document["counts"]
        made._max_ns = document["max_ns"]
        return made


class Periods:
    """Latencies of equal periods of a run, so that a disturbance shows only in its own; a message belongs to the period
    in which it was due."""

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
