"""Queue from other threads into the event loop, with one wake-up of the loop for all items that collect until it runs.

A wake-up costs a system call, so the committer must not make one for each reader or append. The thread of the loop,
which writes small batches itself, needs none."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from mqtt_front.runtime.loop import Loop

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """Items put by any thread, which `deliver` receives in order in the thread of the loop."""

    def __init__(self, loop: Loop, deliver: Callable[[list[Item]], None]) -> None:
        self._loop = loop
        self._deliver = deliver
        self.waiting: deque[Item] = deque()
        """Items not yet delivered. Other threads may only check whether it is empty."""
        self._rung = False
        self.rung_ns = 0
        """When the loop was last woken for items, by `time.perf_counter_ns`."""
        self._thread = 0
        """Id of the thread of the loop, once known."""

    def put(self, item: Item) -> None:
        """Add an item. Never blocks. After the loop was closed the item is dropped."""
        self.waiting.append(item)
        # The item is added before the flag is read, and `empty` clears the flag before it takes items:
        # a thread that sees the flag set can rely on delivery.
        if not self._rung:
            self._rung = True
            self.rung_ns = time.perf_counter_ns()
            ours = threading.get_ident() == self._thread
            try:
                (self._loop.call_soon if ours else self._loop.call_soon_threadsafe)(self.empty)
            except RuntimeError:
                self.waiting.clear()

    def empty(self) -> None:
        """Deliver all items now, in the thread of the loop, which otherwise does so in a later turn."""
        if items := self.take():
            self._deliver(items)

    def take(self) -> list[Item]:
        """Drain the queue without calling `deliver`. Event-loop thread only."""
        self._thread = threading.get_ident()
        self._rung = False
        items: list[Item] = []
        for _ in range(len(self.waiting)):
            items.append(self.waiting.popleft())
        return items
