"""The WebSocket layer with the library's own client on the other side, in memory."""

import pytest
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from mqtt_front.net.websocket import HANDSHAKE, WebSocketAdapter
from tests.support.layered import FakeLink, FakeTransport, feed

UPGRADE = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


class Client:
    """A WebSocket client, its layer on the server's side, and the wire between them."""

    def __init__(
        self,
        *,
        subprotocols: tuple[str, ...] = ("mqtt",),
        origin: str | None = None,
        origins: tuple[str, ...] | None = None,
        packet_bytes: int = 10_000,
        piece_bytes: int = 1 << 16,
    ) -> None:
        self.protocol = ClientProtocol(
            parse_uri("ws://localhost/mqtt"),
            origin=None if origin is None else Origin(origin),
            subprotocols=[Subprotocol(each) for each in subprotocols] or None,
        )
        self.link, self.transport = FakeLink(), FakeTransport()
        self.layer = WebSocketAdapter(self.link, packet_bytes=packet_bytes, origins=origins)
        self.layer.connection_made(self.transport)
        self.piece_bytes = piece_bytes

    def exchange(self) -> list[object]:
        """Carry bytes both ways until none are left; what the client received."""
        events: list[object] = []
        while True:
            sent = b"".join(self.protocol.data_to_send())
            feed(self.layer, sent, self.piece_bytes)
            received = self.transport.take()
            if not sent and not received:
                return events
            self.protocol.receive_data(received)
            events += self.protocol.events_received()

    def shake_hands(self) -> "Client":
        self.protocol.send_request(self.protocol.connect())
        self.response = self.exchange()
        return self

    def send(self, opcode: Opcode, data: bytes, *, fin: bool = True) -> list[object]:
        self.protocol.send_frame(Frame(opcode, data, fin))
        return self.exchange()


@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 16])
@pytest.mark.parametrize("subprotocol", ["mqtt", "mqttv3.1"])
def test_bytes_pass_both_ways_in_any_pieces(subprotocol: str, piece_bytes: int) -> None:
    client = Client(subprotocols=("chat", subprotocol), piece_bytes=piece_bytes)
    assert client.link.awaited == HANDSHAKE
    client.shake_hands()
    assert client.link.awaited == "CONNECT"
    assert client.protocol.subprotocol == subprotocol
    client.send(Opcode.BINARY, b"hello" * 1000)
    assert client.link.received == b"hello" * 1000
    client.layer.write(b"world" * 30_000)
    frames = client.exchange()
    assert [(each.opcode, bytes(each.data)) for each in frames if isinstance(each, Frame)] == [
        (Opcode.BINARY, b"world" * 30_000)
    ]


def test_subprotocol_mqtt_is_chosen_when_both_are_offered() -> None:
    assert Client(subprotocols=("mqttv3.1", "mqtt")).shake_hands().protocol.subprotocol == "mqtt"


def test_packets_may_span_frames_and_frames_may_have_several_packets() -> None:
    client = Client().shake_hands()
    client.send(Opcode.BINARY, b"\xc0", fin=False)
    client.send(Opcode.CONT, b"\x00\xc0", fin=False)
    client.send(Opcode.PING, b"in between")
    client.send(Opcode.CONT, b"\x00")
    client.send(Opcode.BINARY, b"")
    client.send(Opcode.BINARY, b"\xc0\x00" * 3)
    assert client.link.received == b"\xc0\x00" * 5
    assert client.link.told == []


@pytest.mark.parametrize(
    ("opcode", "data", "said", "code"),
    [
        (Opcode.TEXT, b"text", "a text frame: MQTT is sent in binary frames", 1003),
        (
            Opcode.CONT,
            b"no beginning",
            "it breaks the WebSocket protocol: unexpected continuation frame",
            1002,
        ),
        (Opcode.BINARY, b"x" * 80_000, "it breaks the WebSocket protocol: ", 1009),
        (0x3, b"reserved", "it breaks the WebSocket protocol: ", 1002),
    ],
)
def test_other_frames_end_the_connection_with_a_reason(
    opcode: int, data: bytes, said: str, code: int
) -> None:
    client = Client().shake_hands()
    head = bytes((0x80 | opcode, 0x80 | (len(data) if len(data) < 126 else 127)))
    head += b"" if len(data) < 126 else len(data).to_bytes(8, "big")
    feed(client.layer, head + bytes(4) + data)
    client.exchange()
    assert len(client.link.told) == 1 and client.link.told[0].startswith(said)
    assert client.transport.ended == "closed"
    assert client.protocol.close_rcvd is not None and client.protocol.close_rcvd.code == code
    assert client.link.received == b""


def test_no_data_makes_no_frame() -> None:
    client = Client().shake_hands()
    client.layer.write(b"")
    assert client.exchange() == []


def test_frame_without_a_mask_is_a_protocol_error() -> None:
    client = Client().shake_hands()
    feed(client.layer, b"\x82\x01x")
    assert client.link.told == ["it breaks the WebSocket protocol: incorrect masking"]


def test_close_frame_of_the_client_is_answered_and_not_a_fault() -> None:
    client = Client().shake_hands()
    client.protocol.send_close(1000)
    client.exchange()
    assert client.protocol.close_rcvd is not None and client.protocol.close_rcvd.code == 1000
    assert client.transport.ended == "closed"
    assert client.link.told == []


def test_close_sends_one_close_frame() -> None:
    client = Client().shake_hands()
    client.layer.write(b"bye")
    client.layer.close()
    client.layer.close()
    client.layer.write(b"more")
    frames = [each.opcode for each in client.exchange() if isinstance(each, Frame)]
    assert frames == [Opcode.BINARY, Opcode.CLOSE]
    assert client.transport.ended == "closed" and client.layer.is_closing()


def test_bytes_after_our_close_frame_are_passed_up_for_discarding() -> None:
    client = Client().shake_hands()
    client.layer.write(b"bye")
    client.layer.write_eof()
    feed(client.layer, b"anything")
    frames = [each.opcode for each in client.exchange() if isinstance(each, Frame)]
    assert frames == [Opcode.BINARY, Opcode.CLOSE]
    assert client.link.received.startswith(b"anything")
    assert client.transport.ended == "half-closed"


@pytest.mark.parametrize("end", ["close", "write_eof"])
def test_close_frame_is_answered_when_the_packet_before_it_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Clients send DISCONNECT and their close frame in one go."""
    client = Client().shake_hands()
    monkeypatch.setattr(client.link, "receive", lambda data: getattr(client.layer, end)())
    client.protocol.send_binary(b"disconnect")
    client.protocol.send_close(1000)
    client.exchange()
    assert client.protocol.close_rcvd is not None and client.protocol.close_rcvd.code == 1000
    assert client.link.told == []


def response(client: Client, request: bytes) -> bytes:
    feed(client.layer, request, client.piece_bytes)
    return client.transport.take()


REQUESTS = {
    "a browser": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 426", "not a web server"),
    "no subprotocol": (UPGRADE + KEY + b"\r\n", b"HTTP/1.1 400", "the subprotocol has to be mqtt or mqttv3.1"),
    "another subprotocol": (
        UPGRADE + KEY + b"Sec-WebSocket-Protocol: chat\r\n\r\n", b"HTTP/1.1 400", "the subprotocol has to be",
    ),
    "no key": (UPGRADE + b"Sec-WebSocket-Protocol: mqtt\r\n\r\n", b"HTTP/1.1 400", "Sec-WebSocket-Key"),
    "another upgrade": (
        UPGRADE.replace(b"websocket", b"h2c") + KEY + b"Sec-WebSocket-Protocol: mqtt\r\n\r\n",
        b"HTTP/1.1 426",
        "Upgrade",
    ),
    "POST": (
        (UPGRADE + KEY).replace(b"GET", b"POST") + b"Sec-WebSocket-Protocol: mqtt\r\n\r\n", b"", "is refused",
    ),
    "endless line": (b"GET /" + b"x" * 20_000, b"HTTP/1.1 414", "is refused"),
    "endless header": (UPGRADE + b"X: " + b"x" * 20_000, b"HTTP/1.1 431", "is refused"),
    "endless headers": (UPGRADE + b"X: x\r\n" * 500, b"HTTP/1.1 431", "is refused"),
    "no HTTP": (b"SSH-2.0-client\r\n", b"", "is refused: did not receive a valid HTTP request"),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "status", "said"), REQUESTS.values(), ids=REQUESTS.keys())
@pytest.mark.parametrize("piece_bytes", [11, 1 << 16])
def test_invalid_request_is_answered_in_http(
    request_: bytes, status: bytes, said: str, piece_bytes: int
) -> None:
    client = Client(piece_bytes=piece_bytes)
    assert response(client, request_).startswith(status)
    assert len(client.link.told) == 1
    assert client.link.told[0].startswith(f"its {HANDSHAKE} is refused: ") and said in client.link.told[0]
    assert client.transport.ended == "closed"


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "it begins a TLS handshake, on a port without TLS"),
        (b"\x10\x0c\x00\x04MQTT", "it sends MQTT without WebSocket, on a port with WebSocket"),
    ],
)
def test_client_with_another_protocol_is_recognised_at_the_first_byte(start: bytes, said: str) -> None:
    client = Client()
    assert response(client, start) == b""
    assert client.link.told == [said]
    assert client.transport.ended == "closed"


def test_frames_before_the_answer_are_refused() -> None:
    early = UPGRADE + KEY + b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    for frame in (b"\x82\x81\0\0\0\0x", b"\x88\x80\0\0\0\0", b"\x89\x80\0\0\0\0", b"\x83\x80\0\0\0\0"):
        client = Client()
        feed(client.layer, early + frame)
        assert client.link.told == [f"it sends frames before its {HANDSHAKE} is answered"]
        assert client.link.received == b""


@pytest.mark.parametrize(
    ("origin", "origins", "let_in"),
    [
        (None, (), True),
        (None, ("https://example.org",), True),
        ("https://example.org", (), False),
        ("https://example.org", ("https://example.org",), True),
        ("https://example.org", ("*",), True),
        ("https://example.org", None, True),
        ("https://example.org:444", ("https://example.org",), False),
        ("http://localhost:3000", (), True),
        ("http://127.0.0.1", (), True),
        ("http://localhost" + ".example.org", (), False),
        ("null", (), False),
        ("http://[", (), False),
    ],
)
def test_page_of_another_origin_is_refused_unless_allowed(
    origin: str | None, origins: tuple[str, ...] | None, let_in: bool
) -> None:
    client = Client(origin=origin, origins=origins).shake_hands()
    (answer,) = client.response
    assert isinstance(answer, Response)
    assert answer.status_code == (101 if let_in else 403)
    assert bool(client.link.told) is not let_in
    assert isinstance(client.protocol.handshake_exc, InvalidHandshake) is not let_in


def test_pings_are_answered_within_a_memory_bound() -> None:
    client = Client().shake_hands()
    (pong,) = client.send(Opcode.PING, b"1")
    assert isinstance(pong, Frame) and pong.data == b"1"
    client.layer.pause_writing()
    for number in range(1000):
        assert client.send(Opcode.PING, b"%d" % number) == []
    client.layer.resume_writing()
    (pong,) = client.exchange()
    assert isinstance(pong, Frame) and pong.data == b"999"
    assert client.link.told == ["pause", "resume"]


def test_socket_calls_are_passed_on() -> None:
    client = Client().shake_hands()
    client.layer.set_write_buffer_limits(high=77)
    assert client.transport.high == 77
    states = []
    for switch in (client.layer.pause_reading, client.layer.resume_reading):
        switch()
        states.append(client.transport.reading)
    assert states == [False, True]
    assert client.layer.get_extra_info("peername") == ("192.0.2.1", 1234)
    assert client.layer.eof_received() is False
    client.layer.abort()
    client.layer.connection_lost(OSError("gone"))
    assert client.transport.ended == "aborted"
    assert client.link.told == ["lost: gone"]


def test_random_bytes_end_only_that_connection() -> None:
    for seed in range(200):
        client = Client().shake_hands() if seed % 2 else Client()
        feed(client.layer, bytes((seed * 7 + n * 13 + n * n) % 256 for n in range(300)), 1 + seed % 50)
        assert len(client.link.told) <= 1
