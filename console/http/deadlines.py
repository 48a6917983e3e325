"""HTTP/1.1 protocol with deadlines and a bound of connections: uvicorn's own waits without end for a request that does
not end."""

import asyncio
import re
from typing import Any

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from ..problems import PROBLEM_TYPE, Problem
from .gate import SECURITY_HEADERS

HEAD_S, BODY_S = 10.0, 30.0
"""Time for a whole head, and for a whole body."""
CONNECTION_COUNT = 64
"""Open connections; a further one ends the one that has waited longest for a request."""
HEAD_BYTES = 16 << 10
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")


class BoundedProtocol(H11Protocol):
    """Connection that is closed when its request does not arrive in time."""

    _deadline: asyncio.TimerHandle | None = None
    _head: bytearray

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._head = bytearray()
        self._wait(HEAD_S)
        waiting = [one for one in self.connections if isinstance(one, BoundedProtocol) and one.is_idle]
        if len(self.connections) > CONNECTION_COUNT and waiting:
            oldest = min(waiting, key=lambda one: one._deadline.when() if one._deadline is not None else 0.0)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._wait(None)
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Return whether no response is under way."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Handle what has arrived, and wait for what is missing."""
        if self.is_idle and not self._takes(data):
            self.send_400_response(
                f"expected one request in HTTP/1.1, with a head of at most {HEAD_BYTES} bytes"
            )
            return
        before: RequestResponseCycle | None = self.cycle
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None:
            return
        if not cycle.more_body:
            self._wait(None)
            if self.conn.trailing_data[0]:
                # A browser sends the next request after the response, and a head is checked when it arrives.
                self.transport.close()
        elif cycle is not before:
            self._wait(BODY_S)

    def _takes(self, data: bytes) -> bool:
        """Return whether what has arrived of a head is strictly HTTP/1: h11 also takes lines without CR, any version,
        and a large head that arrives at once."""
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if len(head) > HEAD_BYTES or _BARE.search(head, 0, len(head) - (0 if end else 1)):
            return False
        line, has_line, _ = head.partition(b"\r\n")
        if end:
            self._head = bytearray()
        return not (has_line or end) or line.endswith((b" HTTP/1.1", b" HTTP/1.0"))

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.is_idle:
            self._wait(HEAD_S)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP with a problem and the headers that each response has, and close."""
        body = msgspec.json.encode(Problem("invalid-request", msg).document())
        lines = [
            b"HTTP/1.1 400 Bad Request",
            b"content-type: " + PROBLEM_TYPE.encode(),
            b"content-length: %d" % len(body),
            b"connection: close",
            *(name + b": " + value for name, value in SECURITY_HEADERS),
        ]
        if self.is_idle:  # else it would be read as a part of that response
            self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()

    def _wait(self, limit_s: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if limit_s is not None:
            self._deadline = self.loop.call_later(limit_s, self._give_up)

    def _give_up(self) -> None:
        self.transport.abort()
