"""Poller: reads the sockets of plain TCP clients together, if the compiled kernel is available. A turn of a thousand
clients with one publish each is one call from the event loop, and so are its acknowledgements.

It complements the transports of the loop. The transport of an added client is paused; its socket is watched by a
separate epoll, which the loop watches as one descriptor. Everything except bytes from a client (its end, an error,
unsent bytes) is returned to the transport, so that closing, half-closed sockets and write buffers are implemented
once. Without the kernel or epoll, transports read all clients."""

import operator
from collections.abc import Callable
from typing import Any, Protocol

from mqtt_front.ingest.ingest import PIECE_BYTES
from mqtt_front.kernel import loops
from mqtt_front.kernel.publish_fast_path import PublishColumns
from mqtt_front.net.client_protocol import FRONT_BYTES, ProtocolServer
from mqtt_front.net.client_socket import ClientSocket

_SOURCES_AND_ANSWERS = operator.attrgetter("sources", "answers")
_TURN_BYTES = 4 * 1024 * 1024
"""After this many bytes the loop continues, even if there is more to read."""


class PollingLoop(Protocol):
    """Methods used of an event loop of asyncio."""

    def add_reader(self, fd: int, callback: Callable[[], Any]) -> None: ...
    def remove_reader(self, fd: int) -> Any: ...
    def call_exception_handler(self, context: dict[str, Any]) -> None: ...


class Poller:
    """Event-loop thread only."""

    def __init__(self, broker: ProtocolServer, loop: PollingLoop) -> None:
        """Create the epoll. Raises OSError. `kernel.Sockets` must be available."""
        self._broker = broker
        self._loop = loop
        self._sockets = loops.Sockets(broker.ingest, broker.memory, FRONT_BYTES, PIECE_BYTES)
        loop.add_reader(self._sockets.fileno(), self._turn)

    def stop(self) -> None:
        """Stop reading. Client protocols are closed before or after it."""
        self._loop.remove_reader(self._sockets.fileno())
        self._sockets.close()

    def add(self, link: ClientSocket, fd: int) -> object:
        """Read a socket from now on; its transport is paused. Return None if the system has no room for it."""
        try:
            added: object = self._sockets.add(link, fd)
        except OSError:  # ENOSPC: fs.epoll.max_user_watches
            return None
        return added

    def pause(self, one: object) -> None:
        """Pause reading from it."""
        self._sockets.pause(one)

    def resume(self, one: object) -> bool:
        """Resume reading from it. Return False if the system has no room for it any more."""
        try:
            self._sockets.resume(one)
        except OSError:
            return False
        return True

    def remove(self, one: object) -> None:
        """Leave it to its transport. Call before its descriptor is closed."""
        self._sockets.remove(one)

    def acknowledge(self, turns: list[PublishColumns]) -> None:
        """Send all sources of some turns their acknowledgements, each in one piece."""
        packet_count, byte_count = self._sockets.acknowledge(list(map(_SOURCES_AND_ANSWERS, turns)))
        counts = self._broker.counts
        counts.packets_sent += packet_count
        counts.bytes_sent += byte_count

    def _turn(self) -> None:
        """Read all readable sockets and submit their publishes at once."""
        broker = self._broker
        # Client protocols called by it count their own bytes.
        byte_count = self._sockets.receive(broker.deadlines.now, _TURN_BYTES, self._failed)
        broker.counts.bytes_received += byte_count
        broker.ingest.flush()

    def _failed(self, link: ClientSocket, error: Exception) -> None:
        """End a client protocol after an internal error; the others continue."""
        self._loop.call_exception_handler({"message": f"serving {link!r} failed", "exception": error})
        link.abort()
