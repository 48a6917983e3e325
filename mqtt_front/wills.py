"""Wills: the messages of clients that left without a word, published at once or after their delay.

A will belongs to one stay of a client: a new connection of the same client cancels one that is still delayed.
"""

import heapq
import time
from collections.abc import Callable

from mqtt_front.codec.packets import Will


class Wills:
    """The wills that wait for their delay. `publish` is called with the client id when one is due."""

    def __init__(
        self, publish: Callable[[str, Will], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._publish = publish
        self._clock = clock
        self._waiting: dict[str, tuple[float, Will]] = {}
        self._order: list[tuple[float, str]] = []

    def left(self, client_id: str, will: Will, session_expiry_s: int) -> None:
        """The client left without a word: the will is due after its delay or when the session ends, whichever
        is first."""
        delay_s = min(will.properties.will_delay_interval or 0, session_expiry_s)
        if delay_s == 0:
            self._publish(client_id, will)
            return
        due_s = self._clock() + delay_s
        self._waiting[client_id] = (due_s, will)
        heapq.heappush(self._order, (due_s, client_id))

    def returned(self, client_id: str, *, session_continues: bool) -> None:
        """The client is back: a delayed will is off, unless its session ended by that [MQTT-3.1.3-9]."""
        waiting = self._waiting.pop(client_id, None)
        if waiting is not None and not session_continues:
            self._publish(client_id, waiting[1])

    def publish_due(self) -> None:
        """Publish the wills whose time has come."""
        now = self._clock()
        while self._order and self._order[0][0] <= now:
            due_s, client_id = heapq.heappop(self._order)
            waiting = self._waiting.get(client_id)
            if waiting is not None and waiting[0] == due_s:
                del self._waiting[client_id]
                self._publish(client_id, waiting[1])

    def publish_all(self) -> None:
        """The server stops: better now than never."""
        for client_id, (_, will) in self._waiting.items():
            self._publish(client_id, will)
        self._waiting.clear()
