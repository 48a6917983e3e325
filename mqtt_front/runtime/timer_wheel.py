"""Deadlines of all connections on one coarse clock: one timer for the whole front, regardless of the number of
clients.

A connection that receives something only notes the time of the clock. It is looked at when its deadline would
be over had it stayed silent, and put off to where the deadline is by now: once a keep-alive period, not once
a packet.
"""

import math
from collections.abc import Callable
from typing import Protocol

from mqtt_front.runtime.loop import Loop, Timer

TICK_S = 0.5


class Watched(Protocol):
    """Something with a deadline."""

    last_seen: int
    """The tick at which it last gave a sign of life. Kept by itself, from `Deadlines.now`."""
    allowed_ticks: int
    """How many ticks it may be silent; 0 without end."""
    looked_at: int
    """The tick at which it will be looked at. Kept by `Deadlines`."""

    def overdue(self) -> None:
        """The deadline has passed."""


def ticks(seconds: float) -> int:
    """As ticks, rounded so that nobody is overdue before `seconds` have passed."""
    return math.ceil(seconds / TICK_S) + 1


class Deadlines:
    """The clock and who is looked at when."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._timer: Timer | None = None
        self._due: dict[int, dict[Watched, None]] = {}
        self.now = 1
        """The current tick."""
        self.on_tick: list[Callable[[], None]] = []
        """What else is due now and then, called each tick."""

    def start(self) -> None:
        """Begin to tick."""
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Tick no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self, watched: Watched) -> None:
        """Look at it when its deadline is over. Called again when `allowed_ticks` changed; 0 ends it."""
        self.forget(watched)
        if watched.allowed_ticks:
            watched.looked_at = max(watched.last_seen + watched.allowed_ticks, self.now + 1)
            self._due.setdefault(watched.looked_at, {})[watched] = None

    def forget(self, watched: Watched) -> None:
        """It is gone, or has no deadline any more."""
        if watched.looked_at:
            due = self._due.get(watched.looked_at)
            if due is not None:
                due.pop(watched, None)
            watched.looked_at = 0

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self.advance()

    def advance(self) -> None:
        """One tick passes."""
        self.now += 1
        for watched in self._due.pop(self.now, {}):
            if watched.looked_at != self.now:
                continue  # forgotten by one that came before it
            watched.looked_at = 0
            if watched.last_seen + watched.allowed_ticks <= self.now:
                watched.overdue()
            else:
                self.watch(watched)
        for call in self.on_tick:
            call()
