"""Listening socket: accepts connections and creates client protocols with the stream adapters of its settings. Besides
`front`, the only module that depends on asyncio.

The accept loop is ours: unlike that of the event loop it survives a lack of file descriptors, refuses connections
over a limit, and gives existing clients their turn between two bursts of new ones."""

import asyncio
import errno
import functools
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from mqtt_front.broker import Broker
from mqtt_front.listener_settings import ListenerSettings
from mqtt_front.net.client_protocol import ClientProtocol
from mqtt_front.net.door_arrival import BUFFER_BYTES, DoorArrival
from mqtt_front.net.relay_adapter import RelayAdapter
from mqtt_front.net.stream_adapter import Arrival
from mqtt_front.net.tls import TlsAdapter
from mqtt_front.settings import MqttSettings
from timestone.fronts import Arrived
from timestone_access.optional import load
from timestone_access.throttled_log import ThrottledLog

_BACKLOG = 1024
_ACCEPTS_A_TURN = 64
_PAUSE_S = 0.5
_REFUSED_AT_A_TIME = 256
"""Connections over the limit that stay open long enough to receive the reason; further ones are closed at once."""
_OVERLOAD = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def listening_socket(settings: ListenerSettings, *, is_shared: bool = False) -> socket.socket:
    """Return a socket that listens. is_shared: other processes may listen at the same address, and the kernel gives
    each a share of the connections. Raises OSError if the address is not available."""
    host, port = settings.host_and_port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listening


@functools.cache
def _as_protocol(kind: type) -> Any:
    """Return a class derived from asyncio's, typed more loosely than ours."""
    return type(f"{kind.__name__}Protocol", (kind, asyncio.BufferedProtocol), {"__slots__": ()})


def websocket_adapter() -> type:
    """Return the adapter of WebSocket listeners. Raises MissingExtra."""
    module = load("mqtt_front.net.websocket", extra="websocket", what="a WebSocket listener")
    found: type = module.WebSocketAdapter
    return found


def door_layer(
    settings: MqttSettings, listener: ListenerSettings, log: logging.Logger
) -> Callable[[asyncio.Protocol], asyncio.BaseProtocol] | None:
    """Return what makes the adapter below a client at a door of a node (`timestone.fronts.Door`)."""
    if not listener.websocket:
        return None
    throttled_log, buffer = ThrottledLog(log), memoryview(bytearray(BUFFER_BYTES))

    def refused(address: Any, why: str) -> None:
        host, port = address[:2] if address else ("unknown", 0)
        throttled_log.warn(f"refused {host}", f"{host}:{port} refused: {why}")

    def layer(client: asyncio.Protocol) -> asyncio.BaseProtocol:
        return _websocket(websocket_adapter(), DoorArrival(client, buffer, refused), settings, listener)

    return layer


def _websocket(
    adapter: type, link: Arrival, settings: MqttSettings, listener: ListenerSettings
) -> asyncio.BufferedProtocol:
    # A page of another origin in a browser on this machine is not a local client.
    checks = listener.origins or settings.lets_anonymous_in(listener)
    made: asyncio.BufferedProtocol = _as_protocol(adapter)(
        link, packet_bytes=settings.packet_bytes, origins=listener.origins if checks else None
    )
    return made


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
        """tls: context for new connections, which may be replaced at any time. Raises MissingExtra."""
        self._broker = broker
        self._log = log
        self.settings = settings
        self.tls = tls
        self._allow_anonymous = broker.settings.lets_anonymous_in(settings)
        self._websocket = websocket_adapter() if settings.websocket else None
        self._socket: socket.socket | None = None
        self._accepting: set[asyncio.Task[None]] = set()
        self._without_protocol = 0
        """Accepted sockets that the connections of the broker do not include yet."""
        self._paused = False

    @property
    def listening(self) -> bool:
        return self._socket is not None

    @property
    def address(self) -> tuple[str, int]:
        """Return the address with the actual port."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return host, port

    async def start(self, door: socket.socket | None = None) -> None:
        """Listen, at an open door if there is one. Raises OSError if the address is not available."""
        loop = asyncio.get_running_loop()
        if door is None:
            made = functools.partial(
                listening_socket, self.settings, is_shared=self._broker.settings.share_ports
            )
            self._socket = await loop.run_in_executor(None, made)
        else:
            self._socket = door.dup()
        loop.add_reader(self._socket, self._accept)

    def stop(self) -> None:
        """Stop accepting. Accepted connections stay."""
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
                continue  # that connection has gone already (ECONNABORTED, EPROTO): take the next one
            if self._is_full():
                client.close()
                continue
            client.setblocking(False)
            self._without_protocol += 1
            task = asyncio.get_running_loop().create_task(self._link(client))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    def _is_full(self) -> bool:
        """Return whether there are more connections than can be refused in words, and count one as refused."""
        limit = self._broker.settings.connection_count + _REFUSED_AT_A_TIME
        if self._broker.connections.count + self._without_protocol < limit:
            return False
        self._broker.counts.refused["connection_count"] += 1
        self._broker.throttled_log.warn("connections", f"more than {limit} connections at a time: closed")
        return True

    def admit(self, client: Arrived) -> asyncio.BufferedProtocol | None:
        """Return the protocol of a client that others have accepted, who have ended its TLS and WebSocket, at another
        node or here; None if there are too many."""
        if self._is_full():
            return None
        self._without_protocol += 1
        upper = self._protocol(
            asyncio.get_running_loop(), client.descriptor, is_relayed=True, is_here=client.is_here
        )
        relayed: asyncio.BufferedProtocol = _as_protocol(RelayAdapter)(upper, client)
        return relayed

    async def _link(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self._protocol(loop, client.fileno()), client)
        except OSError:
            client.close()  # closed by the client in between

    def _protocol(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        *,
        is_relayed: bool = False,
        is_here: bool = True,
    ) -> asyncio.BufferedProtocol:
        """Return a client protocol with its adapters below it; the lowest receives from the socket."""
        self._without_protocol -= 1  # the event loop announces it to the broker in its next turn
        settings, broker = self.settings, self._broker
        tls = None if is_relayed else self.tls
        if (self._websocket is not None and not is_relayed) or tls is not None:
            descriptor = -1
        protocol = link = _as_protocol(ClientProtocol)(
            broker,
            allow_anonymous=self._allow_anonymous,
            descriptor=descriptor,
        )
        link.protocol = settings.protocol
        if not is_here:
            link.redirect = settings.cluster_redirect
        if self._websocket is not None and not is_relayed:
            protocol = _websocket(self._websocket, link, broker.settings, settings)
        if tls is not None:
            name_kind = None if settings.user_from == "login" else settings.user_from
            protocol = _as_protocol(TlsAdapter)(protocol, link, tls, loop.call_soon, name_kind=name_kind)
        lowest: asyncio.BufferedProtocol = protocol
        return lowest

    def _pause(self, error: OSError) -> None:
        """Pause after running out of descriptors: connections in the backlog wait, so that the loop does not spin."""
        self._broker.throttled_log.warn("accept", f"cannot accept connections: {error.strerror}; trying on")
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
