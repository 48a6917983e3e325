"""What a connection tells its owner: rare packets as they are, publishes and acknowledgements as whole
runs."""

from typing import NamedTuple

from mqtt_front.codec.packets import Auth, Connect, Disconnect, PacketType, Pingreq, Subscribe, Unsubscribe


class Publishes(NamedTuple):
    """Consecutive publishes as columns, one entry each. Aliases are resolved; topics are not validated
    yet."""

    first_bytes: bytes | bytearray
    topics: list[bytes]
    payloads: list[bytes]
    """What is to be stored: header block, then payload."""
    header_lengths: list[int] | int
    """0 when no publish of the run has a header block."""
    packet_ids: list[bytes]
    """Two bytes for each publish at QoS 1 or 2, in order; none for those at QoS 0."""
    size_bytes: int
    """What they took on the wire."""

    def head(self, count: int) -> "Publishes":
        """The first `count` of them."""
        first_bytes = self.first_bytes[:count]
        lengths = self.header_lengths
        return Publishes(
            first_bytes,
            self.topics[:count],
            self.payloads[:count],
            lengths if isinstance(lengths, int) else lengths[:count],
            self.packet_ids[: sum(1 for first in first_bytes if first & 6)],
            self.size_bytes,
        )


class Acknowledgements(NamedTuple):
    """Consecutive acknowledgements of one kind, without and with failure."""

    kind: PacketType
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""
    packet_ids: list[int]
    reason: int = 0


Event = Connect | Publishes | Acknowledgements | Subscribe | Unsubscribe | Pingreq | Disconnect | Auth
