"""Events per minute: moving averages over one, five and fifteen minutes, as mosquitto publishes them."""

import math
from collections.abc import Mapping, Sequence

_WINDOWS_MIN = (1, 5, 15)


class Load:
    """Moving averages of counters, updated at equal intervals."""

    def __init__(self, names: Sequence[str], interval_s: float) -> None:
        self._names = tuple(names)
        self._per_minute = 60 / interval_s
        self._keep = {window: math.exp(-interval_s / (60 * window)) for window in _WINDOWS_MIN}
        self._last: dict[str, int] = {}
        self._averages = dict.fromkeys(((name, window) for name in names for window in _WINDOWS_MIN), 0.0)

    def feed(self, counters: Mapping[str, int]) -> None:
        """Update the averages after one interval."""
        for name in self._names:
            rate = (counters[name] - self._last.get(name, 0)) * self._per_minute
            self._last[name] = counters[name]
            for window, keep in self._keep.items():
                average = self._averages[name, window]
                self._averages[name, window] = rate + (average - rate) * keep

    def values(self) -> dict[tuple[str, int], float]:
        """Return events per minute by name and window in minutes."""
        return dict(self._averages)
