"""When publishers may send: as acknowledgements come in, by the clock, or as fast as it goes."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from .publisher import Publisher, Schedule

IDLE_S = 0.1
"""How long a loop may sleep when only the other side can give it something to do."""
_LOOK_AGAIN_S = 0.0002
"""How often to look whether subscribers in another process have moved."""

Allowed = Callable[[], int]
Watch = Callable[[Publisher], None]


class Pacing(Protocol):
    """Lets publishers send. Calls `watch` for each that may have become blocked."""

    def pump(self) -> float:
        """Send what may be sent now; returns after how many seconds there may be more, unless `moved` is called."""

    def moved(self, publisher: Publisher) -> None:
        """The publisher has got an acknowledgement, or its socket takes more."""


class InWindow:
    """As soon as one message is acknowledged, the next may go."""

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
    """Everybody in turn as much as the socket takes, and as `allowed` allows all of them together."""

    def __init__(
        self, publishers: Sequence[Publisher], watch: Watch, *, barrier: str, allowed: Allowed, alone: bool
    ) -> None:
        """`alone`: nobody else's progress changes what is allowed."""
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
    """Each publisher in turn, at the time that is its own. Who is late sends all that is due in one go."""

    def __init__(self, publishers: Sequence[Publisher], watch: Watch, *, barrier: str) -> None:
        """Each publisher has a schedule, and each one's first message is due after that of the one before."""
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
