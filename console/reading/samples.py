"""Samples of a server's metrics over time, read from its log: chosen at equal distances, so that a chart of a month
costs what a chart of an hour costs. Counters are totals, so the difference of two samples is exact."""

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from timestone.errors import TimestoneError, UnknownLog
from timestone.metrics.histogram import BOUNDS_S
from timestone.metrics.records import METRICS_LOG, Durations, Sample, decode_sample
from timestone.view import LogView, StoreView

_KEPT = 2000
"""Decoded samples that are kept: charts of a page choose the same ones."""
POINTS_MOST = 500
_NOW_US = 2_000_000


class Change(NamedTuple):
    """Two samples of one start of a server, and the time between them."""

    before: Sample
    after: Sample

    @property
    def passed_s(self) -> float:
        """Return the time between the samples; never 0."""
        return max(1e-6, (self.after.time_us - self.before.time_us) / 1e6)

    def rise(self, name: str) -> float | None:
        """Return the rise of a counter, over all its labels if `name` has none; None if it is not there."""
        after = total(self.after, name)
        return None if after is None else max(0.0, after - (total(self.before, name) or 0.0))

    def rate(self, name: str) -> float | None:
        """Return the rise of a counter a second."""
        rise = self.rise(name)
        return None if rise is None else rise / self.passed_s

    def observed(self, name: str) -> list[int]:
        """Return the new observations of a histogram by bucket; none if it is not there."""
        after, before = self.after.histograms.get(name), self.before.histograms.get(name)
        if after is None:
            return []
        return _minus(after, before)


class Samples:
    """Samples in the log of a store. Any thread may call it."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._kept: OrderedDict[int, Sample | None] = OrderedDict()
        self._lock = threading.Lock()

    def log(self) -> LogView | None:
        """Return the log, refreshed; None if no server has written one, or it cannot be read."""
        try:
            return self._view.log(METRICS_LOG)
        except UnknownLog:
            return None

    def last(self, count: int = 1) -> list[Sample]:
        """Return the newest samples, oldest first."""
        log = self.log()
        if log is None:
            return []
        end = log.end_offset
        return self._decoded(log, range(max(log.start_offset, end - count), end))

    def between(self, start_us: int, end_us: int, count: int) -> list[Sample]:
        """Return at most `count` samples of the time from `start_us` to `end_us` at equal distances, and the one before
        them; the last of that time is always among them."""
        log = self.log()
        if log is None:
            return []
        first = max(log.start_offset, log.offset_at(start_us) - 1)
        # Up to now is up to the newest: of a clock that was set back, times in the log are ahead for as long.
        is_up_to_now = end_us >= time.time_ns() // 1000 - _NOW_US
        end = log.end_offset if is_up_to_now else min(log.end_offset, log.offset_at(end_us + 1))
        if end <= first:
            return []
        distance = max(1, -(-(end - 1 - first) // max(1, min(count, POINTS_MOST))))
        return self._decoded(log, reversed(range(end - 1, first - 1, -distance)))

    def _decoded(self, log: LogView, offsets: Iterable[int]) -> list[Sample]:
        found = (self._sample(log, offset) for offset in offsets)
        return [one for one in found if one is not None]

    def _sample(self, log: LogView, offset: int) -> Sample | None:
        """Return a sample; None for one that is damaged, deleted or of a later version."""
        with self._lock:
            if offset in self._kept:
                self._kept.move_to_end(offset)
                return self._kept[offset]
        try:
            found = decode_sample(log.record(offset).payload)
        except (TimestoneError, ValueError):
            found = None
        with self._lock:
            self._kept[offset] = found
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found


def changes(samples: Sequence[Sample]) -> list[Change | None]:
    """Return the change up to each sample but the first; None across a start of the server, and where its clock was set
    back, which are gaps in a chart and not spikes."""
    return [
        Change(one, two) if one.started_us == two.started_us and one.time_us < two.time_us else None
        for one, two in itertools.pairwise(samples)
    ]


def in_order(times_us: Sequence[int]) -> list[int]:
    """Return the indexes of times that are before all later ones: of a clock that was set back, the newest count."""
    found: list[int] = []
    for index in range(len(times_us) - 1, -1, -1):
        if not found or times_us[index] < times_us[found[-1]]:
            found.append(index)
    return found[::-1]


def total(sample: Sample, name: str) -> float | None:
    """Return a value of a sample; without labels in `name` the sum over all labels. None if it is not there."""
    if name in sample.values:
        return sample.values[name]
    if "{" in name:
        return None
    found = [value for key, value in sample.values.items() if key.startswith(name + "{")]
    return sum(found) if found else None


def percentile(counts: Sequence[int], share: float) -> float | None:
    """Return the upper bound in seconds of the bucket that holds a percentile; None without observations, and for more
    than the last bound."""
    whole, reached = sum(counts), 0
    for bound, count in zip(BOUNDS_S, counts, strict=False):
        reached += count
        if count > 0 and reached >= whole * share:
            return bound
    return None


def highest(counts: Sequence[int]) -> float | None:
    """Return the upper bound in seconds of the longest observation; None without one."""
    used = [bound for bound, count in zip(BOUNDS_S, counts, strict=False) if count > 0]
    return used[-1] if used else None


def _minus(after: Durations, before: Durations | None) -> list[int]:
    if before is None or len(before.counts) != len(after.counts):
        return list(after.counts)
    return [max(0, new - old) for new, old in zip(after.counts, before.counts, strict=True)]
