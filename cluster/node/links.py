"""Connections between nodes: one for each direction, which its sender dials, supervises and dials again.

What a dead link loses is asked for again by the protocol, so a queue holds frames and places in a log, never records,
and is dropped as a whole."""

import asyncio
import logging
import random
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from timestone.address import parse_address
from timestone_cluster.errors import UndecodableFrame
from timestone_cluster.node.wire import Hello, Message, encoded, read_message

_LOGGER = logging.getLogger("timestone.cluster")
_QUEUE_ITEMS = 10_000
_STUCK_S = 5.0
"""A peer that takes nothing for so long is cut off."""
_DIAL_S = 2.0
_PAUSE_S = (0.05, 1.0)
_BUFFER_BYTES = 4 << 20
_HELLO_BYTES = 1024
_CONNECTIONS = 1024
"""Most connections that a node accepts."""

Item = Callable[[], Awaitable[list[bytes] | None]] | list[bytes]
"""A message; or a function that returns the next message when it can be sent, and None after the last one."""


class Link:
    """Connection to one node, for sending."""

    def __init__(
        self,
        hello: Hello,
        address: Callable[[], str | None],
        context: ssl.SSLContext | None,
        linked: Callable[[], None],
    ) -> None:
        """address: where the node is now. linked: called when a new connection is up."""
        self._hello = hello
        self._address = address
        self._context = context
        self._linked = linked
        self._items: deque[Item] = deque()
        self._has_items = asyncio.Event()
        self.is_up = False

    def put(self, item: Item) -> None:
        """Send a message after the others; dropped without a connection."""
        if not self.is_up:
            return
        if len(self._items) >= _QUEUE_ITEMS:
            self._items.clear()  # what is lost is asked for again
        self._items.append(item)
        self._has_items.set()

    async def run(self) -> None:
        """Hold a connection until cancelled."""
        pause_s = _PAUSE_S[0]
        while True:
            address = self._address()
            if address is not None:
                try:
                    await self._connected(address)
                    pause_s = _PAUSE_S[0]
                except (OSError, TimeoutError, ssl.SSLError) as error:
                    _LOGGER.debug("link to %s: %r", address, error)
                finally:
                    self.is_up = False
                    self._items.clear()
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _PAUSE_S[1])

    async def _connected(self, address: str) -> None:
        host, port = parse_address(address, setting="peer")
        async with asyncio.timeout(_DIAL_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=self._context)
        try:
            writer.transport.set_write_buffer_limits(high=_BUFFER_BYTES)
            writer.writelines(encoded(self._hello))
            self.is_up = True
            self._linked()
            sending = asyncio.ensure_future(self._send(writer))
            ended = asyncio.ensure_future(reader.read(1))  # the other side sends nothing: this is its end
            try:
                await asyncio.wait((sending, ended), return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
            finally:
                sending.cancel()
                ended.cancel()
                with suppress(asyncio.CancelledError, OSError, TimeoutError):
                    await sending
        finally:
            writer.transport.abort()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._has_items.wait()
            while self._items:
                item = self._items.popleft()
                if isinstance(item, list):
                    writer.writelines(item)
                else:
                    while (pieces := await item()) is not None:
                        writer.writelines(pieces)
                        await self._drained(writer)
                await self._drained(writer)
            self._has_items.clear()

    @staticmethod
    async def _drained(writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_STUCK_S):
            await writer.drain()


class Listener:
    """Where other nodes and clients connect to."""

    def __init__(
        self,
        cluster: str,
        linked: Callable[[str], None],
        received: Callable[[str, int, Message], None],
        asked: Callable[[asyncio.StreamWriter, int, Message], None],
    ) -> None:
        """linked: called with each node that connects. received: with node, shard and frame. asked: with what a client
        sends."""
        self._cluster = cluster
        self._linked = linked
        self._received = received
        self._asked = asked
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen, and return the port. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, ssl=context, limit=_BUFFER_BYTES)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= _CONNECTIONS:
            _LOGGER.warning(
                "%s: refused: there are %d connections", writer.get_extra_info("peername"), _CONNECTIONS
            )
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            async with asyncio.timeout(_STUCK_S):
                _, hello = await read_message(reader, most_bytes=_HELLO_BYTES)
            if not isinstance(hello, Hello) or hello.cluster != self._cluster or hello.version != 1:
                raise UndecodableFrame("expected the first message of a node or client of this cluster")
            if hello.node:
                self._linked(hello.node)
            while True:
                shard, message = await read_message(reader)
                if hello.node:
                    self._received(hello.node, shard, message)
                else:
                    self._asked(writer, shard, message)
        except UndecodableFrame as error:
            _LOGGER.warning("%s: connection closed: %s", writer.get_extra_info("peername"), error)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
