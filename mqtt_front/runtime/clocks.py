"""Elapsed time, independent of changes to the wall clock.

Sessions, wills and messages live for a number of seconds, counted while the server runs by a clock that cannot be set.
The end of a session and the due time of a will are kept over restarts in the time of the store, which counts only the
time that has provably passed: a start with a wrong clock ends no session. The append time of a record is wall-clock
time."""

from collections import deque

from timestone.disk.clock import Clock
from timestone.disk.steady_clock import SteadyClock

_US = 1_000_000
_LEAP_US = _US
"""The wall clock was set if it differs by more than this from the time elapsed since the last look, one tick ago."""
_LEAPS_MAX = 100
"""Maximum number of remembered leaps, so that a clock that is set repeatedly does not fill the memory."""


class PassingTime:
    """Elapsed seconds, and the age of records. For one thread."""

    def __init__(self, clock: Clock | None = None, *, steady: SteadyClock | None = None) -> None:
        """steady: clock of the store; without one, kept times last as long as this object."""
        self._clock = clock or Clock()
        self._steady = steady or SteadyClock(self._clock, None)
        self._lead_us = self._clock.now_us() - self._clock.uptime_us()
        self._leaps: deque[tuple[int, int]] = deque(maxlen=_LEAPS_MAX)
        """Wall-clock time before each leap forward, and its length."""

    def now_s(self) -> float:
        """Return seconds since an arbitrary moment, by a clock that cannot be set."""
        return self._clock.uptime_us() / _US

    def wall_s(self) -> float:
        """Return seconds since 1970, for display."""
        return self._clock.now_us() / _US

    def kept_s(self) -> float:
        """Return seconds that have provably passed in the life of the store, above 0: for times kept over restarts."""
        return (1 + self._steady.now_us()) / _US

    def look(self) -> None:
        """Detect that the wall clock was set. Called at each tick."""
        # In this order: a stall between the two looks like a leap forward, and the next look takes it back.
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
        """Return how long ago the wall clock showed this time, without later leaps forward. 0 for a future time, as
        records have while a clock that was set back catches up."""
        leapt_us = sum(leap_us for before_us, leap_us in self._leaps if timestamp_us <= before_us)
        return max(0, self._clock.now_us() - timestamp_us - leapt_us)
