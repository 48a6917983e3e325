"""Timer wheel: deadlines of all connections on one coarse clock, with one timer for the whole front.

A connection that receives data only notes the tick. It is checked when its deadline would have passed without data,
and moved to its current deadline: once a keep-alive period, not once a packet."""

import math
from collections.abc import Callable
from typing import Protocol

from mqtt_front.runtime.loop import Loop, Timer

TICK_S = 0.5


class Watched(Protocol):
    """Object with a deadline."""

    last_seen: int
    """Tick at which it was last active. Set by the object itself, from `TimerWheel.now`."""
    allowed_ticks: int
    """Ticks that it may be inactive; 0 for no limit."""
    looked_at: int
    """Tick of the next check. Set by `TimerWheel`."""

    def overdue(self) -> None:
        """Called when the deadline has passed."""


def ticks(seconds: float) -> int:
    """Convert seconds to ticks, rounded up so that no deadline passes early."""
    return math.ceil(seconds / TICK_S) + 1


class TimerWheel:
    """Clock and the slots of watched objects."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._timer: Timer | None = None
        self._due: dict[int, dict[Watched, None]] = {}
        self.now = 1
        """Current tick."""
        self.on_tick: list[Callable[[], None]] = []
        """Called at each tick."""

    def start(self) -> None:
        """Start the clock."""
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self, watched: Watched) -> None:
        """Watch an object until its deadline. Call again after a change of `allowed_ticks`; 0 ends it."""
        self.forget(watched)
        if watched.allowed_ticks:
            watched.looked_at = max(watched.last_seen + watched.allowed_ticks, self.now + 1)
            self._due.setdefault(watched.looked_at, {})[watched] = None

    def forget(self, watched: Watched) -> None:
        """Stop watching an object."""
        if watched.looked_at:
            due = self._due.get(watched.looked_at)
            if due is not None:
                due.pop(watched, None)
            watched.looked_at = 0

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self.advance()

    def advance(self) -> None:
        """Advance by one tick."""
        self.now += 1
        for watched in self._due.pop(self.now, {}):
            if watched.looked_at != self.now:
                continue  # forgotten by a callback before it
            watched.looked_at = 0
            if watched.last_seen + watched.allowed_ticks <= self.now:
                watched.overdue()
            else:
                self.watch(watched)
        for call in self.on_tick:
            call()
