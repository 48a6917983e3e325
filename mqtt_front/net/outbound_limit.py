"""Outbound limit: bounds the memory of packets that clients do not read, over all connections, and chooses which
clients to disconnect.

The share of one client is bounded by the buffer of its socket, which stops deliveries to it. This checks the sum, at
intervals and when many clients have stopped reading."""

from collections.abc import Callable, Collection

from mqtt_front.runtime.loop import Loop
from mqtt_front.sessions.session import Client

_LEFT = 0.75
"""Fraction of the limit left after disconnecting, so that not every packet causes the next check."""


class OutboundLimit:
    """Event-loop thread only."""

    def __init__(
        self,
        writers: Collection[Client],
        loop: Loop,
        *,
        limit_bytes: int,
        writer_bytes: int,
        sent_bytes: Callable[[], int],
    ) -> None:
        """writers: returns the current connections, with about `writer_bytes` each at most. sent_bytes: total bytes
        sent to all of them."""
        self._writers = writers
        self._loop = loop
        self._limit_bytes = limit_bytes
        self._writer_bytes = writer_bytes
        self._sent_bytes = sent_bytes
        self._looked_at = 0
        self._due = False
        self._stopped: dict[Client, None] = {}
        """In order of the time when they stopped reading; one that reads again, even slowly, moves to the end."""
        self.total_bytes = 0
        """Total at the last check."""

    def stopped(self, writer: Client) -> None:
        """Note that a socket is full."""
        self._stopped[writer] = None
        if len(self._stopped) * self._writer_bytes > self._limit_bytes and not self._due:
            self._due = True
            self._loop.call_soon(self.look)  # not here: the caller does not expect the connection to end

    def went_on(self, writer: Client) -> None:
        """Note that a socket takes more, or is closed."""
        self._stopped.pop(writer, None)

    def tick(self) -> None:
        """Check, if the total may have grown since the last check."""
        sent_bytes = self._sent_bytes()
        if sent_bytes != self._looked_at or self.total_bytes:
            self._looked_at = sent_bytes
            self.look()

    def look(self) -> None:
        """Sum up what waits. Over the limit, disconnect those that have not read for the longest time."""
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
