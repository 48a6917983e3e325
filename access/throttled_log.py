"""Throttled log: of lines that repeat many times a second, the first is logged at once, later ones at intervals with
a count."""

import logging
import time
from collections.abc import Callable

_KINDS_MAX = 1000


class ThrottledLog:
    """At most one line per kind and interval; the next line states how many were suppressed."""

    def __init__(
        self, log: logging.Logger, interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._interval_s = interval_s
        self._clock = clock
        self._silent: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str) -> None:
        """Log `message`, unless a line of the same kind was logged within the interval."""
        now = self._clock()
        until, left_out = self._silent.get(kind, (0.0, 0))
        if now < until:
            self._silent[kind] = (until, left_out + 1)
            return
        if len(self._silent) >= _KINDS_MAX:  # kinds may contain text from clients
            self._silent.clear()
        self._silent[kind] = (now + self._interval_s, 0)
        self._log.warning(
            "%s%s",
            message,
            f" ({left_out} similar lines suppressed)" if left_out else "",
        )
