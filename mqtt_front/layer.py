"""What may stand between a socket and a link: TLS, WebSocket, or both. A layer is a protocol to what is below it and a
transport to what is above it, both in asyncio's words, and does no I/O itself."""

from typing import Protocol

from mqtt_front.loop import Transport


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
        """End the connection: what the client did on the layer's side makes no sense. `message` goes on from its
        address: "it does not speak TLS"."""
