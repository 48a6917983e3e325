"""Both ends of a stream adapter without a socket: the transport below and the protocol above, kept by the test."""

from typing import Any


class FakeTransport:
    """A socket's transport that keeps the written bytes."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.ended = ""
        self.reading = True
        self.high: int | None = None

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        taken = bytes(self.written)
        self.written.clear()
        return taken

    def write(self, data: bytes) -> None:
        assert self.ended in ("", "aborted"), "written after the end"
        self.written += data

    def write_eof(self) -> None:
        self.ended = self.ended or "half-closed"

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return bool(self.ended)

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 1234) if name == "peername" else default


class FakeLink:
    """The protocol above an adapter: keeps the received bytes and calls."""

    def __init__(self, buffer_bytes: int = 65_536) -> None:
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.transport: Any = None
        self.received = bytearray()
        self.told: list[str] = []
        self.awaited = "CONNECT"
        self.pause_after: int | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.receive(bytes(self.buffer[:count]))

    def receive(self, data: bytes) -> None:
        self.received += data
        if self.pause_after is not None and len(self.received) >= self.pause_after:
            self.pause_after = None
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append(f"lost: {error}")

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def turn_away(self, message: str) -> None:
        self.told.append(message)
        self.transport.close()


def feed(layer: Any, data: bytes, piece_bytes: int = 1 << 16) -> None:
    """Pass `data` to the adapter from below, in pieces."""
    for at in range(0, len(data), piece_bytes):
        piece = data[at : at + piece_bytes]
        layer.get_buffer(-1)[: len(piece)] = piece
        layer.buffer_updated(len(piece))
