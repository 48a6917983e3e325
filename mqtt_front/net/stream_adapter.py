"""Stream adapters between a socket and a client protocol: TLS, WebSocket, or both. An adapter is a protocol to the
side of the socket and a transport to the other, as in asyncio, and does no I/O itself."""

from typing import Any, Protocol

from mqtt_front.runtime.loop import Transport


class Receiver(Protocol):
    """Protocol that lends the buffer to read into."""

    def connection_made(self, transport: Transport) -> None: ...
    def get_buffer(self, size_hint: int) -> memoryview: ...
    def buffer_updated(self, count: int) -> None: ...
    def eof_received(self) -> bool: ...
    def connection_lost(self, error: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Arrival(Receiver, Protocol):
    """Connection before the first MQTT packet, as an adapter sees it."""

    awaited: str
    """What the client must do next, for the log line of a timeout."""

    def receive(self, data: bytes) -> None:
        """Handle received bytes of MQTT."""

    def turn_away(self, message: str) -> None:
        """End the connection because of invalid data for the adapter. message: continues after the address: "it does
        not speak TLS"."""


class StreamAdapter:
    """Adapter of one connection with the parts common to all kinds. Each kind implements the way up
    (`buffer_updated`), the way down (`write`), and its closing handshake."""

    __slots__ = ("_arrival", "_ended", "_half_closed", "_lower", "_open", "_started", "_upper")
    _first = "CONNECT"
    """What the client must do first."""

    def __init__(self, upper: Receiver, arrival: Arrival) -> None:
        """upper: the next adapter, or `arrival` itself."""
        self._upper, self._arrival = upper, arrival
        self._lower: Transport | None = None
        self._started = False
        """Whether the client has sent something."""
        self._open = False
        """Whether the handshake is complete."""
        self._ended = False
        """Set when nothing is passed on any more."""
        self._half_closed = False
        """Set when the server's direction is closed and the client may not have noticed."""

    # Called by the transport.

    def connection_made(self, transport: Transport) -> None:
        self._lower = transport
        self._upper.connection_made(self)
        self._arrival.awaited = self._first

    def get_buffer(self, size_hint: int) -> memoryview:
        # Received bytes are copied out before the buffer is lent again.
        return self._upper.get_buffer(size_hint)

    def eof_received(self) -> bool:
        return self._upper.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._lower = None
        self._upper.connection_lost(error)

    def pause_writing(self) -> None:
        self._upper.pause_writing()

    def resume_writing(self) -> None:
        self._upper.resume_writing()

    # Called by the receiver above.

    def write(self, data: bytes) -> None:
        """Send, or drop before the handshake is complete and after the end."""
        raise NotImplementedError

    def close(self) -> None:
        """Send the closing handshake and close when everything is written."""
        if not self._ended:
            self._ended = True
            self._say_goodbye()
            if self._lower is not None:
                self._lower.close()

    def write_eof(self) -> None:
        """Send the closing handshake and close the server's direction when everything is written. Later bytes are
        passed up unchanged, to be counted and discarded."""
        if not self._ended:
            self._ended = self._half_closed = True
            self._say_goodbye()
            if self._lower is not None:
                try:
                    self._lower.write_eof()
                except NotImplementedError:  # TLS of the event loop has no half-closed state
                    self._half_closed = False
                    self._lower.close()

    def can_write_eof(self) -> bool:
        return True

    def _discards(self, count: int) -> bool:
        """Return whether the bytes in the buffer are too late. After the end of the server's direction the client
        protocol counts them."""
        if self._half_closed:
            self._upper.buffer_updated(count)
        return self._ended

    def _say_goodbye(self) -> None:
        """Write the last bytes."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close at once."""
        self._ended = True
        if self._lower is not None:
            self._lower.abort()

    def pause_reading(self) -> None:
        if self._lower is not None:
            self._lower.pause_reading()

    def resume_reading(self) -> None:
        if self._lower is not None:
            self._lower.resume_reading()

    def is_closing(self) -> bool:
        return self._ended or self._lower is None or self._lower.is_closing()

    def get_write_buffer_size(self) -> int:
        return 0 if self._lower is None else self._lower.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._lower is not None:
            self._lower.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._lower is None else self._lower.get_extra_info(name, default)
