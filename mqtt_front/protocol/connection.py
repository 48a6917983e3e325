"""One client's connection as a state machine without I/O: bytes in, events out.

It knows the order in which packets may come, and what belongs to one connection and dies with it: the
protocol level, topic aliases, the receive maximum. It does not know sessions, logs or sockets, and never
looks at a topic beyond its alias.
"""

import enum
from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple

from mqtt_front.codec import packets
from mqtt_front.codec.decode import connect_level, decode_packet, packet_end
from mqtt_front.codec.packets import MQTT_3_1_1, MQTT_5, Packet, PacketType
from mqtt_front.codec.scan import PublishRun, scan_acknowledgements, scan_pings
from mqtt_front.errors import MalformedPacket, MqttError, ProtocolViolation
from mqtt_front.kernel.loops import scan_publishes
from mqtt_front.protocol.events import Acknowledgements, Event, Pings, Publishes, PublishRow, has_qos_2
from mqtt_front.protocol.header_block import publish_headers
from mqtt_front.reasons import Reason

_ACKNOWLEDGEMENTS = {
    0x40: PacketType.PUBACK,
    0x50: PacketType.PUBREC,
    0x62: PacketType.PUBREL,
    0x70: PacketType.PUBCOMP,
}
_ACKNOWLEDGEMENT_TYPES: dict[type, PacketType] = {
    packets.Puback: PacketType.PUBACK,
    packets.Pubrec: PacketType.PUBREC,
    packets.Pubrel: PacketType.PUBREL,
    packets.Pubcomp: PacketType.PUBCOMP,
}
_NO_LIMIT = 1 << 32
_CONNECT_HEAD_BYTES = 9
"""Protocol name and level, in the longer of its two forms."""
_PINGREQ = 0xC0
_FROM_SERVERS = (packets.Connack, packets.Suback, packets.Unsuback, packets.Pingresp)


class State(enum.Enum):
    """How far a connection has come."""

    NEW = enum.auto()
    """Nothing but CONNECT may come."""
    AUTHENTICATING = enum.auto()
    """CONNECT came with an authentication method: nothing but AUTH and DISCONNECT may come [MQTT-3.1.2-30]."""
    OPEN = enum.auto()
    ENDED = enum.auto()
    """DISCONNECT came, an error was raised, or the owner called `end`: every further byte is ignored."""


class Inbound(NamedTuple):
    """What the server allows a client, as its CONNACK says."""

    packet_bytes: int = 1024 * 1024
    receive_maximum: int = 65_535
    topic_alias_maximum: int = 0
    maximum_qos: int = 2
    connect_bytes: int = 128 * 1024
    """The largest packet of a client that is not let in yet."""
    filter_count: int = 10_000
    """The most topic filters of one packet."""


class Connection:
    """The receiving side of one connection.

    Usage: `for event in connection.receive_data(data)`. MalformedPacket and ProtocolViolation may be raised
    between events, nothing else ever is; the events before the error are valid. After an error the connection
    is ENDED.
    """

    __slots__ = (
        "_aliases",
        "_partial",
        "_partial_end",
        "held",
        "inbound",
        "level",
        "saw_connect",
        "state",
        "unacknowledged",
        "unreleased",
    )

    def __init__(self, inbound: Inbound) -> None:
        self.inbound = inbound
        self.state = State.NEW
        self.level = MQTT_3_1_1
        """The protocol level, from the moment that a CONNECT claims one; a refusal is framed for it, too."""
        self.saw_connect = False
        """A CONNECT came that claims a protocol level, good or bad: there is somebody to answer to."""
        self.unacknowledged = 0
        """Publishes at QoS 1 and 2 that came and were not acknowledged yet. The owner counts them down."""
        self.unreleased: set[int] = set()
        """Packet ids of publishes at QoS 2 that were acknowledged by PUBREC, until PUBREL: they count towards the
        receive maximum, too (section 4.9). Kept by the owner."""
        self.held = False
        """No event is given until `go_on`."""
        self._aliases: dict[int, bytes] = {}
        self._partial = bytearray()
        self._partial_end = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an incomplete packet; at most the packet size limit."""
        return len(self._partial)

    @property
    def between_packets(self) -> bool:
        """The next byte begins a packet, and any packet may come."""
        return self.state is State.OPEN and not self.held and not self._partial

    def front(self, buffer: bytearray, end: int) -> int:
        """Where publishes may be taken from a receive buffer before this connection sees what is left: `end`, or so
        much in front of it that the beginning of an incomplete packet has room, which is moved there. -1: nowhere,
        because the connection is not open, or held, or waits for a packet that is too large for this."""
        if self.state is not State.OPEN or self.held:
            return -1
        count = len(self._partial)
        if count:
            if count > end or self._partial_end > end:
                return -1
            buffer[end - count : end] = self._partial
            self._partial.clear()
        return end - count

    @property
    def room(self) -> int:
        """How many more publishes at QoS 1 may come before one is acknowledged."""
        if self.level < MQTT_5:
            return _NO_LIMIT
        return self.inbound.receive_maximum - self.unacknowledged - len(self.unreleased)

    def end(self) -> None:
        """Ignore whatever else arrives; also stops a `receive_data` that is under way."""
        self.state = State.ENDED

    def authenticate(self) -> None:
        """The CONNECT just received begins an enhanced authentication, which continues until `open`."""
        self.state = State.AUTHENTICATING

    def open(self) -> None:
        """The enhanced authentication has succeeded."""
        self.state = State.OPEN

    def hold(self) -> None:
        """Give no more events until `go_on`: the owner has to decide about the last one first. Meanwhile whatever is
        received is kept, so the owner stops receiving."""
        self.held = True

    def go_on(self) -> Iterator[Event]:
        """The events that `hold` kept back. Iterate and expect errors as with `receive_data`."""
        self.held = False
        return self.receive_data(b"")

    def receive_data(self, data: bytes) -> Iterator[Event]:
        """The events in `data` and what was left of earlier data. Iterate to the end before the next call."""
        if self._partial:
            self._partial += data
            # A large packet in small pieces is put together once, not once a piece.
            if self.held or len(self._partial) < self._partial_end:
                return
            data = bytes(self._partial)
            self._partial.clear()
        try:
            at = yield from self._events(data)
        except MqttError:
            self.state = State.ENDED
            raise
        if at < len(data) and self.state is not State.ENDED:
            if self.held:
                self._partial_end = 0
            self._partial += data[at:]

    def _events(self, data: bytes) -> Generator[Event, None, int]:
        """Yield all complete packets; the value is where the incomplete one starts."""
        at, end = 0, len(data)
        while at < end and self.state is not State.ENDED and not self.held:
            first = data[at]
            if self.state is State.OPEN:
                if first & 0xF0 == 0x30:
                    limit = self.inbound.packet_bytes
                    run = scan_publishes(data, at, end, self.level, limit)
                    if run.first_bytes:
                        publishes, fault = self._publishes(run, run.position - at)
                        at = run.position
                        if publishes.first_bytes:
                            yield publishes
                        if fault is not None:
                            raise fault
                        continue
                elif first in _ACKNOWLEDGEMENTS:
                    ids, behind = scan_acknowledgements(data, at, end)
                    if ids:
                        at = behind
                        yield Acknowledgements(_ACKNOWLEDGEMENTS[first], ids)
                        continue
                elif first == _PINGREQ:
                    count = scan_pings(data, at, end)
                    if count:
                        at += 2 * count
                        yield Pings(count)
                        continue
            packet_place = self._next_packet(data, at, end)
            if packet_place is None:
                break
            body, at = packet_place
            yield self._event(first, data[body:at])
        return at

    def _next_packet(self, data: bytes, at: int, end: int) -> tuple[int, int] | None:
        """Body and end of the packet at `at`; None when it is incomplete: then `_partial_end` says how long
        it is."""
        if self.state is State.NEW and data[at] != 0x10:
            raise ProtocolViolation(_not_mqtt(data[at : at + 4]))
        place = packet_end(data, at, end)
        if place is None:
            self._partial_end = 0
            return None
        setting, limit = "packet_bytes", self.inbound.packet_bytes
        if self.state is not State.OPEN and self.inbound.connect_bytes < limit:
            setting, limit = "connect_bytes", self.inbound.connect_bytes
        if place[1] - at > limit:
            if self.state is State.NEW:
                self._see_connect(data[place[0] : place[0] + _CONNECT_HEAD_BYTES])
            raise ProtocolViolation(
                f"a packet of {place[1] - at} bytes; {setting} is {limit}", Reason.PACKET_TOO_LARGE, setting
            )
        if place[1] > end:
            self._partial_end = place[1] - at
            return None
        return place

    def _event(self, first: int, body: bytes) -> Event:
        if self.state is State.NEW:
            self._see_connect(body)
        elif first >> 4 == PacketType.CONNECT:
            raise ProtocolViolation("second CONNECT on one connection")  # whatever else is wrong with it
        packet = decode_packet(first, body, self.level, self.inbound.filter_count)
        if isinstance(packet, packets.Connect):
            self.state = State.OPEN
            return packet
        return self._judge(packet)

    def _see_connect(self, body: bytes) -> None:
        """The body of a CONNECT, or the front of it, whatever else is wrong with it."""
        level = connect_level(body)
        if level is not None:
            self.level = min(level, MQTT_5)
            self.saw_connect = True

    def _judge(self, packet: Packet) -> Event:
        """The event for a rare packet of an open connection."""
        if self.state is State.AUTHENTICATING and not isinstance(packet, (packets.Auth, packets.Disconnect)):
            raise ProtocolViolation(f"{type(packet).__name__.upper()} during an enhanced authentication")
        if isinstance(packet, packets.Acknowledgement):
            return Acknowledgements(_ACKNOWLEDGEMENT_TYPES[type(packet)], [packet.packet_id], packet.reason)
        if isinstance(packet, packets.Disconnect):
            if packet.properties.server_reference is not None:
                raise ProtocolViolation("DISCONNECT from a client with a server reference")
            self.state = State.ENDED
            return packet
        if isinstance(packet, _FROM_SERVERS):
            raise ProtocolViolation(f"{type(packet).__name__.upper()} from a client")
        # The scanners take every PUBLISH and PINGREQ that `decode_packet` accepts.
        assert not isinstance(packet, (packets.Publish, packets.Pingreq, packets.Connect)), (
            "the scanner and the decoder disagree"
        )
        return packet

    def _publishes(self, run: PublishRun, size_bytes: int) -> tuple[Publishes, MqttError | None]:
        """The publishes of a run up to the first that breaks a rule, and what that one breaks."""
        publishes = Publishes(
            run.first_bytes,
            run.topics,
            run.topic_numbers,
            run.data,
            run.lengths,
            0,
            run.acknowledgements,
            size_bytes,
        )
        fault = None
        if run.acknowledgements:
            count, fault = self._admit(run)
            if fault is not None:
                publishes = publishes.head(count)
        if run.properties or (self.level == MQTT_5 and b"" in publishes.topics):
            publishes, worse = self._apply_properties(publishes, run.properties)
            fault = worse or fault
        self.unacknowledged += len(publishes.acknowledgements) // 4
        return publishes, fault

    def _admit(self, run: PublishRun) -> tuple[int, MqttError | None]:
        """How many publishes of a run are within the receive maximum and the maximum QoS."""
        room = self.inbound.receive_maximum - self.unacknowledged - len(self.unreleased)
        qos2 = has_qos_2(run.first_bytes)
        answers = len(run.acknowledgements) // 4
        if (self.level < MQTT_5 or answers <= room) and self.inbound.maximum_qos >= 1 + qos2:
            return len(run.first_bytes), None
        for number, first in enumerate(run.first_bytes):
            if first & 6 == 4 and self.inbound.maximum_qos < 2:
                return number, ProtocolViolation(
                    "PUBLISH at QoS 2 is not supported", Reason.QOS_NOT_SUPPORTED
                )
            if first & 6 and self.level == MQTT_5:
                if room <= 0:
                    message = f"more than {self.inbound.receive_maximum} unacknowledged publishes"
                    reason = Reason.RECEIVE_MAXIMUM_EXCEEDED
                    return number, ProtocolViolation(message, reason, "receive_maximum")
                room -= 1
        return len(run.first_bytes), None

    def _apply_properties(
        self, run: Publishes, properties: Mapping[int, bytes]
    ) -> tuple[Publishes, MqttError | None]:
        """Resolve aliases and put header blocks in front of payloads, up to the first bad publish. `properties` are the
        raw property blocks by the publish's place in the run."""
        rows: list[PublishRow] = []
        fault = None
        for number, row in enumerate(run.rows()):
            try:
                headers = publish_headers(properties.get(number, b""))
                topic = row.topic
                if headers.topic_alias is not None:
                    topic = self._resolve(topic, headers.topic_alias)
                elif not topic:
                    raise MalformedPacket("PUBLISH without a topic")
            except MqttError as error:
                fault = error
                break
            rows.append(row._replace(topic=topic, headers=headers.block))
        return Publishes.of(rows, run.size_bytes), fault

    def _resolve(self, topic: bytes, alias: int) -> bytes:
        """The topic of a publish with an alias, which is learned or looked up (section 3.3.2.3.4)."""
        if alias > self.inbound.topic_alias_maximum:
            limit = self.inbound.topic_alias_maximum
            message, setting = f"topic alias {alias}; the limit is {limit}", "topic_alias_maximum"
            raise ProtocolViolation(message, Reason.TOPIC_ALIAS_INVALID, setting)
        if topic:
            self._aliases[alias] = topic
            return topic
        known = self._aliases.get(alias)
        if known is None:
            raise ProtocolViolation(f"topic alias {alias} was never set")
        return known


def _not_mqtt(start: bytes) -> str:
    """What a first packet that is no CONNECT looks like; wrong ports are the most common cause."""
    if start[:1] == b"\x16":
        return "the first bytes are a TLS handshake, on a port without TLS"
    if start in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return "the first bytes are an HTTP request"
    return f"the first packet is not CONNECT but starts with 0x{start[0]:02X}"
