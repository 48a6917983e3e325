"""Connected clients of a running server and their rates, fetched only when a call asks for them. They are searched and
sorted in the console, not in the server."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

COUNTERS = {
    "publishes_received": "publishes_in_per_s",
    "deliveries_sent": "deliveries_out_per_s",
    "bytes_received": "bytes_in_per_s",
    "bytes_sent": "bytes_out_per_s",
    "publishes_refused": "refused_per_s",
}
"""Counters of a connection and the names of their rates."""
_LOOK_S, _LOOK_MOST_S, _LOOK_TIMES = 1.0, 15.0, 100
"""Least time between two looks at the server. One that takes long is used for a hundred times as long, within a bound:
for many clients it would else cost the server more than a hundredth of a core."""
_OLD_S = 30.0
"""A look older than this gives no rates."""
Row = dict[str, Any]


class Look(NamedTuple):
    """Clients at one moment."""

    at_s: float
    now_us: int
    rows: list[Row]
    used_s: float
    """Time for which it is used."""


class ClientTable:
    """Clients of one server. Any thread may call it."""

    def __init__(self, fetch: Callable[[], Iterable[Row]]) -> None:
        """fetch: returns a row for each client; raises NoServer, ServerRefused."""
        self._fetch = fetch
        self._lock = threading.Lock()
        self._look: Look | None = None
        self._at_s = time.monotonic()
        self._counts: dict[tuple[str, int], tuple[int, ...]] = {}
        """Counters of the last look by connection."""

    def rows(self) -> Look:
        """Return all clients with their rates, at most a second old, some seconds with thousands of clients. The caller
        must not change a row. Raises NoServer, ServerRefused."""
        with self._lock:
            now_s = time.monotonic()
            if self._look is not None and now_s - self._look.at_s < self._look.used_s:
                return self._look
            self._look = None  # so that one is in memory, not two
            rows = list(self._fetch())
            at_s = time.monotonic()
            passed_s, self._at_s = at_s - self._at_s, at_s
            earlier = self._counts if passed_s < _OLD_S else {}
            self._counts = {key(row): tuple(row[name] for name in COUNTERS) for row in rows}
            for row in rows:
                _set_rates(row, self._counts[key(row)], earlier, passed_s)
            # One without rates only until there can be rates: they show who floods.
            used_s = min(max(_LOOK_S, (at_s - now_s) * _LOOK_TIMES), _LOOK_MOST_S) if earlier else _LOOK_S
            self._look = Look(at_s, time.time_ns() // 1000, rows, used_s)
            return self._look


def key(row: Row) -> tuple[str, int]:
    """Return what identifies a connection."""
    return row["front"], row["connection"]


def _set_rates(
    row: Row, counts: tuple[int, ...], earlier: Mapping[tuple[str, int], tuple[int, ...]], passed_s: float
) -> None:
    """Set the rates since an earlier look: null without one. A connection that is new since then had none before."""
    before = earlier.get(key(row), (0,) * len(counts))
    for rate, now, then in zip(COUNTERS.values(), counts, before, strict=True):
        row[rate] = max(0, now - then) / passed_s if earlier else None
