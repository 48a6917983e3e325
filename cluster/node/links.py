"""Connections between nodes: one for each direction, which its sender dials, supervises and dials again.

What a connection loses when it ends is asked for again by the protocol on the next one, so a queue holds frames and
places in a log, never records; one that is full ends its connection."""

import asyncio
import logging
import random
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from timestone.address import parse_address, send
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
_HANDSHAKE_S = 5.0
_CLIENTS = 1024
"""Most clients that a node accepts."""
_NODES = 1024
"""Most nodes that it accepts. They have places of their own, and one each: a new connection takes the old one's."""
_STRANGERS = 256
"""Most connections without a first message yet; a further one takes the place of the oldest."""


Item = Callable[[], Awaitable[list[bytes] | None]] | list[bytes]
"""A message; or a function that returns the next message when it can be sent, and None after the last one."""


def give_up_early(connection: asyncio.StreamWriter | asyncio.Transport) -> None:
    """Have a connection end when the other side has confirmed nothing for some seconds. TCP by itself sends again for a
    quarter of an hour, at growing intervals, so that a link would stay dead long after the network is repaired."""
    found: socket.socket | None = connection.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_STUCK_S * 1000))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)


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
        self._writer: asyncio.StreamWriter | None = None

    @property
    def is_up(self) -> bool:
        """Return whether there is a connection."""
        return self._writer is not None

    def put(self, item: Item) -> None:
        """Send a message after the others. Dropped without a connection, which is ended where too many wait: the
        next one makes the other side ask for what it lacks."""
        if self._writer is None:
            return
        if len(self._items) >= _QUEUE_ITEMS:
            _LOGGER.warning("link to %s: closed: %d messages wait", self._address(), len(self._items))
            self._writer.transport.abort()
            self._writer = None
            return
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
                    self._writer = None
                    self._items.clear()
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _PAUSE_S[1])

    async def _connected(self, address: str) -> None:
        host, port = parse_address(address, setting="peer")
        async with asyncio.timeout(_DIAL_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=self._context)
        try:
            send(writer, *encoded(self._hello))  # first: it may have ended again, and then has no options
            give_up_early(writer)
            writer.transport.set_write_buffer_limits(high=_BUFFER_BYTES)
            self._writer = writer
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
                    send(writer, *item)
                else:
                    while (pieces := await item()) is not None:
                        send(writer, *pieces)
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
        asked: Callable[[asyncio.StreamWriter, int, Message], bool],
    ) -> None:
        """linked: called with each node that connects. received: with node, shard and frame. asked: with what a client
        sends; returns whether the connection is another one's from now on."""
        self._cluster = cluster
        self._linked = linked
        self._received = received
        self._asked = asked
        self._server: asyncio.Server | None = None
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._clients: set[asyncio.StreamWriter] = set()
        self._nodes: dict[str, asyncio.StreamWriter] = {}

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen, and return the port. Raises OSError."""
        limit_s = _HANDSHAKE_S if context is not None else None
        self._server = await asyncio.start_server(
            self._serve, host, port, ssl=context, limit=_BUFFER_BYTES, ssl_handshake_timeout=limit_s
        )
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
            for writer in [*self._strangers, *self._clients, *self._nodes.values()]:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node, is_taken = "", False
        try:
            node = await self._greeted(reader, writer)
            if node:
                self._linked(node)
            while True:
                shard, message = await read_message(reader)
                if node:
                    self._received(node, shard, message)
                elif self._asked(writer, shard, message):
                    is_taken = True
                    return
        except UndecodableFrame as error:
            _LOGGER.warning("%s: connection closed: %s", writer.get_extra_info("peername"), error)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._clients.discard(writer)
            if self._nodes.get(node) is writer:
                del self._nodes[node]
            if not is_taken:
                writer.transport.abort()

    async def _greeted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Take the first message, and return the node that has sent it; empty for a client. Raises UndecodableFrame
        for any other message, and for a client or node when all places are taken."""
        if len(self._strangers) >= _STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        give_up_early(writer)
        self._strangers[writer] = None
        try:
            async with asyncio.timeout(_STUCK_S):
                _, hello = await read_message(reader, most_bytes=_HELLO_BYTES)
        finally:
            self._strangers.pop(writer, None)
        if not isinstance(hello, Hello) or hello.cluster != self._cluster or hello.version != 1:
            raise UndecodableFrame("expected the first message of a node or client of this cluster")
        if not hello.node:
            if len(self._clients) >= _CLIENTS:
                raise UndecodableFrame(f"there are {_CLIENTS} clients")
            self._clients.add(writer)
        else:
            before = self._nodes.get(hello.node)
            if before is not None:
                before.transport.abort()
            elif len(self._nodes) >= _NODES:
                raise UndecodableFrame(f"there are {_NODES} nodes")
            self._nodes[hello.node] = writer
        return hello.node
