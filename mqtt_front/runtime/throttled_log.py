"""Log lines about what goes wrong many times a second: the first at once, then one now and then, with the
count."""

import logging
import time
from collections.abc import Callable

_KINDS_MAX = 1000


class Complaints:
    """One line per kind of trouble and interval; the next one says how many were left out."""

    def __init__(
        self, log: logging.Logger, interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._interval_s = interval_s
        self._clock = clock
        self._silent: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str) -> None:
        """Log `message`, unless one of the same kind was logged a moment ago."""
        now = self._clock()
        until, left_out = self._silent.get(kind, (0.0, 0))
        if now < until:
            self._silent[kind] = (until, left_out + 1)
            return
        if len(self._silent) >= _KINDS_MAX:  # kinds may contain what clients send
            self._silent.clear()
        self._silent[kind] = (now + self._interval_s, 0)
        self._log.warning("%s%s", message, f" ({left_out} like it left out)" if left_out else "")
