"""The listening socket: accepts connections and makes links of them, with the layers in between that its settings
ask for. The one module besides `front` that knows asyncio.

The accept loop is ours and not the event loop's: it survives running out of file descriptors, refuses more
than a bounded number of connections, and lets the links that exist have their turn between two bursts of new
ones.
"""

import asyncio
import errno
import functools
import logging
import socket
import ssl
from typing import Any

from mqtt_front.broker import Broker
from mqtt_front.listener_settings import ListenerSettings
from mqtt_front.net.client_protocol import Link
from mqtt_front.net.tls import TlsLayer
from mqtt_front.runtime.optional import load

_BACKLOG = 1024
_ACCEPTS_A_TURN = 64
_PAUSE_S = 0.5
_REFUSED_AT_A_TIME = 256
"""Connections beyond the limit that are kept long enough to be told why; beyond these they are just
closed."""
_OVERLOAD = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@functools.cache
def _as_protocol(kind: type) -> Any:
    """A link or layer as asyncio wants it: derived from its own class, and typed more loosely there than here."""
    return type(f"{kind.__name__}Protocol", (kind, asyncio.BufferedProtocol), {"__slots__": ()})


class Listener:
    """One listening address."""

    def __init__(
        self,
        broker: Broker,
        settings: ListenerSettings,
        log: logging.Logger,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls` is for the connections to come and may be replaced at any time. Raises MissingExtra."""
        self._broker = broker
        self._log = log
        self.settings = settings
        self.tls = tls
        self._allow_anonymous = broker.settings.lets_anonymous_in(settings)
        self._websocket: type | None = None
        if settings.websocket:
            self._websocket = load(
                "mqtt_front.net.websocket", extra="websocket", what="a WebSocket listener"
            ).WebSocketLayer
        self._socket: socket.socket | None = None
        self._accepting: set[asyncio.Task[None]] = set()
        self._paused = False

    @property
    def listening(self) -> bool:
        return self._socket is not None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, with the port it got."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return host, port

    async def start(self) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        host, port = self.settings.host_and_port
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError as error:
            listening.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
        self._socket = listening
        loop.add_reader(listening, self._accept)

    def stop(self) -> None:
        """Accept nobody any more. What is accepted stays."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        for task in self._accepting:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            if self._socket is None:
                return
            try:
                client, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OVERLOAD:
                    self._pause(error)
                    return
                continue  # that connection is gone already (ECONNABORTED, EPROTO): the next one
            limit = self._broker.settings.connection_count + _REFUSED_AT_A_TIME
            if self._broker.linked_count + len(self._accepting) >= limit:
                self._broker.counts.refused += 1
                self._broker.complaints.warn(
                    "connections", f"more than {limit} connections at a time: closed"
                )
                client.close()
                continue
            client.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._link(client))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    async def _link(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self._protocol(loop, client.fileno()), client)
        except OSError:
            client.close()  # it went while we looked at it

    def _protocol(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> asyncio.BufferedProtocol:
        """A link, with its layers below it; the lowest of them is what the socket talks to."""
        settings, broker = self.settings, self._broker
        if self._websocket is not None or self.tls is not None:
            descriptor = -1
        protocol = link = _as_protocol(Link)(
            broker, allow_anonymous=self._allow_anonymous, descriptor=descriptor
        )
        if self._websocket is not None:
            # A page of another origin that runs in a browser on this machine is not a local client.
            origins = settings.origins if settings.origins or self._allow_anonymous else None
            protocol = _as_protocol(self._websocket)(
                link, packet_bytes=broker.settings.packet_bytes, origins=origins
            )
        if self.tls is not None:
            name_kind = None if settings.user_from == "login" else settings.user_from
            protocol = _as_protocol(TlsLayer)(protocol, link, self.tls, loop.call_soon, name_kind=name_kind)
        lowest: asyncio.BufferedProtocol = protocol
        return lowest

    def _pause(self, error: OSError) -> None:
        """No descriptors left: the ones in the backlog wait a moment instead of making the loop spin."""
        self._broker.complaints.warn("accept", f"cannot accept connections: {error.strerror}; trying on")
        if self._socket is None or self._paused:
            return
        self._paused = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        loop.call_later(_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._paused = False
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)
