"""State machine of one connection without I/O: bytes in, events out.

Knows the permitted order of packets and the state that ends with the connection: protocol level, topic aliases,
receive maximum. Knows no sessions, logs or sockets, and reads of a topic only its alias."""

import enum
from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple

from mqtt_front.codec import packets
from mqtt_front.codec.decode import connect_level, decode_packet, packet_end
from mqtt_front.codec.packets import MQTT_3_1_1, MQTT_5, Packet, PacketType
from mqtt_front.codec.scan import PublishRun, scan_acknowledgements, scan_pings
from mqtt_front.errors import MalformedPacket, MqttError, ProtocolViolation
from mqtt_front.kernel.loops import AdmittedCount, scan_publishes
from mqtt_front.protocol.events import Acknowledgements, Event, Pings, Publishes, PublishRow
from mqtt_front.protocol.header_block import publish_headers
from mqtt_front.protocol.topic_aliases import InboundAliases
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
"""Size of protocol name and level in the longer form."""
_PINGREQ = 0xC0
_FROM_SERVERS = (packets.Connack, packets.Suback, packets.Unsuback, packets.Pingresp)


class State(enum.Enum):
    """State of a connection."""

    NEW = enum.auto()
    """Only CONNECT is accepted."""
    AUTHENTICATING = enum.auto()
    """CONNECT had an authentication method: only AUTH and DISCONNECT are accepted [MQTT-3.1.2-30]."""
    OPEN = enum.auto()
    ENDED = enum.auto()
    """After DISCONNECT, an error, or a call of `end`: all further bytes are ignored."""


class Inbound(NamedTuple):
    """Limits of what a client may send, as stated in CONNACK."""

    packet_bytes: int = 1024 * 1024
    receive_maximum: int = 65_535
    topic_alias_maximum: int = 0
    connect_bytes: int = 128 * 1024
    """Maximum size of a packet before the client is admitted."""
    filter_count: int = 10_000
    """Maximum number of topic filters of one packet."""


class Connection(AdmittedCount):
    """Receiving side of one connection.

    Usage: `for event in connection.receive_data(data)`. Only MalformedPacket and ProtocolViolation are raised,
    between events; the events before the error are valid. After an error the connection is ENDED."""

    __slots__ = (
        "_aliases",
        "_partial",
        "_partial_end",
        "held",
        "inbound",
        "level",
        "saw_connect",
        "state",
        "unreleased",
    )

    def __init__(self, inbound: Inbound) -> None:
        self.inbound = inbound
        self.state = State.NEW
        self.level = MQTT_3_1_1
        """Protocol level, as soon as a CONNECT states one; a refusal is encoded for it too."""
        self.saw_connect = False
        """Whether a CONNECT with a protocol level came, valid or not, so that an answer can be sent."""
        self.unacknowledged = 0
        self.unreleased: set[int] = set()
        """Packet ids of publishes at QoS 2 between PUBREC and PUBREL, which count towards the receive maximum
        (section 4.9). Maintained by the owner."""
        self.held = False
        """Set while events are held back until `go_on`."""
        self._aliases = InboundAliases(inbound.topic_alias_maximum)
        self._partial = bytearray()
        self._partial_end = 0

    @property
    def between_packets(self) -> bool:
        """Return whether the next byte begins a packet, and any packet is accepted."""
        return self.state is State.OPEN and not self.held and not self._partial

    def front(self, buffer: bytearray, end: int) -> int:
        """Return up to where publishes may be taken from a receive buffer before this connection sees the rest:
        `end`, or a position before it that leaves room for the beginning of an incomplete packet, which is moved
        there. -1 if the connection is not open, is held, or waits for a packet that is too large for this."""
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
        """Return how many more publishes at QoS 1 may arrive before one is acknowledged."""
        if self.level < MQTT_5:
            return _NO_LIMIT
        return self.inbound.receive_maximum - self.unacknowledged - len(self.unreleased)

    def end(self) -> None:
        """Ignore everything that follows; also stops a running `receive_data`."""
        self.state = State.ENDED

    def authenticate(self) -> None:
        """Begin an enhanced authentication after CONNECT, which lasts until `open`."""
        self.state = State.AUTHENTICATING

    def open(self) -> None:
        """End the enhanced authentication with success."""
        self.state = State.OPEN

    def hold(self) -> None:
        """Hold back events until `go_on`, while the owner decides about the last one. Received bytes are kept, so
        the owner stops receiving."""
        self.held = True

    def go_on(self) -> Iterator[Event]:
        """Yield the events that `hold` held back. Errors as with `receive_data`."""
        self.held = False
        return self.receive_data(b"")

    def receive_data(self, data: bytes) -> Iterator[Event]:
        """Yield the events in `data` and in the rest of earlier data. Iterate to the end before the next call."""
        if self._partial:
            self._partial += data
            # A large packet in small pieces is joined once, not with each piece.
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
        """Yield all complete packets; the return value is the position of the incomplete one."""
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
        """Return body and end of the packet at `at`; None if it is incomplete, with its length in `_partial_end`."""
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
            raise ProtocolViolation("second CONNECT on one connection")  # regardless of its other errors
        packet = decode_packet(first, body, self.level, self.inbound.filter_count)
        if isinstance(packet, packets.Connect):
            self.state = State.OPEN
            return packet
        return self._judge(packet)

    def _see_connect(self, body: bytes) -> None:
        """Note the body of a CONNECT, or its beginning, valid or not."""
        level = connect_level(body)
        if level is not None:
            self.level = min(level, MQTT_5)
            self.saw_connect = True

    def _judge(self, packet: Packet) -> Event:
        """Return the event for a rare packet of an open connection."""
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
        if isinstance(packet, packets.Pingreq):  # a packet of MQTT 3.1 with reserved bits set
            return Pings(1)
        # The scanners take every PUBLISH that `decode_packet` accepts.
        assert not isinstance(packet, (packets.Publish, packets.Connect)), (
            "the scanner and the decoder disagree"
        )
        return packet

    def _publishes(self, run: PublishRun, size_bytes: int) -> tuple[Publishes, MqttError | None]:
        """Return the publishes of a run up to the first that violates a rule, and that violation."""
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
        fault: MqttError | None = None
        if self.level == MQTT_5 and len(run.acknowledgements) // 4 > self.room:
            publishes = publishes.head(self._admitted_count(run))
            message = f"more than {self.inbound.receive_maximum} unacknowledged publishes"
            fault = ProtocolViolation(message, Reason.RECEIVE_MAXIMUM_EXCEEDED, "receive_maximum")
        if run.properties or (self.level == MQTT_5 and b"" in publishes.topics):
            publishes, worse = self._apply_properties(publishes, run.properties)
            fault = worse or fault
        self.unacknowledged += len(publishes.acknowledgements) // 4
        return publishes, fault

    def _admitted_count(self, run: PublishRun) -> int:
        """Return how many publishes of a run precede the first that exceeds the receive maximum."""
        acknowledged = [number for number, first in enumerate(run.first_bytes) if first & 6]
        return acknowledged[max(0, self.room)]

    def _apply_properties(
        self, run: Publishes, properties: Mapping[int, bytes]
    ) -> tuple[Publishes, MqttError | None]:
        """Resolve aliases and insert header blocks before payloads, up to the first invalid publish. properties: raw
        property blocks by index of the publish in the run."""
        rows: list[PublishRow] = []
        fault = None
        for number, row in enumerate(run.rows()):
            try:
                headers = publish_headers(properties.get(number, b""))
                topic = row.topic
                if headers.topic_alias is not None:
                    topic = self._aliases.resolve(topic, headers.topic_alias)
                elif not topic:
                    raise MalformedPacket("PUBLISH without a topic")
            except MqttError as error:
                fault = error
                break
            rows.append(row._replace(topic=topic, headers=headers.block))
        return Publishes.of(rows, run.size_bytes), fault


def _not_mqtt(start: bytes) -> str:
    """Describe a first packet that is not CONNECT; a wrong port is the most common cause."""
    if start[:1] == b"\x16":
        return "the first bytes are a TLS handshake, on a port without TLS"
    if start in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return "the first bytes are an HTTP request"
    return f"the first packet is not CONNECT but starts with 0x{start[0]:02X}"
