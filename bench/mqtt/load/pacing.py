"""Pacing of publishers: as acknowledgements arrive, by the clock, or as fast as possible."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from .publisher import Publisher, Schedule

IDLE_S = 0.1
"""How long a loop may sleep when only the server can give it something to do."""
_LOOK_AGAIN_S = 0.0002
"""How often the progress of subscribers in other processes is checked."""

Allowed = Callable[[], int]
Watch = Callable[[Publisher], None]


class Pacing(Protocol):
    """Decides when publishers send. Calls `watch` for each that may have become blocked."""

    def pump(self) -> float:
        """Send the messages that may be sent now; return the seconds until more may be sent, unless `moved` is
        called."""

    def moved(self, publisher: Publisher) -> None:
        """Note that the publisher has received an acknowledgement, or that its socket takes more."""


class InWindow:
    """Each acknowledged message allows the next one."""

    def __init__(self, publishers: Sequence[Publisher], watch: Watch) -> None:
        self._ready = deque(publishers)
        self._watch = watch

    def pump(self) -> float:
        ready = self._ready
        while ready:
            publisher = ready.popleft()
            while (room := publisher.room) > 0 and publisher.send(room, time.monotonic_ns()):
                pass
            if publisher.blocked:
                self._watch(publisher)
        return IDLE_S

    def moved(self, publisher: Publisher) -> None:
        self._ready.append(publisher)


class FlatOut:
    """Each publisher in turn sends as much as its socket takes, within the number that `allowed` gives to all
    together."""

    def __init__(
        self, publishers: Sequence[Publisher], watch: Watch, *, barrier: str, allowed: Allowed, alone: bool
    ) -> None:
        """`alone`: no progress of other processes changes the allowed number."""
        self._turns = deque(publishers)
        self._watch = watch
        self._barrier = barrier
        self._allowed = allowed
        self._look_again_s = IDLE_S if alone else _LOOK_AGAIN_S

    def pump(self) -> float:
        allowed, timeout_s = self._allowed(), IDLE_S
        for publisher in self._turns:
            if publisher.room <= 0:
                publisher.send_barrier(self._barrier)
            elif allowed <= 0:
                timeout_s = min(timeout_s, self._look_again_s)
            elif not publisher.blocked:
                allowed -= publisher.send(min(publisher.room, allowed), time.monotonic_ns())
                self._watch(publisher)
                if not publisher.blocked:
                    timeout_s = 0.0
        self._turns.rotate(-1)
        return timeout_s

    def moved(self, publisher: Publisher) -> None:
        pass


class OnClock:
    """Each publisher sends at its own times. One that is late sends all due messages at once."""

    def __init__(self, publishers: Sequence[Publisher], watch: Watch, *, barrier: str) -> None:
        """Each publisher has a schedule, and the first message of each is due after that of the one before."""
        self._turns = deque(publishers)
        self._watch = watch
        self._barrier = barrier

    def pump(self) -> float:
        for _ in range(len(self._turns)):
            publisher, now = self._turns[0], time.monotonic_ns()
            if publisher.sent >= publisher.messages:
                publisher.send_barrier(self._barrier)
            else:
                schedule = _schedule(publisher)
                next_due = schedule.due(publisher.sent)
                if next_due > now:
                    return min(IDLE_S, (next_due - now) / 1e9)
                publisher.send(min(schedule.due_count(now) - publisher.sent, publisher.room), now)
                self._watch(publisher)
            self._turns.rotate(-1)
        finished = all(publisher.sent >= publisher.messages for publisher in self._turns)
        return IDLE_S if finished else 0.0

    def moved(self, publisher: Publisher) -> None:
        pass


def _schedule(publisher: Publisher) -> Schedule:
    assert publisher.schedule is not None
    return publisher.schedule
