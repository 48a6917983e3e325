"""Client protocol: from received bytes through the connection of a client to events for the broker, and back to
packets. How the socket is read, written and closed is in `client_socket.py`.

The methods with names of asyncio are those of a `BufferedProtocol`; `listener` mixes this class with asyncio's. All
of them receive into one buffer of the broker, from which bytes are copied before the call returns."""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import MQTT_5, Packet, PacketType
from mqtt_front.delivery.delivery import Delivery
from mqtt_front.errors import MqttError, ProtocolViolation
from mqtt_front.ingest.ingest import Ingest
from mqtt_front.ingest.routing import Router
from mqtt_front.net.client_socket import ClientSocket, Hold, SocketServer
from mqtt_front.net.outbound_limit import OutboundLimit
from mqtt_front.protocol.connection import Connection, Inbound
from mqtt_front.protocol.events import Acknowledgements, Event, Publishes, packet_count
from mqtt_front.protocol.last_packet import last_packet
from mqtt_front.reasons import Reason
from mqtt_front.runtime.loop import Transport
from mqtt_front.runtime.timer_wheel import TimerWheel
from mqtt_front.security.rules import Permissions
from mqtt_front.sessions.session import Session, Target
from mqtt_front.wills.wills import KeptWill
from timestone_access.identity import Identity
from timestone_access.passwords.scram import ScramExchange
from timestone_access.token_bucket import TokenBucket

FRONT_BYTES = 16 * 1024
"""Room before the receive buffer for an incomplete packet of up to this size, so that it is contiguous with its
rest."""
PACKET_BYTES_MAX = 5 + 268_435_455
"""Maximum packet size of MQTT."""
_UNCONNECTED = Target(packets.MQTT_3_1_1, PACKET_BYTES_MAX)


class Exchange(NamedTuple):
    """Enhanced authentication in progress."""

    scram: ScramExchange
    connect: packets.Connect | None
    """The CONNECT being answered; None for a re-authentication of a connected client."""


class Stay:
    """Maximum duration of a connection, watched by the timer wheel of the front: until the client's token expires."""

    __slots__ = ("_link", "allowed_ticks", "last_seen", "looked_at")

    def __init__(self, link: "ClientProtocol", now: int, allowed_ticks: int) -> None:
        self._link = link
        self.last_seen = now
        self.allowed_ticks = allowed_ticks
        self.looked_at = 0

    def overdue(self) -> None:
        """End the connection."""
        self._link.end(Reason.NOT_AUTHORIZED, "its token has expired")


class ProtocolServer(SocketServer, Protocol):
    """The server, as a client protocol sees it: its parts, and calls for events. Implemented by `Broker`."""

    inbound: Inbound
    deadlines: TimerWheel
    delivery: Delivery
    ingest: Ingest
    router: Router
    unsent: OutboundLimit
    memory: bytearray

    def new_rates(self) -> tuple[TokenBucket | None, TokenBucket | None] | None: ...
    def arrived(self, link: "ClientProtocol") -> None: ...
    def publish(self, link: "ClientProtocol", run: Publishes) -> None: ...
    def handle(self, link: "ClientProtocol", event: Event) -> None: ...
    def moved(self, session: Session, count: int) -> None: ...
    def settled(self, key: str, packet_ids: list[int], *, stored: bool) -> None: ...
    def closing(self, link: "ClientProtocol", *, linger: bool) -> bool: ...
    def gone(
        self,
        link: "ClientProtocol",
        how: str,
        level: int = ...,
        limit: str | None = ...,
        reason: str = ...,
    ) -> None: ...
    def departed(self, link: "ClientProtocol") -> None: ...


class ClientProtocol(ClientSocket):
    """One client, from accept to the last byte."""

    broker: ProtocolServer

    __slots__ = (
        "allow_anonymous",
        "allowed_ticks",
        "awaited",
        "bridge",
        "client_id",
        "connection",
        "ended_by",
        "exactly_once",
        "exchange",
        "filters_served",
        "identity",
        "looked_at",
        "owner",
        "redirect",
        "refusal",
        "requests",
        "session_key",
        "stay",
        "will",
    )  # fmt: skip

    def __init__(self, broker: ProtocolServer, *, allow_anonymous: bool = True, descriptor: int = -1) -> None:
        """allow_anonymous: whether the listener admits clients without credentials. descriptor: see `ClientSocket`."""
        super().__init__(broker, descriptor)
        self.allow_anonymous = allow_anonymous
        self.connection = Connection(broker.inbound)
        self.client_id = ""
        self.session_key = ""
        """Key of its session, also after another connection has taken it over."""
        self.owner = ""
        """Owner whose share of the limits it uses (`Shares`)."""
        self.bridge = False
        """Whether the client is the bridge of another server."""
        self.session: Session | None = None
        self.ended_by = "connection_lost"
        """Reason why the connection of the client ended, as it is counted."""
        self.will: KeptWill | None = None
        self.target = _UNCONNECTED
        self.inflight_limit = 0
        self.awaited = "CONNECT"
        """What the client must do next before it is connected."""
        self.identity: Identity | None = None
        """Identity of the client; None until known."""
        self.permissions: Permissions | None = None
        self.exchange: Exchange | None = None
        """Enhanced authentication in progress."""
        self.stay: Stay | None = None
        """Limit of the duration of the connection, if there is one."""
        self.refusal: ProtocolViolation | None = None
        """Reason why a CONNECT on this connection will be refused, known since its accept."""
        self.redirect: str | None = None
        """Address to which a client of MQTT 5 is redirected that has arrived at another node."""
        self.publish_rates = broker.new_rates()
        self.requests: TokenBucket | None = None
        """Rate limit of requests that are answered one by one, from the first request on."""
        self.filters_served = 0
        """Topic filters served since other clients had their turn."""
        self.submitted_bytes = 0
        self.exactly_once = False
        """Whether the client publishes at QoS 2."""
        self.last_seen = 0
        self.allowed_ticks = 0
        self.looked_at = 0

    @property
    def level(self) -> int:
        return self.connection.level

    def __repr__(self) -> str:
        """Return the name of this client in log lines. The client id is untrusted: quoted and truncated."""
        name = f"client {self.client_id[:100]!r} at " if self.client_id else ""
        return f"{name}{self.peer}"

    @property
    def log_fields(self) -> dict[str, str | int | None]:
        """Return the fields of a log line in JSON that is about this client."""
        user = None if self.identity is None else self.identity.user
        return {"client": self.client_id, "user": user, "address": self.peer, "connection": self.number}

    def may_write(self, topic: str) -> bool:
        """Return whether the client may publish to this topic."""
        return self.permissions is None or self.permissions.may_write(topic)

    # Called by asyncio.

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self.broker.arrived(self)

    def buffer_updated(self, count: int) -> None:
        if self.closing:
            self._discard(count)
            return
        broker, connection = self.broker, self.connection
        memory, position, end = broker.memory, FRONT_BYTES, FRONT_BYTES + count
        if self.takes_fast_path() and (front := connection.front(memory, FRONT_BYTES)) >= 0:
            position = broker.ingest.gather(self, connection, memory, front, end)
        broker.counts.bytes_received += count
        self.received_bytes += count
        self.last_seen = broker.deadlines.now
        if position < end:
            self.take_rest(position, end)
        if self.portion:
            self._served(count)

    def take_rest(self, position: int, end: int) -> None:
        """Handle what is left in the receive buffer after the fast path."""
        self._take(self.connection.receive_data(bytes(memoryview(self.broker.memory)[position:end])))

    def take_pubacks(self, packet_ids: list[int]) -> None:
        """Handle PUBACKs received alone: every delivery to a client that keeps up causes one."""
        broker, session = self.broker, self.session
        unmatched = packet_ids if session is None else session.acknowledged(packet_ids)
        count = len(packet_ids) - len(unmatched)
        broker.counts.packets_received += count
        self.received_packets += count
        if session is not None:
            broker.moved(session, count)
        if unmatched:
            self._take(iter((Acknowledgements(PacketType.PUBACK, unmatched),)))

    def receive(self, data: bytes) -> None:
        """Handle received bytes of MQTT."""
        self.broker.counts.bytes_received += len(data)
        self.received_bytes += len(data)
        self.last_seen = self.broker.deadlines.now
        self._take(self.connection.receive_data(data))
        if self.portion:
            self._served(len(data))

    def _served(self, count: int) -> None:
        self.portion = max(0, self.portion - count)
        if not self.portion:
            self.broker.ingest.served(self)
            self._read()

    def _take(self, events: Iterator[Event]) -> None:
        broker = self.broker
        try:
            for event in events:
                count = packet_count(event)
                broker.counts.packets_received += count
                self.received_packets += count
                if type(event) is Publishes:
                    broker.publish(self, event)
                else:
                    broker.handle(self, event)
        except MqttError as error:
            self.fail(error)

    def reading_ended(self, error: OSError | None) -> None:
        """Handle the end of the client's stream, from the poller, which stops reading."""
        self.socket = None
        if self.transport is None:
            return
        if error is None:
            self.transport.resume_reading()  # it will see the end itself
        else:
            self.broker.gone(self, f"lost: {error}")
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._leave_poller()
        if not self.closing:  # otherwise the reason was logged
            self.broker.gone(self, "lost" if error is None else f"lost: {error}")
        self.broker.departed(self)
        self.transport = None

    def pause_writing(self) -> None:
        self.writable = False
        self.broker.unsent.stopped(self)

    def resume_writing(self) -> None:
        self.writable = True
        self.unread_bytes = 0
        self.broker.unsent.went_on(self)
        self._read_on(Hold.UNREAD)
        if self.session is not None:
            self.broker.delivery.resume(self.session)

    # Called by the broker, ingest and delivery.

    def send(self, packet: Packet) -> None:
        """Send one packet. End the connection if the packet exceeds the client's maximum and the client waits for it
        [MQTT-3.1.2-24]."""
        data = encode_packet(packet, self.connection.level)
        if len(data) <= self.target.packet_bytes:
            self.deliver(data, 1)
            return
        message = (
            f"{type(packet).__name__.upper()} has {len(data)} bytes, and it takes {self.target.packet_bytes}"
        )
        self.end(Reason.PACKET_TOO_LARGE, message)

    def bring(self, topics: list[bytes]) -> bool:
        """Have unknown topics of its publishes learned, within its limits; see `PublishFastPath.take`."""
        return self.broker.router.learn(topics, self.owner)

    def acknowledge(self, data: bytes, count: int) -> None:
        self.connection.unacknowledged -= count
        self.deliver(data, count)

    def settled(self, acknowledgements: bytes, reason: int) -> None:
        at_qos_2 = [at for at in range(0, len(acknowledgements), 4) if acknowledgements[at] == 0x50]
        if at_qos_2:
            ids = [int.from_bytes(acknowledgements[at + 2 : at + 4], "big") for at in at_qos_2]
            if reason == 0 and self.level == MQTT_5:
                self.connection.unreleased.update(ids)
            self.broker.settled(self.session_key, ids, stored=reason == 0)

    def has_received(self, acknowledgement: bytes) -> bool:
        session = self.session
        return session is None or int.from_bytes(acknowledgement[2:4], "big") in session.received

    def refuse(self, message: str) -> None:
        self.end(Reason.IMPLEMENTATION_SPECIFIC_ERROR, message)

    def overdue(self) -> None:
        """End a client that was inactive for too long: before CONNECT, within the keep alive, or while closing."""
        if self.closing:
            self.abort()
        elif not self.connected:
            self.broker.over["connect_timeout_ms"] += 1
            self.end(Reason.KEEP_ALIVE_TIMEOUT, f"no {self.awaited} in time")
        elif self.holds & (Hold.UNSETTLED | Hold.UNDECIDED):
            # It may have sent a PINGREQ that was not read, because the disk is slow.
            self.last_seen = self.broker.deadlines.now
            self.broker.deadlines.watch(self)
        else:
            self.end(Reason.KEEP_ALIVE_TIMEOUT, "nothing received within 1.5 times the keep alive")

    # Between CONNECT and CONNACK.

    def wait(self, awaited: str) -> None:
        """Process nothing from the client until `go_on`. What it has sent is kept."""
        self.awaited = awaited
        self.connection.hold()
        self._read_no_more(Hold.UNDECIDED)

    def go_on(self, decide: Callable[[], None]) -> None:
        """Continue after `wait`: `decide` answers the CONNECT, then kept bytes are processed."""
        if self.closing or self.transport is None:
            return
        events = self.connection.go_on()
        try:
            decide()
        except MqttError as error:
            self.fail(error)
        if not self.connection.held:  # otherwise there is something else to wait for
            self._read_on(Hold.UNDECIDED)
            self._take(events)

    # End of the connection.

    def turn_away(self, message: str) -> None:
        """End the connection before any MQTT packet."""
        if not self.closing and self.transport is not None:
            self.broker.gone(self, message, reason="handshake")
            self.close(linger=True)

    def fail(self, error: MqttError) -> None:
        """End the connection after a protocol error, with the reason where MQTT has a code for it."""
        if error.limit is not None:
            self.broker.over[error.limit] += 1
        self.end(error.reason, str(error), logging.WARNING, error.limit)

    def end(self, reason: Reason, message: str, level: int = logging.INFO, limit: str | None = None) -> None:
        """End the connection from the server. The session is released now, not when the socket is closed."""
        if self.closing or self.transport is None:
            return
        told = self.connection.saw_connect and (not self.connected or self.level == MQTT_5)
        if told:
            reference = self.redirect or self.broker.settings.server_reference
            kind = packets.Disconnect if self.connected else packets.Connack
            data = last_packet(kind, self.level, reason, message, reference, self.target.packet_bytes)
            if data is not None:
                self.deliver(data, 1)
        self.broker.gone(self, f"{message} ({reason.name})", level, limit, reason.name.lower())
        self.close(linger=told)

    def cut_off(self) -> None:
        """Close at once a client that does not read, and so would not read the reason."""
        self.broker.over["total_unsent_bytes"] += 1
        if not self.closing:
            message = f"too much waits for all clients, and {self.unsent_bytes} bytes that it does not read"
            self.broker.gone(self, message, logging.WARNING, reason="unread")
        self.closing = True
        self.connection.end()
        self.abort()

    def close(self, *, linger: bool = False) -> None:
        """Close when everything is written, or after a timeout if the client does not read.

        A socket closed while its peer sends is reset, which discards what the peer has not read. With `linger` only
        the server's direction is closed first, and received bytes are discarded until the client closes its own, has
        sent too much, or the timeout passes."""
        if not self.closing and self.transport is not None:
            self.connection.end()
            self.shut(self.transport, linger=self.broker.closing(self, linger=linger))
