"""What is due when: a heap by time that forgets what was called off, so that whoever sets something and calls it off
again and again does not fill the memory."""

import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

_CALLED_OFF_MAX = 1000
"""So many that were called off stay in the heap, or as many as are still due."""


class Schedule(Generic[Item]):
    """Items that are due, each at one time. Used by one thread."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()
        self._entries: dict[Item, int] = {}
        """The number of the one entry of each item that counts."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_count(self) -> int:
        """Entries in memory, with those that were called off."""
        return len(self._heap)

    def set(self, item: Item, due: float) -> None:
        """The item is due at this time, and no longer at an earlier one."""
        number = self._entries[item] = next(self._numbers)
        heapq.heappush(self._heap, (due, number, item))
        if len(self._heap) > 2 * len(self._entries) + _CALLED_OFF_MAX:
            self._heap = [entry for entry in self._heap if self._entries.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def call_off(self, item: Item) -> None:
        """The item is not due any more; nothing happens if it was not."""
        self._entries.pop(item, None)

    def take(self, now: float) -> list[Item]:
        """The items that are due by now, those that were due first in front; they are not due again."""
        taken: list[Item] = []
        while self._heap and self._heap[0][0] <= now:
            _, number, item = heapq.heappop(self._heap)
            if self._entries.get(item) == number:
                del self._entries[item]
                taken.append(item)
        return taken
