"""Time as the front counts it: what has passed since, whatever is done to the wall clock meanwhile.

Sessions, wills and messages live for a number of seconds. While the server runs those are counted by the clock that
nobody sets. What is on the disk, when a session ended, when a will is due, when a record was appended, is a time of the
wall clock, because another process, perhaps after another boot, has to make sense of it.
"""

from collections import deque

from timestone.clock import Clock

_US = 1_000_000
_LEAP_US = _US
"""The wall clock was set if it has moved by this more than time has passed since the last look, a tick ago."""
_LEAPS_MAX = 100
"""So many leaps are remembered: a clock that is set again and again does not fill the memory."""


class PassingTime:
    """Seconds that pass, and how old records are. Used by one thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._lead_us = self._clock.now_us() - self._clock.uptime_us()
        self._leaps: deque[tuple[int, int]] = deque(maxlen=_LEAPS_MAX)
        """The wall clock's time before each leap ahead, and how far it leapt."""

    def now_s(self) -> float:
        """Seconds since some moment before the server started, by a clock that nobody sets."""
        return self._clock.uptime_us() / _US

    def wall_s(self) -> float:
        """Seconds since 1970, for what is written to the disk and read from there."""
        return self._clock.now_us() / _US

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
