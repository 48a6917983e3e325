"""Reads the sockets of plain TCP links side by side, where the compiled kernel is there: a turn of a thousand clients
with one publish each is one call from the event loop, and so are its acknowledgements.

It stands beside the loop's transports and not in their place. A transport whose link is added is paused; its socket is
watched by an epoll of our own, which the loop watches as one descriptor. Whatever is more than bytes from a client (its
end, an error, what its socket does not take) goes back to the transport, so that closing, half-closed sockets and
write buffers exist once. Without the kernel, or on a system without epoll, transports read all links.
"""

import operator
from collections.abc import Callable
from typing import Any, Protocol

from mqtt_front.ingest.ingest import PIECE_BYTES
from mqtt_front.kernel import loops
from mqtt_front.kernel.publish_fast_path import Gathered
from mqtt_front.net.client_protocol import FRONT_BYTES, Link, LinkServer, PolledSocket

_SOURCES_AND_ANSWERS = operator.attrgetter("sources", "answers")
_TURN_BYTES = 4 * 1024 * 1024
"""From so many bytes on the loop has its turn, however many sockets have more."""


class PollingLoop(Protocol):
    """What is used of an event loop, in asyncio's words."""

    def add_reader(self, fd: int, callback: Callable[[], Any]) -> None: ...
    def remove_reader(self, fd: int) -> Any: ...
    def call_exception_handler(self, context: dict[str, Any]) -> None: ...


class Poller:
    """Used by the event loop's thread only."""

    def __init__(self, broker: LinkServer, loop: PollingLoop) -> None:
        """Raises OSError when there is no epoll to be had. `kernel.Sockets` has to be there."""
        self._broker = broker
        self._loop = loop
        ingest = broker.ingest
        self._sockets = loops.Sockets(
            ingest.gathering, ingest, broker.memory, FRONT_BYTES, ingest.modest_bytes, PIECE_BYTES
        )
        loop.add_reader(self._sockets.fileno(), self._turn)

    def stop(self) -> None:
        """Read nothing any more. Links are closed after it, or before."""
        self._loop.remove_reader(self._sockets.fileno())
        self._sockets.close()

    def add(self, link: Link, fd: int) -> PolledSocket | None:
        """Read a link's socket from now on, its transport being paused; None when the system has no room for it."""
        try:
            added: PolledSocket = self._sockets.add(link, fd)
        except OSError:  # ENOSPC: fs.epoll.max_user_watches
            return None
        return added

    def pause(self, one: PolledSocket) -> None:
        """Read nothing from it for a while."""
        self._sockets.pause(one)

    def resume(self, one: PolledSocket) -> bool:
        """Read from it again; False when the system has no room for it any more."""
        try:
            self._sockets.resume(one)
        except OSError:
            return False
        return True

    def remove(self, one: PolledSocket) -> None:
        """It is its transport's alone from now on. Before its descriptor is closed."""
        self._sockets.remove(one)

    def acknowledge(self, turns: list[Gathered]) -> None:
        """Send all sources of some turns their acknowledgements, each in one piece."""
        packet_count, byte_count = self._sockets.acknowledge(list(map(_SOURCES_AND_ANSWERS, turns)))
        counts = self._broker.counts
        counts.packets_sent += packet_count
        counts.bytes_sent += byte_count

    def _turn(self) -> None:
        """Sockets have something to read: take what all of them have, and submit it at once."""
        broker = self._broker
        # Links that it calls count theirs themselves, meanwhile.
        byte_count = self._sockets.receive(
            broker.deadlines.now, _TURN_BYTES, broker.ingest.room_bytes, self._failed
        )
        broker.counts.bytes_received += byte_count
        broker.ingest.flush()

    def _failed(self, link: Link, error: Exception) -> None:
        """An error of ours while a link was served: it ends, the others continue."""
        self._loop.call_exception_handler({"message": f"serving {link!r} failed", "exception": error})
        link.abort()
