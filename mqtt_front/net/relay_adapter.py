"""Stream adapter of a client that has arrived at another node of a cluster: bytes pass unchanged, and the client has
the address and certificate that it has there."""

from typing import Any

from mqtt_front.net.stream_adapter import Arrival, StreamAdapter
from timestone.fronts import Arrived


class RelayAdapter(StreamAdapter):
    """One relayed connection: a protocol for the transport of the link to the other node, a transport for `upper`."""

    __slots__ = ("_facts", "_keep")

    def __init__(self, upper: Arrival, client: Arrived) -> None:
        super().__init__(upper, upper)
        self._facts = {"peername": client.address, "certificate_name": client.certificate_user}
        self._keep = client.keep
        """What must not be collected before the end."""

    def connection_lost(self, error: Exception | None) -> None:
        self._keep = None  # the link to the other node, whose TLS refers to this adapter after its end
        super().connection_lost(error)

    def buffer_updated(self, count: int) -> None:
        if not self._discards(count):
            self._upper.buffer_updated(count)

    # Called by a layer of a door of this node, such as WebSocket.

    def receive(self, data: bytes) -> None:
        """Handle received bytes of MQTT."""
        if not self._ended:
            self._arrival.receive(data)

    def turn_away(self, message: str) -> None:
        """End the connection because of invalid data for the layer."""
        self._arrival.turn_away(message)

    # Called by the receiver above.

    def write(self, data: bytes) -> None:
        """Send. Dropped after the end."""
        if self._lower is not None and not self._ended:
            self._lower.write(data)

    def _say_goodbye(self) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._facts[name] if name in self._facts else super().get_extra_info(name, default)
