"""Minimum, mean and maximum of each gauge in an hour, so that a chart of few samples can show every peak."""

from collections.abc import Iterable
from typing import Any

from timestone.metrics.histogram import Histogram
from timestone.metrics.metric import Metric, series_name

_HOUR_US = 3_600_000_000


class Hours:
    """Gauges of the current hour, by UTC."""

    def __init__(self) -> None:
        self._from_us = 0
        self._samples = 0
        self._gauges: dict[str, list[float]] = {}
        """Minimum, sum, maximum and number of values by series."""

    def add(self, metrics: Iterable[Metric], time_us: int) -> dict[str, Any] | None:
        """Add a sample. Return the facts of the hour before, if this sample begins another one."""
        from_us = time_us - time_us % _HOUR_US
        ended = None if from_us == self._from_us else self.take()
        self._from_us = from_us
        self._samples += 1
        for one in metrics:
            if one.kind == "gauge":
                for labels, value in one.samples:
                    if not isinstance(value, Histogram):
                        self._observe(one.name + series_name(one.suffix, labels), value)
        return ended

    def take(self) -> dict[str, Any] | None:
        """Return the facts of the hour so far, and forget them; None without a sample."""
        if not self._samples:
            return None
        facts = {
            "from_us": self._from_us,
            "samples": self._samples,
            "gauges": {
                name: {"min": low, "mean": total / count, "max": high}
                for name, (low, total, high, count) in self._gauges.items()
            },
        }
        self._samples, self._gauges = 0, {}
        return facts

    def _observe(self, name: str, value: float) -> None:
        found = self._gauges.setdefault(name, [value, 0, value, 0])
        found[0] = min(found[0], value)
        found[1] += value
        found[2] = max(found[2], value)
        found[3] += 1
