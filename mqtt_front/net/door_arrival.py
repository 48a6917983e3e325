"""Client at a door of a node of a cluster, above an adapter such as that of WebSocket, until its front or another node
has it."""

from collections.abc import Callable
from typing import Any, Protocol

from mqtt_front.runtime.loop import Transport

BUFFER_BYTES = 64 * 1024


class DoorClient(Protocol):
    """Protocol of asyncio above it."""

    def connection_made(self, transport: Any) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, error: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class DoorArrival:
    """Receiver of one connection that passes what an adapter decodes to a protocol of asyncio."""

    __slots__ = ("_buffer", "_client", "_refused", "_transport", "awaited")

    def __init__(
        self, client: DoorClient, buffer: memoryview, refused: Callable[[object, str], None]
    ) -> None:
        """buffer: for received bytes, which are copied at once; several may share it. refused: called with the address
        of a client and the reason."""
        self._client, self._buffer, self._refused = client, buffer, refused
        self._transport: Transport | None = None
        self.awaited = ""

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        self._client.connection_made(transport)

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """Discard what comes after the end."""

    def receive(self, data: bytes) -> None:
        self._client.data_received(data)

    def turn_away(self, message: str) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._refused(self._transport.get_extra_info("peername"), message)
            self._transport.close()

    def eof_received(self) -> bool:
        return bool(self._client.eof_received())

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._client.connection_lost(error)

    def pause_writing(self) -> None:
        self._client.pause_writing()

    def resume_writing(self) -> None:
        self._client.resume_writing()
