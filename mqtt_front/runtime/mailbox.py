"""From other threads into the event loop: one wake-up of the loop for everything that gathered meanwhile.

Waking a loop costs a system call, so the committer must not do it once a reader or once an append. The loop's own
thread, which writes small batches itself, need not wake anybody.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from mqtt_front.runtime.loop import Loop

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """Items put in by any thread; `deliver` gets them all in order, in the loop's thread."""

    def __init__(self, loop: Loop, deliver: Callable[[list[Item]], None]) -> None:
        self._loop = loop
        self._deliver = deliver
        self.waiting: deque[Item] = deque()
        """What is not delivered yet. Others only look whether there is anything."""
        self._rung = False
        self._thread = 0
        """The loop's, once it has been seen."""
        self.attended = False
        """The loop's own thread will call `empty` once it has put in what it has: then it need not be rung for that."""

    def put(self, item: Item) -> None:
        """Never blocks. After the loop was closed the item is dropped."""
        self.waiting.append(item)
        # The item is in before the flag is read, and `empty` lowers the flag before it takes items out:
        # whoever sees the flag up is certain to be served.
        if not self._rung:
            ours = threading.get_ident() == self._thread
            if ours and self.attended:
                return
            self._rung = True
            try:
                (self._loop.call_soon if ours else self._loop.call_soon_threadsafe)(self.empty)
            except RuntimeError:
                self.waiting.clear()

    def empty(self) -> None:
        """Deliver what is there, in the loop's thread: it does so by itself, but in a turn to come."""
        if items := self.take():
            self._deliver(items)

    def take(self) -> list[Item]:
        """What is there, in the loop's thread, for whom it is not to be delivered."""
        self._thread = threading.get_ident()
        self._rung = False
        items: list[Item] = []
        for _ in range(len(self.waiting)):
            items.append(self.waiting.popleft())
        return items
