"""Timer queue: a heap of due items that drops cancelled ones, so that repeated setting and cancelling does not fill
the memory."""

import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

_CALLED_OFF_MAX = 1000
"""Cancelled entries kept in the heap at most, or as many as are still due."""


class TimerQueue(Generic[Item]):
    """Items, each with one due time. For one thread."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()
        self._entries: dict[Item, int] = {}
        """Number of the valid entry of each item."""

    def set(self, item: Item, due: float) -> None:
        """Set the due time of an item, replacing an earlier one."""
        number = self._entries[item] = next(self._numbers)
        heapq.heappush(self._heap, (due, number, item))
        if len(self._heap) > 2 * len(self._entries) + _CALLED_OFF_MAX:
            self._heap = [entry for entry in self._heap if self._entries.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def call_off(self, item: Item) -> None:
        """Cancel an item. No effect if it is not due."""
        self._entries.pop(item, None)

    def take(self, now: float) -> list[Item]:
        """Remove and return the items due by now, in order of time."""
        taken: list[Item] = []
        while self._heap and self._heap[0][0] <= now:
            _, number, item = heapq.heappop(self._heap)
            if self._entries.get(item) == number:
                del self._entries[item]
                taken.append(item)
        return taken
