"""WebSocket as a layer (RFC 6455; MQTT 5, section 6): frames for browsers, the bytes of MQTT for the link.

The one home of the library that knows frames and the opening handshake. Compression is not offered: it would cost
memory for each connection and gains little on packets this small.
"""

import http
import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

from websockets.exceptions import InvalidHandshake
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from mqtt_front.net.stream_adapter import Arrival, StreamAdapter
from timestone.address import is_loopback

HANDSHAKE = "WebSocket handshake"
SUBPROTOCOLS = ("mqtt", "mqttv3.1")
_TLS = 0x16
_MQTT_CONNECT = 0x10
_PONG = 0x8A
_DATA = (Opcode.BINARY, Opcode.CONT)
_EXTRA_BYTES = 64 * 1024
"""What a message of WebSocket may hold beyond the largest packet: small ones that were gathered."""

# Each connection that is closed would be a line at level INFO.
_LOG = logging.getLogger("timestone.mqtt.websocket")
_LOG.setLevel(logging.WARNING)


class WebSocketAdapter(StreamAdapter):
    """One connection's WebSocket. To what is below it is a protocol, to the link a transport."""

    __slots__ = ("_origins", "_pong", "_protocol", "_writable")
    _first = HANDSHAKE

    def __init__(self, link: Arrival, *, packet_bytes: int, origins: Sequence[str] | None) -> None:
        """`origins` are the pages that may connect from a browser besides those of this machine; None for any."""
        super().__init__(link, link)
        self._origins = origins
        self._protocol = ServerProtocol(
            subprotocols=[Subprotocol(name) for name in SUBPROTOCOLS],
            max_size=packet_bytes + _EXTRA_BYTES,
            logger=_LOG,
        )
        self._writable = True
        self._pong: bytes | None = None

    # What the transport below calls.

    def buffer_updated(self, count: int) -> None:
        if self._discards(count):
            return
        data = bytes(self._arrival.get_buffer(-1)[:count])
        if not self._started:
            self._started = True
            if data[0] in _NOT_HTTP:
                self._arrival.turn_away(_NOT_HTTP[data[0]])
        if self._ended:
            return
        self._protocol.receive_data(data)
        events = self._protocol.events_received()
        if not self._open:
            self._shake_hands(events)
            return
        for event in events:
            if not self._ended:
                assert isinstance(event, Frame)
                self._take(event)
        if self.is_closing():
            return
        self._flush()
        if self._protocol.close_expected():
            fault = self._protocol.parser_exc
            self._finish(None if fault is None else f"it breaks the WebSocket protocol: {fault}")

    def pause_writing(self) -> None:
        self._writable = False
        super().pause_writing()

    def resume_writing(self) -> None:
        self._writable = True
        pong, self._pong = self._pong, None
        if pong is not None and self._lower is not None:
            self._lower.write(pong)
        super().resume_writing()

    def _shake_hands(self, events: Sequence[object]) -> None:
        """Let the client in once its request is whole, or answer in HTTP what is wrong."""
        if self._protocol.handshake_exc is not None:
            self._flush()
            self._arrival.turn_away(f"its {HANDSHAKE} is refused: {_words(self._protocol.handshake_exc)}")
            return
        if not events:
            return
        request = events[0]
        assert isinstance(request, Request)
        if len(events) > 1 or self._protocol.eof_sent:
            self._arrival.turn_away(f"it sends frames before its {HANDSHAKE} is answered")
            return
        refusal = self._refusal(request)
        if refusal is None:
            response = self._protocol.accept(request)
        else:
            response = self._protocol.reject(refusal[0], f"{refusal[1]}.\n")
        self._protocol.send_response(response)
        self._flush()
        if response.status_code == http.HTTPStatus.SWITCHING_PROTOCOLS:
            self._open = True
            self._arrival.awaited = "CONNECT"
            return
        words = refusal[1] if refusal is not None else _words(self._protocol.handshake_exc)
        self._arrival.turn_away(f"its {HANDSHAKE} is refused: {words}")

    def _refusal(self, request: Request) -> tuple[http.HTTPStatus, str] | None:
        """Return the reason to refuse a WebSocket request, or None."""
        headers = request.headers
        if "Upgrade" not in headers:
            return (
                http.HTTPStatus.UPGRADE_REQUIRED,
                "this is an MQTT server that speaks WebSocket, not a web server",
            )
        offered = {
            name.strip() for value in headers.get_all("Sec-WebSocket-Protocol") for name in value.split(",")
        }
        if offered.isdisjoint(SUBPROTOCOLS):
            return http.HTTPStatus.BAD_REQUEST, f"the subprotocol has to be {' or '.join(SUBPROTOCOLS)}"
        origins = headers.get_all("Origin")
        if self._origins is not None and not all(_is_allowed(origin, self._origins) for origin in origins):
            return (
                http.HTTPStatus.FORBIDDEN,
                f"pages of {origins[0][:100]!r} may not connect (see the setting origins)",
            )
        return None

    def _take(self, frame: Frame) -> None:
        if frame.opcode in _DATA:
            # A frame may hold half a packet or many: the link puts them together [MQTT-6.0.0-2].
            self._arrival.receive(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            words = "a text frame: MQTT is sent in binary frames"
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, words)
            self._flush()
            self._finish(words)

    def _finish(self, fault: str | None) -> None:
        """Stop reading: the client closes, or broke the protocol, which the library has answered already."""
        if fault is not None:
            self._arrival.turn_away(fault)
        if not self._ended:
            self.close()

    # What the link above calls.

    def set_protocol(self, link: Arrival) -> None:
        """Pass what comes from now on to another link."""
        self._arrival = self._upper = link

    def write(self, data: bytes) -> None:
        """Send as one frame. Dropped before the handshake is done, when there is nothing to say, and after the end."""
        if data and self._open and not self._ended and self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._flush()

    def _say_goodbye(self) -> None:
        if self._open:
            # A client that has closed its side in the same bytes has its answer ready.
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if not data or self._lower is None:
                continue  # the end of the stream, which `close` brings about
            if data[0] == _PONG and self._open and not self._writable:
                # A client that sends pings and does not read must not fill the memory; the last pong suffices (section
                # 5.5.3).
                self._pong = data
            else:
                self._lower.write(data)


_NOT_HTTP = {
    _TLS: "it begins a TLS handshake, on a port without TLS",
    _MQTT_CONNECT: "it sends MQTT without WebSocket, on a port with WebSocket",
}


def _is_allowed(origin: str, allowed: Sequence[str]) -> bool:
    """Return whether a page of this origin may connect. Pages of this machine may: their server could connect
    itself."""
    if "*" in allowed or origin in allowed:
        return True
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


def _words(fault: Exception | None) -> str:
    return str(fault) if isinstance(fault, InvalidHandshake) else "the request cannot be read"
