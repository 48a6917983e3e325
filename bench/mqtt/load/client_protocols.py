"""The protocols of the load generator: MQTT 3.1.1, and the native one of NATS for comparison.

Bytes in and out, no sockets. Each protocol is implemented only as far as a load needs it, and all messages of a run
have one length.
"""

from typing import Protocol

from .packet_template import PacketTemplate, filling

PACKET_IDS = 65_535
"""Packet ids go from 1 to this number and begin again."""


class ClientProtocol(Protocol):
    """The parts of a protocol that a publisher and a subscriber need."""

    scheme: str
    puback_bytes: int
    """Length of the acknowledgement of one message."""
    noise: bytes
    """Bytes that the server may send at any time and that need no answer; empty: none."""
    goodbye: bytes

    def hello(self, client_id: str, *, clean: bool = True) -> bytes:
        """Return the packet that opens a connection."""

    def is_welcome(self, answer: bytes) -> bool:
        """Return whether `answer` is the complete answer to an accepted connection. ValueError: the server refuses
        it."""

    def subscribe(self, topic: str, qos: int) -> bytes:
        """Return a subscription to a topic or filter."""

    def is_subscribed(self, answer: bytes) -> bool:
        """Return whether `answer` is the complete answer to a subscription. ValueError: the server refuses it."""

    def publication(self, topic: str, payload_bytes: int, qos: int, digits: int = 0) -> PacketTemplate:
        """Return a message as a client sends it. The last `digits` characters of the topic may change."""

    def delivery(self, topic: str, payload_bytes: int, qos: int, digits: int = 0) -> PacketTemplate:
        """Return the same message as the server sends it."""

    def barrier(self, topic: str) -> bytes:
        """Return a packet that is answered once everything sent before it on this connection has been processed."""

    def is_past_barrier(self, answer: bytes) -> bool:
        """Return whether `answer` is the answer to the barrier."""


class Mqtt:
    """MQTT 3.1.1."""

    scheme = "mqtt"
    puback_bytes = 4
    noise = b""
    goodbye = b"\xe0\x00"

    def hello(self, client_id: str, *, clean: bool = True) -> bytes:
        encoded = client_id.encode()
        flags = b"\x02" if clean else b"\x00"
        # The longest keep alive: no run sends a PINGREQ, and rumqttd refuses clients without one.
        return _packet(0x10, b"\x00\x04MQTT\x04" + flags + b"\xff\xff" + _text(encoded))

    def is_welcome(self, answer: bytes) -> bool:
        if len(answer) >= 4 and (answer[:2] != b"\x20\x02" or answer[3]):
            raise ValueError(f"the server refused the connection: {answer[:4].hex()}")
        return len(answer) >= 4

    def subscribe(self, topic: str, qos: int) -> bytes:
        return _packet(0x82, b"\x00\x01" + _text(topic.encode()) + bytes((qos,)))

    def is_subscribed(self, answer: bytes) -> bool:
        if len(answer) >= 5 and (answer[:4] != b"\x90\x03\x00\x01" or answer[4] > 2):
            raise ValueError(f"the server refused the subscription: {answer[:5].hex()}")
        return len(answer) >= 5

    def publication(self, topic: str, payload_bytes: int, qos: int, digits: int = 0) -> PacketTemplate:
        packet = publish(topic.encode(), 1, filling(payload_bytes), qos)
        stamp_at = len(packet) - payload_bytes
        id_at = stamp_at - 2 if qos else None
        topic_end = stamp_at - 2 if qos else stamp_at
        return PacketTemplate(
            packet, stamp_at, payload_bytes, id_at, topic_end - digits if digits else None, digits
        )

    delivery = publication  # up to MQTT 3.1.1, and without the flags for a resend, it is the same

    def barrier(self, topic: str) -> bytes:
        # A server answers PINGREQ as soon as it has read it; a PUBACK arrives when the publishes before it are settled.
        return publish(topic.encode(), PACKET_IDS, b"end", 1)

    def is_past_barrier(self, answer: bytes) -> bool:
        return answer[-4:] == b"\x40\x02\xff\xff"


class Nats:
    """The native protocol of NATS: at most once, and no acknowledgements except to PING."""

    scheme = "nats"
    puback_bytes = 0
    noise = b"PING\r\n"
    goodbye = b""

    def hello(self, client_id: str, *, clean: bool = True) -> bytes:
        return b'CONNECT {"verbose":false,"pedantic":false,"name":"%s"}\r\nPING\r\n' % client_id.encode()

    def is_welcome(self, answer: bytes) -> bool:
        return _ponged(answer)

    def subscribe(self, topic: str, qos: int) -> bytes:
        return b"SUB %s 1\r\nPING\r\n" % _subject(topic)

    def is_subscribed(self, answer: bytes) -> bool:
        return _ponged(answer)

    def publication(self, topic: str, payload_bytes: int, qos: int, digits: int = 0) -> PacketTemplate:
        return self._template(b"PUB %s" % _subject(topic), payload_bytes, digits, b"")

    def delivery(self, topic: str, payload_bytes: int, qos: int, digits: int = 0) -> PacketTemplate:
        return self._template(b"MSG %s" % _subject(topic), payload_bytes, digits, b" 1")

    def barrier(self, topic: str) -> bytes:
        return b"PING\r\n"

    def is_past_barrier(self, answer: bytes) -> bool:
        return _ponged(answer)

    def _template(self, start: bytes, payload_bytes: int, digits: int, between: bytes) -> PacketTemplate:
        head = b"%s%s %d\r\n" % (start, between, payload_bytes)
        topic_at = len(start) - digits if digits else None
        return PacketTemplate(
            head + filling(payload_bytes) + b"\r\n", len(head), payload_bytes, None, topic_at, digits
        )


CLIENT_PROTOCOLS: dict[str, ClientProtocol] = {protocol.scheme: protocol for protocol in (Mqtt(), Nats())}


def publish(topic: bytes, packet_id: int, payload: bytes, qos: int) -> bytes:
    """Return a PUBLISH of MQTT 3.1.1."""
    return _packet(0x30 | qos << 1, _text(topic) + (packet_id.to_bytes(2, "big") if qos else b"") + payload)


def _packet(first: int, body: bytes) -> bytes:
    length, encoded = len(body), bytearray((first,))
    while True:
        length, low = length >> 7, length & 0x7F
        encoded.append(low | (0x80 if length else 0))
        if not length:
            return bytes(encoded) + body


def _text(encoded: bytes) -> bytes:
    return len(encoded).to_bytes(2, "big") + encoded


def _subject(topic: str) -> bytes:
    return topic.replace("/", ".").replace("+", "*").encode()


def _ponged(answer: bytes) -> bool:
    if b"-ERR" in answer:
        raise ValueError(f"the server refused: {answer[-100:]!r}")
    return answer.endswith(b"PONG\r\n")
