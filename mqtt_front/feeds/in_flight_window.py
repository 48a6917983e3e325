"""In-flight window of a feed: unacknowledged offsets, and the committed offset below all of them."""

from collections import deque
from collections.abc import Iterable

_NONE_SENT: deque[int] = deque(maxlen=0)
"""Shared empty deque of new windows: a separate one would be a tenth of the memory of an idle client."""
_EARLY_MAX = 1000
"""Acknowledged offsets kept above an unacknowledged one, or as many as are unacknowledged: a client may never
acknowledge one and quickly acknowledge a million after it."""


class InFlightWindow:
    """Offsets sent at QoS 1 or 2 and not acknowledged, in order of sending, which is that of the log.

    Acknowledgements may come in any order. The committed offset is the lowest unacknowledged one: a session that
    continues there misses nothing and receives unacknowledged deliveries again."""

    __slots__ = ("_early", "_order", "seen")

    def __init__(self, seen: int, in_flight: Iterable[int] = ()) -> None:
        self.seen = seen
        """Everything below was sent, acknowledged, or not for this client."""
        order = sorted(in_flight)
        self._order: deque[int] = deque(order) if order else _NONE_SENT
        self._early: set[int] | None = None

    @property
    def committed(self) -> int:
        return self._order[0] if self._order else self.seen

    @property
    def in_flight_count(self) -> int:
        return len(self._order) - len(self._early or ())

    def sent(self, offsets: Iterable[int]) -> None:
        """Add offsets, all higher than earlier ones, that were sent."""
        if self._order is _NONE_SENT:
            self._order = deque()
        self._order.extend(offsets)

    def acknowledged(self, offset: int) -> None:
        """Remove an acknowledged offset."""
        order, early = self._order, self._early
        if order[0] != offset:
            if early is None:
                early = self._early = set()
            early.add(offset)
            if len(early) > _EARLY_MAX and 2 * len(early) > len(order):
                self._order = deque(one for one in order if one not in early)
                early.clear()
            return
        order.popleft()
        while early and order[0] in early:
            early.remove(order.popleft())
