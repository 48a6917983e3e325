"""A client protocol with a transport and a broker that record the calls."""

import logging
from collections import Counter

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connect
from mqtt_front.errors import MalformedPacket
from mqtt_front.ingest.routing import Router
from mqtt_front.net.client_protocol import FRONT_BYTES, ClientProtocol
from mqtt_front.net.client_socket import Counts
from mqtt_front.net.poller import Poller
from mqtt_front.protocol.connection import Inbound
from mqtt_front.protocol.events import Event, Publishes
from mqtt_front.settings import MqttSettings
from tests.support.mqtt_clients import parse


class Transport:
    """A transport that keeps the written bytes."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True
        self.ended: str | None = None
        self.high: int | None = None
        self.is_reset = False

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        if self.is_reset:
            raise OSError(107, "Transport endpoint is not connected")
        self.ended = "half-closed"

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return self.ended is not None

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.1", 1234)


class Broker:
    """The broker as a protocol sees it: it records the calls."""

    def __init__(self) -> None:
        self.inbound = Inbound()
        self.settings = MqttSettings(server_reference="other:1883")
        self.counts = Counts()
        self.over: Counter[str] = Counter()
        self.memory = bytearray(FRONT_BYTES + 65_536)
        self.buffer = memoryview(self.memory)[FRONT_BYTES:]
        self.deadlines = self
        self.ingest = self
        self.unsent = self
        self.delivery = self
        self.poller: Poller | None = None
        self.now = 17
        self.events: list[object] = []
        self.told: list[str] = []
        self.router: Router | None = None

    def new_rates(self) -> None:
        """No limit."""

    def watch(self, link: ClientProtocol) -> None:
        self.told.append("watched")

    def arrived(self, link: ClientProtocol) -> None:
        self.told.append("arrived")

    def departed(self, link: ClientProtocol) -> None:
        self.told.append("departed")

    def closing(self, link: ClientProtocol, *, linger: bool) -> bool:
        self.told.append("closing")
        return linger

    def gone(
        self,
        link: ClientProtocol,
        how: str,
        level: int = logging.INFO,
        limit: str | None = None,
        reason: str = "connection_lost",
    ) -> None:
        self.told.append(f"gone: {how}")

    def stopped(self, link: ClientProtocol) -> None:
        self.told.append("stopped")

    def went_on(self, link: ClientProtocol) -> None:
        self.told.append("resumed")

    def resume(self, session: object) -> None:
        self.told.append("resume")

    def served(self, link: ClientProtocol) -> None:
        self.told.append("served")
        link.hold()

    def publish(self, link: ClientProtocol, run: Publishes) -> None:
        self.events.append(run)

    def handle(self, link: ClientProtocol, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, packets.Subscribe):
            raise MalformedPacket("not today")


class Linked:
    def __init__(self, level: int = 4) -> None:
        self.level = level
        self.broker, self.transport = Broker(), Transport()
        self.link = ClientProtocol(self.broker)  # type: ignore[arg-type]
        self.link.connection_made(self.transport)

    def receive(self, *sent: packets.Packet) -> None:
        data = b"".join(encode_packet(packet, self.level) for packet in sent)
        self.link.get_buffer(-1)[: len(data)] = data
        self.link.buffer_updated(len(data))

    def connected(self) -> "Linked":
        self.receive(Connect("c", self.level))
        self.link.client_id, self.link.connected = "c", True
        return self

    @property
    def written(self) -> list[packets.Packet]:
        return parse(self.transport.written, self.level)[0]
