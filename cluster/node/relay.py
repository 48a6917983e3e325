"""Passes clients of a front on to the node that leads: they arrive at the doors of any node.

TLS and WebSocket end at the door; the leader learns the address of the client and the user in its certificate. A
client that arrives while no node leads waits for a while, which is what its CONNECT has a time limit for."""

import asyncio
import functools
import logging
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from timestone.address import parse_address, send
from timestone.fronts import Arrived, Door
from timestone_cluster.errors import UndecodableFrame
from timestone_cluster.node.siblings import Siblings
from timestone_cluster.transport.links import forget_frames, give_up_early, plain_descriptor
from timestone_cluster.transport.wire import Hello, Relay, Relayed, decoded, encoded

_LOGGER = logging.getLogger("timestone.cluster")
_WAIT_S = 15.0
"""Longest time that a client waits for a node that leads."""
_DIAL_S = 2.0
_PAUSE_S = (0.02, 0.1)
_DIALS = 64
"""Connections to the leader that are made at a time: its places for strangers are limited."""
_HANDSHAKE_S = 10.0
_BUFFER_BYTES = 256 * 1024
_LENGTH = struct.Struct("<I")


class Place(NamedTuple):
    """Where the front serves: node and generation, by which a change is known, the address for nodes, and the name."""

    node: str
    generation: int
    address: str
    name: str = ""


class Homes(Protocol):
    """Who is served where, in a cluster with several shards. Implemented by `FrontHost`."""

    def home_of(self, client_id: str) -> int:
        """Return the shard whose leader serves a client; of one without an id, any."""

    def leads(self, shard: int) -> bool:
        """Return whether this node serves the clients of a shard, or is about to."""

    def admit(self, client: Arrived) -> Any:
        """Return the protocol of a client of this node; None if it cannot be served now."""


class Relays:
    """Clients that have arrived at the doors of this node, while another one leads. With several shards all of them,
    and those whose home this node leads are admitted here. Event-loop thread only."""

    def __init__(
        self,
        doors: Sequence[Door],
        hello: Hello,
        context: ssl.SSLContext | None,
        place: Callable[[int], Place | None],
        count_limit: int,
        homes: Homes | None = None,
        siblings: Siblings | None = None,
    ) -> None:
        """hello: of a client of the cluster. context: for connections to nodes. place: where the clients of a shard are
        served now, as far as this node knows. homes: None with one shard, whose clients this node does not serve.
        siblings: which clients without TLS and WebSocket are given to and come from; None with one shard."""
        self.doors, self._hello, self.context, self.place = doors, hello, context, place
        self.homes, self.siblings = homes, siblings
        self._count_limit = count_limit
        self._servers: list[asyncio.Server] = []
        self._wants_open = False
        self.dials = asyncio.Semaphore(_DIALS)
        self.clients: set[_Client] = set()
        self._taking: set[asyncio.Task[None]] = set()
        self.served_count = self.given_count = self.failed_count = 0
        """Clients that were passed on so far, given to another worker, and neither."""

    async def open(self) -> None:
        """Accept clients from now on."""
        self._wants_open = True
        if self.siblings is not None:
            self.siblings.listen(self._taken)
        loop = asyncio.get_running_loop()
        for number, door in enumerate(self.doors):
            server = await loop.create_server(
                functools.partial(self._arrived, number, door),
                sock=door.socket.dup(),
                ssl=door.tls,
                ssl_handshake_timeout=_HANDSHAKE_S if door.tls is not None else None,
            )
            if not self._wants_open:
                server.close()
                return
            self._servers.append(server)

    def _arrived(self, number: int, door: Door) -> asyncio.BaseProtocol:
        client = _Client(self, number, door)
        return client if door.layer is None else cast(asyncio.BaseProtocol, door.layer(client))

    def _taken(self, client: socket.socket, number: int, early: bytes) -> None:
        """Take a client that another worker has given."""
        door = self.doors[number] if number < len(self.doors) else None
        if door is None or door.tls is not None or door.layer is not None:
            client.close()
            return
        made = functools.partial(_Client, self, number, door, early)
        task = asyncio.get_running_loop().create_task(_connected(client, made))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    def end(self) -> None:
        """Accept none any more, and end those there are: this node stops."""
        self.shut()
        if self.siblings is not None:
            self.siblings.stop()
        for task in self._taking:
            task.cancel()
        for client in list(self.clients):
            client.end()

    def shut(self) -> None:
        """Accept none any more: the front of this node does. Clients that wait are passed on to it."""
        self._wants_open = False
        for server in self._servers:
            server.close()
        self._servers.clear()

    def look(self) -> None:
        """End the clients of a node that leads no more: it may be suspended, and would keep them."""
        for client in list(self.clients):
            known, place = client.place, self.place(client.shard)
            if known is None or place is None:
                continue
            if (known.node, known.generation) != (place.node, place.generation):
                client.end()

    def counts(self) -> Counter[int]:
        """Return how many clients are passed on, by the shard."""
        return Counter(client.shard for client in self.clients if client.place is not None)

    @property
    def is_full(self) -> bool:
        """Return whether no further client is taken."""
        return len(self.clients) >= self._count_limit

    def request(self, client: "_Client") -> list[bytes]:
        """Return the messages that pass a client on."""
        relay = Relay(client.number, *client.address, client.user)
        return [*encoded(self._hello), *encoded(relay, client.shard)]


async def _connected(client: socket.socket, made: Callable[[], asyncio.Protocol]) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(made, client)
    except OSError:  # it has gone
        client.close()


class _Side(asyncio.Protocol):
    """One of two connections whose bytes go to each other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self.has_ended = False
        """Whether nothing more comes from there."""

    def data_received(self, data: bytes) -> None:
        other = None if self.other is None else self.other.transport
        if other is not None and not other.is_closing():
            other.write(data)

    def eof_received(self) -> bool:
        self.has_ended = True
        if self.other is None or self.other.has_ended:
            return False
        transport = self.other.transport
        if transport is None or transport.is_closing() or not transport.can_write_eof():
            return False
        transport.write_eof()
        own = self.transport
        return own is not None and own.can_write_eof()  # with TLS, a connection ends both ways

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Client(_Side):
    """A client at a door."""

    def __init__(self, relays: Relays, number: int, door: Door, given: bytes | None = None) -> None:
        """given: what it has sent, if another worker has given it."""
        super().__init__()
        self._relays, self.number, self.door = relays, number, door
        self.address = ("", 0)
        self.certificate: dict[str, object] | None = None
        self.place: Place | None = None
        self.shard = 0
        """Its home."""
        self._was_given = given is not None
        self._early = given or b""
        """What it has sent before it was passed on: the event loop may have read that already."""
        self._is_known = relays.homes is None
        """Whether its home is."""
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # that of uvloop is none by its type
        self.transport = transport
        name = transport.get_extra_info("peername")
        self.address = (str(name[0]), int(name[1])) if name else ("unknown", 0)
        if self._relays.is_full:
            transport.abort()
            return
        self.certificate = transport.get_extra_info("peercert")
        self._relays.clients.add(self)
        transport.pause_reading()  # what it sends waits for the leader
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        self._task = asyncio.get_running_loop().create_task(self._pass_on(transport))

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
        elif self.transport is not None:
            self._early += data
            self._more.set()
            if self._is_known:
                self.transport.pause_reading()

    @property
    def user(self) -> str | None:
        """Return the user in its certificate, if the front takes it from there."""
        return self.door.certificate_user(self.certificate) if self.certificate else None

    @property
    def _descriptor(self) -> int:
        """Return the descriptor of a socket that has the bytes of the front; -1 where TLS or WebSocket is between."""
        return -1 if self.transport is None or self.door.layer else plain_descriptor(self.transport)

    async def _pass_on(self, transport: asyncio.Transport) -> None:
        homes = self._relays.homes
        try:
            async with asyncio.timeout(_WAIT_S):
                if homes is not None:
                    self.shard = await self._home(homes, transport)
                pause_s = _PAUSE_S[0]
                while True:
                    if homes is not None and (
                        self._is_given(homes, transport) or self._is_admitted(homes, transport)
                    ):
                        return
                    if await self._is_passed_on():
                        break
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_S[1])
        except TimeoutError:
            self._relays.failed_count += 1
            _LOGGER.warning("client at %s:%d: closed: no node serves it", *self.address)
            transport.abort()
            return
        self._relays.served_count += 1
        if self.transport is None:
            self.connection_lost(None)
            return
        early, self._early = self._early, b""
        if early:
            super().data_received(early)
        transport.resume_reading()

    async def _home(self, homes: Homes, transport: asyncio.Transport) -> int:
        """Return the home of the client, when it has sent who it is."""
        client_id: str | None = None
        try:
            while not self._is_known:
                client_id = self.door.client_id(self._early)
                self._is_known = client_id is not None
                if client_id is None:
                    self._more.clear()
                    transport.resume_reading()
                    await self._more.wait()
        except ValueError as error:
            _LOGGER.debug("client at %s:%d: %s", *self.address, error)
            self._is_known = True  # any home refuses it
        transport.pause_reading()
        return homes.home_of(client_id or "")

    def _is_given(self, homes: Homes, transport: asyncio.Transport) -> bool:
        """Have another worker of this server serve the client, if it leads the home, and end here."""
        siblings, place, descriptor = self._relays.siblings, self._relays.place(self.shard), self._descriptor
        if siblings is None or place is None or self._was_given or descriptor < 0 or homes.leads(self.shard):
            return False
        if not siblings.give(place.name, descriptor, self.number, self._early):
            return False
        self._relays.given_count += 1
        self._relays.clients.discard(self)
        self.transport = None
        transport.abort()  # closes the descriptor; the connection has another one
        return True

    def _is_admitted(self, homes: Homes, transport: asyncio.Transport) -> bool:
        """Have the front of this node serve the client, if it can now."""
        client = Arrived(
            self.number, self.address, self.user, self.shard, is_here=True, descriptor=self._descriptor
        )
        protocol = homes.admit(client)
        if protocol is None:
            return False
        self._relays.clients.discard(self)
        self.transport, early = None, memoryview(self._early)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()  # from the next turn of the loop on, unless the protocol reads otherwise by then
        while early and not transport.is_closing():
            buffer = protocol.get_buffer(len(early))
            count = min(len(buffer), len(early))
            buffer[:count] = early[:count]
            protocol.buffer_updated(count)
            early = early[count:]
        return True

    async def _is_passed_on(self) -> bool:
        place, homes = self._relays.place(self.shard), self._relays.homes
        if place is None or (homes is not None and homes.leads(self.shard)):
            return False
        host, port = parse_address(place.address, setting="peer")
        upper = _Upper(self)
        try:
            async with self._relays.dials, asyncio.timeout(_DIAL_S):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: upper, host, port, ssl=self._relays.context
                )
                try:
                    send(transport, *self._relays.request(self))
                    await upper.answered
                except BaseException:
                    transport.abort()
                    raise
        except (OSError, TimeoutError, UndecodableFrame) as error:
            forget_frames(error)
            return False
        self.place, self.other = place, upper
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._relays.clients.discard(self)
        if self._task is not None and not self._task.done():
            self._task.cancel()
        super().connection_lost(error)

    def end(self) -> None:
        """Close it: the client connects again, and is passed on to the node that leads then."""
        if self.transport is not None:
            self.transport.abort()


class _Upper(_Side):
    """The connection to the leader."""

    def __init__(self, client: _Client) -> None:
        super().__init__()
        self._client = client
        self._received = b""
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self.transport = transport
        give_up_early(transport)
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._received += data
        if len(self._received) < _LENGTH.size:
            return
        end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end or self.answered.done():
            return
        try:
            _, answer = decoded(self._received[_LENGTH.size : end])
        except UndecodableFrame as error:
            self.answered.set_exception(error)
            return
        if not isinstance(answer, Relayed) or answer.error:
            self.answered.set_exception(ConnectionError(getattr(answer, "error", "not an answer")))
            return
        self.other = self._client
        self.answered.set_result(None)
        if self._received[end:]:
            super().data_received(self._received[end:])

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_exception(error or ConnectionError("closed"))
            self.answered.exception()  # nothing may wait for it any more
        super().connection_lost(error)
