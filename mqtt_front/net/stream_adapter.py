"""What may stand between a socket and a link: TLS, WebSocket, or both. A layer is a protocol to what is below it and a
transport to what is above it, both in asyncio's words, and does no I/O itself."""

from typing import Any, Protocol

from mqtt_front.runtime.loop import Transport


class Receiver(Protocol):
    """What is used of a protocol that lends the buffer it reads into."""

    def connection_made(self, transport: Transport) -> None: ...
    def get_buffer(self, size_hint: int) -> memoryview: ...
    def buffer_updated(self, count: int) -> None: ...
    def eof_received(self) -> bool: ...
    def connection_lost(self, error: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Arrival(Protocol):
    """A connection whose client has not spoken MQTT yet: what a layer tells the link about the time before that."""

    awaited: str
    """What the client has to do next, for the line in the log if it does not."""

    def turn_away(self, message: str) -> None:
        """End the connection: what the client did on the layer's side makes no sense. `message` continues from its
        address: "it does not speak TLS"."""


class Layer:
    """One connection's layer: what every kind passes through as it is. Each kind adds what becomes of bytes
    on their way up (`buffer_updated`) and down (`write`), and how it says goodbye."""

    __slots__ = ("_ended", "_half_closed", "_lower", "_open", "_started", "_upper")

    def __init__(self, upper: Receiver) -> None:
        self._upper = upper
        self._lower: Transport | None = None
        self._started = False
        """The client has sent something."""
        self._open = False
        """Its handshake is done."""
        self._ended = False
        """Nothing is handed up or sent any more."""
        self._half_closed = False
        """We have ended our direction, and the client may not have noticed yet."""

    # What the transport below calls.

    def get_buffer(self, size_hint: int) -> memoryview:
        # What arrives is copied out of it before it is lent again for what goes up.
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

    # What the receiver above calls.

    def close(self) -> None:
        """Say goodbye and close once everything is written."""
        if not self._ended:
            self._ended = True
            self._say_goodbye()
            if self._lower is not None:
                self._lower.close()

    def write_eof(self) -> None:
        """Say goodbye and end our direction once everything is written. What comes after that goes up as it is, to be
        counted and thrown away."""
        if not self._ended:
            self._ended = self._half_closed = True
            self._say_goodbye()
            if self._lower is not None:
                self._lower.write_eof()

    def _discards(self, count: int) -> bool:
        """Has what is in the buffer come too late? After the end of our direction the link wants to count it."""
        if self._half_closed:
            self._upper.buffer_updated(count)
        return self._ended

    def _say_goodbye(self) -> None:
        """Write the last bytes."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close now."""
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
