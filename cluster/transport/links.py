"""Connections between nodes: one for each direction, which its sender dials, supervises and dials again.

What a connection loses when it ends is asked for again by the protocol on the next one, so a queue holds frames and
places in a log, never records; one that is full ends its connection."""

import asyncio
import logging
import random
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from timestone.address import parse_address, send
from timestone.errors import TimestoneError
from timestone_cluster.errors import UndecodableFrame
from timestone_cluster.shard_record import node_of
from timestone_cluster.transport.wire import (
    MESSAGE_BYTES,
    Hello,
    Message,
    checked_size,
    decoded,
    encoded,
    read_message,
)

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


_LENGTH = struct.Struct("<I")
_RECEIVED_BYTES = 256 * 1024
_LARGE_BYTES = 32 * 1024
"""A message of this size or more that is not whole yet gets memory of its own."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Tls:
    """Contexts of the connections between nodes, in both of which certificates are required."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class Source(Protocol):
    """Messages that are made when they can be sent."""

    @property
    def is_over(self) -> bool:
        """Return whether the last message was made."""

    @property
    def is_ready(self) -> bool:
        """Return whether the next message is made without waiting."""

    def now(self) -> list[bytes]:
        """Return the next message. After an error it is for `next`."""

    async def next(self) -> list[bytes] | None:
        """Return the next message, or None after the last one, when it is ready. Raises OSError to end the link."""


Item = Source | list[bytes]
"""What to send: a message, or several."""


def give_up_early(connection: asyncio.StreamWriter | asyncio.Transport) -> None:
    """Have a connection end when the other side has confirmed nothing for some seconds. TCP by itself sends again for a
    quarter of an hour, at growing intervals, so that a link would stay dead long after the network is repaired."""
    found: socket.socket | None = connection.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_STUCK_S * 1000))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)


def plain_descriptor(transport: asyncio.BaseTransport) -> int:
    """Return the descriptor of a connection in clear, from which others may read; -1 for TLS."""
    found: socket.socket | None = transport.get_extra_info("socket")
    return -1 if found is None or transport.get_extra_info("ssl_object") is not None else found.fileno()


def forget_frames(error: BaseException | None) -> None:
    """Have the error of a connection refer to no frame. Its reader or future keeps the error, whose frames refer to the
    connection: with TLS 256 KiB would stay until the collector finds the cycle."""
    if error is not None:
        error.__traceback__ = None


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
        """Send a message after the others: in this call where nothing has to wait. Dropped without a connection, which
        is ended where too many wait: the next one makes the other side ask for what it lacks."""
        if self._writer is None or (not self._items and self._sent(self._writer, item)):
            return
        if len(self._items) >= _QUEUE_ITEMS:
            _LOGGER.warning("link to %s: closed: %d messages wait", self._address(), len(self._items))
            self._writer.transport.abort()
            self._writer = None
            return
        self._items.append(item)
        self._has_items.set()

    @staticmethod
    def _sent(writer: asyncio.StreamWriter, item: Item) -> bool:
        """Send as much as needs no waiting, and return whether that was all."""
        transport = writer.transport
        try:
            while transport.get_write_buffer_size() < _BUFFER_BYTES:
                if isinstance(item, list):
                    send(transport, *item)
                    return True
                if item.is_over:
                    return True
                if not item.is_ready:
                    return False
                send(transport, *item.now())
        except (TimestoneError, OSError):
            pass  # the task meets it again
        return False

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
                    forget_frames(error)
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
                # Not awaited itself: a cancellation of this task would pass for that of `sending`, and `run` not end.
                await asyncio.wait((sending,))
                if not sending.cancelled():
                    sending.exception()  # retrieved: else asyncio logs it
                forget_frames(reader.exception())
        finally:
            writer.transport.abort()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._has_items.wait()
            while self._items:
                item = self._items[0]  # as long as it stands there, `put` sends nothing before it
                if isinstance(item, list):
                    send(writer, *item)
                else:
                    while (pieces := await item.next()) is not None:
                        send(writer, *pieces)
                        await self._drained(writer)
                self._items.popleft()
                await self._drained(writer)
            self._has_items.clear()

    @staticmethod
    async def _drained(writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_STUCK_S):
            await writer.drain()


class Incoming(asyncio.BufferedProtocol):
    """Connection from which messages come, the first of which says from whom: each is passed on as soon as it is whole,
    and a large one is received where it stays."""

    def __init__(
        self,
        made: Callable[["Incoming"], None],
        received: Callable[["Incoming", int, Message], None],
        ended: Callable[["Incoming", str], None],
        most_bytes: int,
    ) -> None:
        """made, received, ended: called with this connection; received with shard and message, ended with the error
        that ended it, or with an empty text. most_bytes: of the first message."""
        self._made, self._received, self._ended = made, received, ended
        self.most_bytes = most_bytes
        self.node = ""
        """The member that it has named."""
        self._buffer = memoryview(bytearray(_RECEIVED_BYTES))
        self._begin = self._end = 0
        """Where the bytes in the buffer are that belong to no message yet."""
        self._large: memoryview | None = None
        self._filled = 0
        self._error = ""
        """A text: the traceback of an exception refers to this connection, and would keep its buffer after the end."""
        self._is_taken = False
        """Whether nothing more is received here."""

    @property
    def transport(self) -> asyncio.Transport:
        """Return its transport, until its end."""
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._made(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended(self, self._error)
        self._let_go()

    def _let_go(self) -> None:
        """Refer to the transport no more: the TLS of uvloop refers to this connection after its end, and 256 KiB would
        stay until the collector finds the cycle."""
        self._is_taken = True
        del self._transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :] if self._large is None else self._large[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._large is None:
                self._end += nbytes
            else:
                self._filled += nbytes
                if self._filled < len(self._large):
                    return
                whole, self._large = self._large, None
                self._received(self, *decoded(whole))
            self._split()
        except UndecodableFrame as error:
            self._error = str(error)
            self._transport.abort()

    def _split(self) -> None:
        """Hand on the messages in the buffer that are whole."""
        while self._end - self._begin >= _LENGTH.size and not self._is_over:
            (size_bytes,) = _LENGTH.unpack_from(self._buffer, self._begin)
            first = self._begin + _LENGTH.size
            end = first + checked_size(size_bytes, self.most_bytes)
            if end > self._end:
                if size_bytes >= _LARGE_BYTES:
                    self._receive_large(first, size_bytes)
                break
            self._begin = end
            self._received(self, *decoded(self._buffer[first:end]))
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._begin and not self._is_taken:
            rest = bytes(self._buffer[self._begin : self._end])
            self._begin, self._end = 0, len(rest)
            self._buffer[: len(rest)] = rest

    def _receive_large(self, first: int, size_bytes: int) -> None:
        large = np.empty(size_bytes, dtype="u1").data  # not written to before the bytes come
        self._filled = self._end - first
        large[: self._filled] = self._buffer[first : self._end]
        self._large, self._begin, self._end = large, 0, 0

    @property
    def _is_over(self) -> bool:
        return self._is_taken or self._transport.is_closing()

    def become_streams(self, serve: Serve, limit_bytes: int) -> None:
        """Have a coroutine serve the connection from the next message on, with a reader and a writer."""
        transport = self._transport
        self._let_go()
        reader = asyncio.StreamReader(limit_bytes)
        protocol = asyncio.StreamReaderProtocol(reader, serve)
        transport.pause_reading()  # uvloop chooses the kind of protocol when it begins to read
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._begin < self._end:
            reader.feed_data(bytes(self._buffer[self._begin : self._end]))
        transport.resume_reading()


class Listener:
    """Where other nodes and clients connect to."""

    def __init__(
        self,
        cluster: str,
        linked: Callable[[str], None],
        received: Callable[[str, int, Message], None],
        asked: Callable[[asyncio.StreamWriter, int, Message], bool],
    ) -> None:
        """linked: called with each member that connects. received: with member, shard and frame. asked: with what a
        client sends; returns whether the connection is another one's from now on."""
        self._cluster = cluster
        self._linked = linked
        self._received = received
        self._asked = asked
        self._server: asyncio.Server | None = None
        self._strangers: dict[Incoming, asyncio.TimerHandle] = {}
        self._clients: set[asyncio.WriteTransport] = set()
        self._nodes: dict[str, Incoming] = {}

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen, and return the port. Raises OSError."""
        limit_s = _HANDSHAKE_S if context is not None else None
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Incoming(self._made, self._arrived, self._ended, _HELLO_BYTES),
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=limit_s,
        )
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
            connections = [one.transport for one in (*self._strangers, *self._nodes.values())]
            for transport in (*connections, *self._clients):
                transport.abort()

    def _made(self, connection: Incoming) -> None:
        if len(self._strangers) >= _STRANGERS:
            oldest = next(iter(self._strangers))
            self._forget(oldest)
            oldest.transport.abort()
        give_up_early(connection.transport)
        self._strangers[connection] = asyncio.get_running_loop().call_later(
            _STUCK_S, connection.transport.abort
        )

    def _forget(self, connection: Incoming) -> None:
        timer = self._strangers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _arrived(self, connection: Incoming, shard: int, message: Message) -> None:
        if connection.node:
            self._received(connection.node, shard, message)
        else:
            self._greeted(connection, message)

    def _ended(self, connection: Incoming, error: str) -> None:
        self._forget(connection)
        if error:
            _closed(connection.transport, error)
        node = node_of(connection.node)
        if self._nodes.get(node) is connection:
            del self._nodes[node]

    def _greeted(self, connection: Incoming, hello: Message) -> None:
        """Take the first message. Raises UndecodableFrame for any other message, and for a client or node when all
        places are taken."""
        self._forget(connection)
        if not isinstance(hello, Hello) or hello.cluster != self._cluster or hello.version != 1:
            raise UndecodableFrame("expected the first message of a node or client of this cluster")
        if not hello.node:
            if len(self._clients) >= _CLIENTS:
                raise UndecodableFrame(f"there are {_CLIENTS} clients")
            self._clients.add(connection.transport)
            connection.become_streams(self._serve, _BUFFER_BYTES)
            return
        node = node_of(hello.node)
        before = self._nodes.get(node)
        if before is not None:
            before.transport.abort()
        elif len(self._nodes) >= _NODES:
            raise UndecodableFrame(f"there are {_NODES} nodes")
        connection.node, connection.most_bytes = hello.node, MESSAGE_BYTES
        self._nodes[node] = connection
        self._linked(hello.node)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client."""
        is_taken = False
        try:
            while not is_taken:
                is_taken = self._asked(writer, *await read_message(reader))
        except UndecodableFrame as error:
            _closed(writer.transport, str(error))
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            forget_frames(error)
        finally:
            self._clients.discard(writer.transport)
            if not is_taken:
                writer.transport.abort()


def _closed(transport: asyncio.BaseTransport, error: str) -> None:
    _LOGGER.warning("%s: connection closed: %s", transport.get_extra_info("peername"), error)
