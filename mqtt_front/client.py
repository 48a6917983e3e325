"""A client of any MQTT server, for `timestone pub` and `sub` and for small programs: one connection, blocking calls.

Built on `codec`; must not know the server's side. It does not reconnect and keeps no session of its own.
"""

import math
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Self, TypeVar

from mqtt_front.codec import packets
from mqtt_front.codec.decode import decode_packet, packet_end
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import MQTT_5, Connect, Packet, Publish, Request
from mqtt_front.errors import MqttError
from mqtt_front.protocol.packet_ids import PacketIds
from mqtt_front.reasons import Reason

_RECEIVE_BYTES = 1 << 16
_SHORTEST_WAIT_S = 0.001
_CLOSED = "the server closed the connection"
_WINDOW = 100
"""Publishes that wait for their acknowledgement at a time, unless the server allows fewer."""
_CONNACK_3 = (
    "accepted", "unacceptable protocol version", "client id rejected", "server unavailable",
    "bad user name or password", "not authorized",
)  # fmt: skip

Answer = TypeVar("Answer", packets.Connack, packets.Suback)


class Refused(Exception):
    """The server refused a connection, a publish or a subscription, or ended the connection with a reason."""


class Client:
    """A connection to a server, from the accepted CONNECT to `close`. For one thread.

    Calls raise Refused, MqttError for what is not MQTT, and OSError: ConnectionError when the server has gone,
    TimeoutError when it does not answer in time.
    """

    def __init__(
        self,
        address: tuple[str, int],
        connect: Connect,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Connect and wait for CONNACK."""
        self._level = connect.level
        self._timeout_s = timeout_s
        self._received = bytearray()
        self._messages: deque[Publish] = deque()
        self._unsettled: set[int] = set()
        self._answers: deque[Packet] = deque()
        self._packet_ids = PacketIds()
        self._keep_alive_s = 0
        self._sent_s = 0.0
        self._is_pinged = False
        self._socket = socket.create_connection(address, timeout=timeout_s)
        try:
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
            self._send(connect)
            accepted = self._answer(packets.Connack)
            if accepted.reason:
                raise Refused(f"connection refused: {self._reason(accepted.reason, _CONNACK_3)}")
        except BaseException:
            self._socket.close()
            raise
        asked_s = accepted.properties.server_keep_alive
        self._keep_alive_s = connect.keep_alive if asked_s is None else asked_s
        self._window = min(_WINDOW, accepted.properties.receive_maximum or _WINDOW)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def publish(self, message: Publish) -> None:
        """Send a message; at QoS 1 and 2, wait for earlier ones while too many are not acknowledged."""
        if message.qos:
            while len(self._unsettled) >= self._window:
                self._wait()
            message = replace(message, packet_id=self._new_id())
            self._unsettled.add(message.packet_id)
        self._send(message)

    def flush(self) -> None:
        """Wait until every message at QoS 1 and 2 is acknowledged."""
        while self._unsettled:
            self._wait()

    def subscribe(self, requests: Sequence[Request]) -> None:
        """Subscribe to all of these filters; Refused names the first that was not granted."""
        self._send(packets.Subscribe(self._new_id(), tuple(requests)))
        granted = self._answer(packets.Suback).reasons
        for request, reason in zip(requests, granted, strict=True):
            if reason >= Reason.UNSPECIFIED_ERROR:
                raise Refused(f"subscription to {request.topic_filter!r} refused: {self._reason(reason)}")

    def receive(self, timeout_s: float) -> Publish | None:
        """Return the next message; None when none came in time. Pings the server while it waits.

        The server sends a message at QoS 1 and 2 again until it is acknowledged.
        """
        deadline_s = time.monotonic() + timeout_s
        while not self._messages:
            if not self._next(deadline_s - time.monotonic()):
                return None
        return self._messages.popleft()

    def acknowledge(self, message: Publish) -> None:
        """Tell the server that a message of `receive` has been processed."""
        if message.qos == 1:
            self._send(packets.Puback(message.packet_id))
        elif message.qos == 2:
            self._send(packets.Pubrec(message.packet_id))

    def close(self) -> None:
        """Send DISCONNECT, which makes the server forget the will, and close. Closing twice is fine."""
        if self._socket.fileno() < 0:
            return
        try:
            self._send(packets.Disconnect())
        except (OSError, Refused, MqttError):
            pass  # the connection has ended already
        self._socket.close()

    def _new_id(self) -> int:
        (one,) = self._packet_ids.take(1, self._unsettled)
        return one

    def _send(self, packet: Packet) -> None:
        self._socket.settimeout(self._timeout_s)
        try:
            self._socket.sendall(encode_packet(packet, self._level))
        except (BrokenPipeError, ConnectionResetError):
            while self._next(0):  # the server may have said why: Refused
                pass
            raise ConnectionError(_CLOSED) from None  # BrokenPipeError could be that of another stream
        self._sent_s = time.monotonic()

    def _answer(self, kind: type[Answer]) -> Answer:
        while not self._answers:
            self._wait()
        answer = self._answers.popleft()
        assert isinstance(answer, kind)
        return answer

    def _wait(self) -> None:
        """Handle the next packet. Raises TimeoutError."""
        if not self._next(self._timeout_s):
            raise TimeoutError(f"the server did not answer within {self._timeout_s:g} s")

    def _next(self, timeout_s: float) -> bool:
        """Handle the next packet; False when none came in time."""
        deadline_s = time.monotonic() + timeout_s
        while (packet := self._decoded()) is None:
            if not self._arrived(deadline_s - time.monotonic()):
                return False
        self._handle(packet)
        return True

    def _decoded(self) -> Packet | None:
        place = packet_end(bytes(self._received[:5]), 0, min(5, len(self._received)))
        if not self._received or place is None or place[1] > len(self._received):
            return None
        packet = decode_packet(self._received[0], bytes(self._received[slice(*place)]), self._level)
        del self._received[: place[1]]
        return packet

    def _arrived(self, timeout_s: float) -> bool:
        """Receive what has come; False when nothing came in time."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            now_s = time.monotonic()
            ping_s = self._sent_s + self._keep_alive_s / 2 if self._keep_alive_s else math.inf
            if now_s >= ping_s:
                self._ping()
                continue
            self._socket.settimeout(max(_SHORTEST_WAIT_S, min(deadline_s, ping_s) - now_s))
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except TimeoutError:
                if time.monotonic() >= deadline_s:
                    return False
                continue
            except ConnectionResetError:
                data = b""
            if not data:
                raise ConnectionError(_CLOSED)
            self._received += data
            return True

    def _ping(self) -> None:
        if self._is_pinged:
            raise TimeoutError(f"the server did not answer a ping within {self._keep_alive_s / 2:g} s")
        self._is_pinged = True
        self._send(packets.Pingreq())

    def _handle(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self._messages.append(packet)
            case packets.Pubrec() if packet.reason < Reason.UNSPECIFIED_ERROR:
                self._send(packets.Pubrel(packet.packet_id))
            case packets.Puback() | packets.Pubrec() | packets.Pubcomp():
                self._settle(packet)
            case packets.Pubrel():
                self._send(packets.Pubcomp(packet.packet_id))
            case packets.Pingresp():
                self._is_pinged = False
            case packets.Disconnect():
                raise Refused(f"the server ended the connection: {self._reason(packet.reason)}")
            case _:
                self._answers.append(packet)

    def _settle(self, packet: packets.Acknowledgement) -> None:
        self._unsettled.discard(packet.packet_id)
        if packet.reason >= Reason.UNSPECIFIED_ERROR:
            raise Refused(f"publish refused: {self._reason(packet.reason)}")

    def _reason(self, code: int, names: Sequence[str] = ()) -> str:
        """Return what a reason code of MQTT 5 means, or a return code of MQTT 3, whose `names` are given."""
        if self._level < MQTT_5 and code < len(names):
            return f"{names[code]} ({code})"
        known = {one.value: one.name for one in Reason}
        return f"{known.get(code, 'unknown reason').lower().replace('_', ' ')} (0x{code:02x})"
