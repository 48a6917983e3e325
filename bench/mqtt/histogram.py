"""Latencies counted in buckets of about one percent: as many as there are messages, in twenty kilobytes."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_STEPS = 64
"""Buckets from each power of two to the next: 1.1 % apart."""
_BUCKETS = 45 * _STEPS
"""Up to 2^45 nanoseconds, which is ten hours."""
_AT_ONCE = 1 << 18
"""Looked at together: two megabytes, and of most runs all, when they are over."""
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


class Histogram:
    """Counts of durations in nanoseconds."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._max_ns = 0
        self._waiting: list[npt.NDArray[np.int64]] = []
        self._waiting_count = 0

    def add(self, durations_ns: npt.NDArray[np.int64]) -> None:
        """Each of them. One below a nanosecond counts as one."""
        # At once would cost more than the messages they are about.
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
        """All of the other as well."""
        self._settle()
        other._settle()
        self._counts += other._counts
        self._max_ns = max(self._max_ns, other._max_ns)

    @classmethod
    def merged(cls, histograms: Iterable["Histogram"]) -> Self:
        """A new one with everything that is in these."""
        made = cls()
        for histogram in histograms:
            made.merge(histogram)
        return made

    @property
    def count(self) -> int:
        self._settle()
        return int(self._counts.sum())

    def percentile_us(self, share: float) -> float:
        """Below which `share` of the durations are, in microseconds; needs at least one."""
        self._settle()
        ranks = np.cumsum(self._counts)
        bucket = int(np.searchsorted(ranks, max(1, np.ceil(share * ranks[-1]))))
        return float(min(2.0 ** ((bucket + 0.5) / _STEPS), self._max_ns) / 1000)

    def summary_us(self) -> dict[str, float]:
        """The percentiles by name, and the maximum; empty without any durations."""
        if not self.count:
            return {}
        found = {name: self.percentile_us(share) for name, share in PERCENTILES.items()}
        return found | {"max": self._max_ns / 1000}

    def to_json(self) -> dict[str, Any]:
        """For another process: the buckets that are not empty."""
        self._settle()
        used = np.flatnonzero(self._counts)
        return {"max_ns": self._max_ns, "at": used.tolist(), "counts": self._counts[used].tolist()}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """What `to_json` made."""
        made = cls()
        at: Sequence[int] = document["at"]
        made._counts[list(at)] = document["counts"]
        made._max_ns = document["max_ns"]
        return made
