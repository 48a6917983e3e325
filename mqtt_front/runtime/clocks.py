"""Time as the front counts it: what has passed since, whatever is done to the wall clock meanwhile.

Sessions, wills and messages live for a number of seconds. While the server runs those are counted by the clock that
nobody sets. When a session ended and when a will is due is kept over restarts in the time of the store, which counts
only what has provably passed: a start with a wrong clock ends no session. When a record was appended is a time of the
wall clock.
"""

from collections import deque

from timestone.disk.clock import Clock
from timestone.disk.steady_clock import SteadyClock

_US = 1_000_000
_LEAP_US = _US
"""The wall clock was set if it has moved by this more than time has passed since the last look, a tick ago."""
_LEAPS_MAX = 100
"""So many leaps are remembered: a clock that is set again and again does not fill the memory."""


class PassingTime:
    """Seconds that pass, and how old records are. Used by one thread."""

    def __init__(self, clock: Clock | None = None, *, steady: SteadyClock | None = None) -> None:
        """steady: of the store; without one, what is kept lasts as long as this object."""
        self._clock = clock or Clock()
        self._steady = steady or SteadyClock(self._clock, None)
        self._lead_us = self._clock.now_us() - self._clock.uptime_us()
        self._leaps: deque[tuple[int, int]] = deque(maxlen=_LEAPS_MAX)
        """The wall clock's time before each leap ahead, and how far it leapt."""

    def now_s(self) -> float:
        """Seconds since some moment before the server started, by a clock that nobody sets."""
        return self._clock.uptime_us() / _US

    def wall_s(self) -> float:
        """Seconds since 1970, for people."""
        return self._clock.now_us() / _US

    def kept_s(self) -> float:
        """Seconds of the store's life that have provably passed, above 0: for what is kept over restarts."""
        return (1 + self._steady.now_us()) / _US

    def look(self) -> None:
        """Notice that somebody has set the wall clock. Called at each tick."""
        # In this order: a stall between the two looks like a leap ahead, and the next look takes it back.
        uptime_us = self._clock.uptime_us()
        now_us = self._clock.now_us()
        leap_us = now_us - uptime_us - self._lead_us
        self._lead_us += leap_us
        if leap_us >= _LEAP_US:
            self._leaps.append((now_us - leap_us, leap_us))
        elif leap_us <= -_LEAP_US:
            self._take_back(-leap_us)

    def _take_back(self, back_us: int) -> None:
        while back_us > 0 and self._leaps:
            before_us, leap_us = self._leaps.pop()
            if leap_us > back_us:
                self._leaps.append((before_us, leap_us - back_us))
            back_us -= leap_us

    def age_us(self, timestamp_us: int) -> int:
        """How long ago the wall clock showed this time; what it has leapt ahead since is no part of that. 0 for one
        that is still to come: so are the times of records while a clock that was set back catches up."""
        leapt_us = sum(leap_us for before_us, leap_us in self._leaps if timestamp_us <= before_us)
        return max(0, self._clock.now_us() - timestamp_us - leapt_us)
