"""A connection that publishes, without a connection."""

from mqtt_front.codec.packets import Packet, Puback
from mqtt_front.ingest.routing import Router
from mqtt_front.kernel import loops
from mqtt_front.protocol.connection import Connection, Inbound
from tests.support.mqtt_clients import parse


class Source(loops.PolledClient):
    """What `ingest` and `fair_share` take publishes from."""

    def __init__(self, level: int = 4, router: Router | None = None) -> None:
        """`router`: learns its topics."""
        self.level = level
        self.router = router
        self.exactly_once = False
        self.settlements: list[tuple[bytes, int]] = []
        self.lost: set[bytes] = set()
        """Answers to publishes at QoS 2 that could not be stored."""
        self.submitted_bytes = self.publish_count = self.gathered_count = self.refused_count = 0
        self.writes: list[list[Packet]] = []
        self.refusals: list[str] = []
        self._held = False
        self.portions: list[int] = []
        """Portions to read, in order."""
        self.connection = Connection(Inbound())
        self.connection.level = level

    def bring(self, topics: list[bytes]) -> bool:
        return self.router is not None and self.router.learn(topics, "source")

    def acknowledge(self, data: bytes, count: int) -> None:
        found, rest = parse(data, self.level)
        assert rest == b"" and len(found) == count
        self.writes.append(found)

    def settled(self, acknowledgements: bytes, reason: int) -> None:
        self.settlements.append((acknowledgements, reason))

    def has_received(self, acknowledgement: bytes) -> bool:
        return acknowledgement not in self.lost

    def refuse(self, message: str) -> None:
        self.refusals.append(message)

    def hold(self) -> None:
        assert not self._held
        self._held = True

    def release(self, portion: int) -> None:
        assert self._held
        self._held = False
        self.portions.append(portion)

    @property
    def acknowledged(self) -> list[int]:
        return [packet.packet_id for write in self.writes for packet in write if isinstance(packet, Puback)]

    def held(self) -> bool:
        return self._held
