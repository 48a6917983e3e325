"""Clients for tests of the MQTT front: one without a socket, and one with a raw socket that sends only what the test
requests."""

import socket
import time
from typing import TypeVar

from mqtt_front.codec import packets
from mqtt_front.codec.decode import decode_packet, packet_end
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connack, Connect, Packet, Publish
from mqtt_front.codec.properties import Properties
from mqtt_front.kernel import loops
from mqtt_front.reasons import Reason
from mqtt_front.sessions.session import Target
from tests.support.waiting import TIMEOUT_S

Kind = TypeVar("Kind")


def parse(data: bytes, level: int) -> tuple[list[Packet], bytes]:
    """Return all complete packets at the front of `data`, and the rest."""
    found: list[Packet] = []
    at = 0
    while at < len(data):
        place = packet_end(data, at, len(data))
        if place is None or place[1] > len(data):
            break
        found.append(decode_packet(data[at], data[place[0] : place[1]], level))
        at = place[1]
    return found, data[at:]


class FakeClient(loops.PolledClient):
    """The connection of a session's client without a network: it keeps the deliveries."""

    def __init__(self, level: int = 4, packet_bytes: int = 1 << 28, inflight_limit: int = 65_535) -> None:
        self.target = Target(level, packet_bytes)
        self.inflight_limit = inflight_limit
        self.writable = True
        self.delivery_count = 0
        self.ended: Reason | None = None
        self.publishes: list[Publish] = []

    @property
    def unsent_bytes(self) -> int:
        return 0

    def cut_off(self) -> None:
        raise AssertionError("only `OutboundLimit` calls this")

    def deliver(self, data: bytes, count: int = 0) -> None:
        found, rest = parse(data, self.target.level)
        assert rest == b""
        self.publishes += [packet for packet in found if isinstance(packet, Publish)]

    def end(self, reason: Reason, message: str) -> None:
        self.ended = reason

    def take(self) -> list[Publish]:
        """Return the deliveries since the last call."""
        taken, self.publishes = self.publishes, []
        return taken


class RawClient:
    """A client that sends only what the test requests: no acknowledgements, no pings."""

    def __init__(self, address: tuple[str, int], level: int = 4) -> None:
        self.level = level
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self._received = b""
        self._packets: list[Packet] = []

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, *sent: Packet) -> None:
        self.send_bytes(b"".join(encode_packet(packet, self.level) for packet in sent))

    def next_packet(self, timeout_s: float = TIMEOUT_S) -> Packet | None:
        """Return the next packet from the server; None when it closed the connection. TimeoutError when nothing
        arrives."""
        deadline = time.monotonic() + timeout_s
        while not self._packets:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._packets, self._received = parse(self._received + data, self.level)
        return self._packets.pop(0)

    def expect(self, kind: type[Kind]) -> Kind:
        """Return the next packet, which has to be of this kind."""
        packet = self.next_packet()
        assert isinstance(packet, kind), f"{packet!r} instead of {kind.__name__}"
        return packet

    def expect_closed(self) -> None:
        packet = self.next_packet()
        assert packet is None, f"{packet!r} instead of the end of the connection"

    def expect_silence(self) -> None:
        """Check that no other packet arrived: a ping is answered by the very next packet."""
        self.send(packets.Pingreq())
        self.expect(packets.Pingresp)

    def connect(
        self,
        client_id: str = "raw",
        *,
        clean: bool = True,
        keep_alive: int = 0,
        will: packets.Will | None = None,
        user: str | None = None,
        password: bytes | None = None,
        properties: Properties | None = None,
    ) -> Connack:
        """Send CONNECT and return its answer."""
        asked = properties or Properties()
        self.send(Connect(client_id, self.level, clean, keep_alive, will, user, password, asked))
        return self.expect(Connack)

    def subscribe(
        self, *requests: packets.Request | str, properties: Properties | None = None
    ) -> tuple[int, ...]:
        """Send SUBSCRIBE (texts: at QoS 1) and return the reasons of its SUBACK."""
        asked = tuple(packets.Request(one, 1) if isinstance(one, str) else one for one in requests)
        self.send(packets.Subscribe(77, asked, properties or Properties()))
        answer = self.expect(packets.Suback)
        assert answer.packet_id == 77
        return answer.reasons

    def publish(self, topic: str, payload: bytes = b"", packet_id: int = 1) -> None:
        """Send PUBLISH at QoS 1 and return its PUBACK. Deliveries that arrive before it are kept for `receive`."""
        self.send(Publish(topic, payload, 1, packet_id=packet_id))
        earlier: list[Packet] = []
        while isinstance(answer := self.next_packet(), Publish):
            earlier.append(answer)
        self._packets[:0] = earlier
        assert answer == packets.Puback(packet_id)

    def receive(self, count: int, *, acknowledge: bool = True) -> list[Publish]:
        """Return the next `count` packets, which have to be publishes; acknowledged one by one on request."""
        received = [self.expect(Publish) for _ in range(count)]
        if acknowledge:
            self.send(*[packets.Puback(one.packet_id) for one in received if one.qos])
        return received
