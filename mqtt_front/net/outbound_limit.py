"""Outbound limit: bounds the memory of packets that clients do not read, over all connections, and chooses which
clients to disconnect.

The share of one client is bounded by the buffer of its socket, which stops deliveries to it. This checks the sum, at
intervals and when many clients have stopped reading."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from mqtt_front.runtime.loop import Loop
from mqtt_front.sessions.session import Client

_LEFT = 0.75
"""Fraction of the limit left after disconnecting, so that not every packet causes the next check."""


@dataclass(kw_only=True)
class OutboundLimit:
    """Event-loop thread only."""

    writers: Collection[Client]
    """The current connections."""
    loop: Loop
    limit_bytes: int
    writer_bytes: int
    """About what waits for one of them, at most."""
    sent_bytes: Callable[[], int]
    """Returns the bytes sent to all of them."""
    total_bytes: int = 0
    """Total at the last check."""
    _looked_at: int = 0
    _due: bool = False
    _stopped: dict[Client, None] = field(default_factory=dict)
    """In order of the time when they stopped reading; one that reads again, even slowly, moves to the end."""

    def stopped(self, writer: Client) -> None:
        """Note that a socket is full."""
        self._stopped[writer] = None
        if len(self._stopped) * self.writer_bytes > self.limit_bytes and not self._due:
            self._due = True
            self.loop.call_soon(self.look)  # not here: the caller does not expect the connection to end

    def went_on(self, writer: Client) -> None:
        """Note that a socket takes more, or is closed."""
        self._stopped.pop(writer, None)

    def tick(self) -> None:
        """Check, if the total may have grown since the last check."""
        sent_bytes = self.sent_bytes()
        if sent_bytes != self._looked_at or self.total_bytes:
            self._looked_at = sent_bytes
            self.look()

    def look(self) -> None:
        """Sum up what waits. Over the limit, disconnect those that have not read for the longest time."""
        self._due = False
        sizes = {writer: size for writer in self.writers if (size := writer.unsent_bytes)}
        self.total_bytes = sum(sizes.values())
        if self.total_bytes <= self.limit_bytes:
            return
        in_order = {writer: None for writer in self._stopped if writer in sizes} | dict.fromkeys(sizes)
        for writer in in_order:
            self.total_bytes -= sizes[writer]
            writer.cut_off()
            if self.total_bytes <= self.limit_bytes * _LEFT:
                return
