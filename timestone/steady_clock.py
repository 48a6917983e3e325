"""The time that retention goes by: the wall clock, except just after somebody has set it far ahead.

Deleting cannot be taken back, and a clock that is years ahead for a minute (a flat battery, a mistyped date, a
bad time server) would make every record look expired. So a step ahead counts only once it has lasted; until
then time goes on from where it was, by the clock that nobody can set. A step back counts at once: it deletes
nothing."""

import threading

from timestone.clock import Clock

STEP_US = 3600 * 1_000_000
"""A step ahead by more than this is not believed at first."""
HOLD_US = 3600 * 1_000_000
"""How long it has to last until it is."""


class SteadyClock:
    """Time for decisions that cannot be taken back. Thread-safe."""

    def __init__(self, clock: Clock, newest_us: int) -> None:
        """newest_us: the newest time found in the store, 0 for none. A clock far beyond it is held back too: the
        machine may have come up with a wrong one. What is old even by that time still expires, so a program
        that runs for a second each day keeps its store small all the same."""
        self._clock = clock
        self._last_wall_us = clock.now_us()
        self._last_uptime_us = clock.uptime_us()
        self._trusted_us = min(self._last_wall_us, newest_us + STEP_US) if newest_us else self._last_wall_us
        self._ahead_since_us: int | None = None
        self._lock = threading.Lock()

    def now_us(self) -> int:
        """Microseconds since 1970, as far as they can be believed."""
        with self._lock:
            return self._now_us_locked()

    def _now_us_locked(self) -> int:
        wall_us, uptime_us = self._clock.now_us(), self._clock.uptime_us()
        elapsed_us = uptime_us - self._last_uptime_us
        expected_us = self._trusted_us + elapsed_us
        if wall_us <= expected_us + STEP_US:
            self._trusted_us, self._ahead_since_us = wall_us, None
        else:
            stepped_again = wall_us > self._last_wall_us + elapsed_us + STEP_US
            if self._ahead_since_us is None or stepped_again:
                self._ahead_since_us = uptime_us
            lasted = uptime_us - self._ahead_since_us >= HOLD_US
            self._trusted_us = wall_us if lasted else expected_us
        self._last_wall_us, self._last_uptime_us = wall_us, uptime_us
        return self._trusted_us

    def uptime_us(self) -> int:
        """Microseconds since the machine was started, for measuring how long something has lasted."""
        return self._clock.uptime_us()
