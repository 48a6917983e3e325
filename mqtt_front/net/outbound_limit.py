"""What waits in memory for clients that do not read it, of all connections together, and who has to go when that is too
much.

One client's share is bounded by its socket's buffer, which stops what is delivered to it. What is looked at here is the
sum: now and then, and when many have stopped.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from mqtt_front.runtime.loop import Loop

_LEFT = 0.75
"""How much of the limit may be left over: so that not each packet brings the next look."""


class Writer(Protocol):
    """A connection: what is used of a link."""

    @property
    def unsent_bytes(self) -> int:
        """What its socket has not taken yet."""

    def cut_off(self) -> None:
        """Close it now; its session stays where it is."""


class Unsent:
    """Used by the event loop's thread only."""

    def __init__(
        self,
        writers: Collection[Writer],
        loop: Loop,
        *,
        limit_bytes: int,
        writer_bytes: int,
        sent_bytes: Callable[[], int],
    ) -> None:
        """`writers` are those that exist at any time, with about `writer_bytes` each at most; `sent_bytes` counts what
        all of them were given."""
        self._writers = writers
        self._loop = loop
        self._limit_bytes = limit_bytes
        self._writer_bytes = writer_bytes
        self._sent_bytes = sent_bytes
        self._looked_at = 0
        self._due = False
        self._stopped: dict[Writer, None] = {}
        """In the order in which they stopped reading: who reads again, if slowly, goes to the end of it."""
        self.total_bytes = 0
        """As much as there was at the last look."""

    def stopped(self, writer: Writer) -> None:
        """Its socket takes no more for now."""
        self._stopped[writer] = None
        if len(self._stopped) * self._writer_bytes > self._limit_bytes and not self._due:
            self._due = True
            self._loop.call_soon(self.look)  # not here: whoever writes does not expect the connection to end

    def went_on(self, writer: Writer) -> None:
        """Its socket takes more, or is gone."""
        self._stopped.pop(writer, None)

    def tick(self) -> None:
        """Look, if there may be more than at the last time."""
        sent_bytes = self._sent_bytes()
        if sent_bytes != self._looked_at or self.total_bytes:
            self._looked_at = sent_bytes
            self.look()

    def look(self) -> None:
        """Add up what waits. Over the limit, those that have not read for the longest time are cut off."""
        self._due = False
        sizes = {writer: size for writer in self._writers if (size := writer.unsent_bytes)}
        self.total_bytes = sum(sizes.values())
        if self.total_bytes <= self._limit_bytes:
            return
        in_order = {writer: None for writer in self._stopped if writer in sizes} | dict.fromkeys(sizes)
        for writer in in_order:
            self.total_bytes -= sizes[writer]
            writer.cut_off()
            if self.total_bytes <= self._limit_bytes * _LEFT:
                return
