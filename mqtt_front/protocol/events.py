"""Events of a connection: rare packets as they are, publishes and acknowledgements as whole runs."""

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mqtt_front.codec.packets import Auth, Connect, Disconnect, PacketType, Subscribe, Unsubscribe

_QOS_2 = bytes((0x34, 0x35, 0x3C, 0x3D))


def has_qos_2(first_bytes: bytes) -> bool:
    """Return whether a publish with one of these first bytes is at QoS 2."""
    return len(first_bytes.translate(None, _QOS_2)) < len(first_bytes)


class Publishes(NamedTuple):
    """Consecutive publishes as columns, one entry each. Aliases are resolved; topics are not validated. Numbers are
    in native byte order."""

    first_bytes: bytes
    topics: list[bytes]
    """Distinct topics in order of first occurrence; each belongs to at least one publish."""
    topic_numbers: bytes
    """Index of the topic of each publish in `topics`, u16."""
    data: bytes
    """Bytes to store, concatenated: the header block and the payload of each publish."""
    lengths: bytes
    """Size of each, u32."""
    header_lengths: list[int] | int
    """0 if no publish of the run has a header block."""
    acknowledgements: bytes
    """Answer to each publish at QoS 1 or 2, in order, four bytes each."""
    size_bytes: int
    """Size on the wire."""

    @classmethod
    def of(cls, rows: "Iterable[PublishRow]", size_bytes: int = 0) -> "Publishes":
        """Return columns made from single publishes, as for rare ones."""
        rows = list(rows)
        topics = {topic: number for number, topic in enumerate(dict.fromkeys(row.topic for row in rows))}
        stored = [row.headers + row.payload for row in rows]
        header_lengths = [len(row.headers) for row in rows]
        return cls(
            bytes(row.first for row in rows),
            list(topics),
            array("H", [topics[row.topic] for row in rows]).tobytes(),
            b"".join(stored),
            array("I", map(len, stored)).tobytes(),
            header_lengths if any(header_lengths) else 0,
            b"".join(row.acknowledgement for row in rows),
            size_bytes,
        )

    def rows(self) -> "Iterator[PublishRow]":
        """Yield the publishes one by one."""
        at = answer = 0
        for number, (first, topic, length) in enumerate(
            zip(self.first_bytes, self.numbers(), array("I", self.lengths), strict=True)
        ):
            header_length = 0 if isinstance(self.header_lengths, int) else self.header_lengths[number]
            headers = self.data[at : at + header_length]
            payload = self.data[at + header_length : at + length]
            acknowledgement = b""
            if first & 6:
                acknowledgement = self.acknowledgements[answer : answer + 4]
                answer += 4
            yield PublishRow(first, self.topics[topic], headers, payload, acknowledgement)
            at += length

    def numbers(self) -> "array[int]":
        """Return `topic_numbers` as numbers."""
        return array("H", self.topic_numbers)

    def head(self, count: int) -> "Publishes":
        """Return the first `count` publishes."""
        first_bytes = self.first_bytes[:count]
        lengths = self.header_lengths
        numbers = self.topic_numbers[: 2 * count]
        # Topics are in order of first use, so those of the rest are at the end.
        topics = self.topics[: max(array("H", numbers), default=-1) + 1]
        return Publishes(
            first_bytes,
            topics,
            numbers,
            self.data[: sum(array("I", self.lengths)[:count])],
            self.lengths[: 4 * count],
            lengths if isinstance(lengths, int) else lengths[:count],
            self.acknowledgements[: 4 * sum(1 for first in first_bytes if first & 6)],
            self.size_bytes,
        )


class PublishRow(NamedTuple):
    """One publish of a run."""

    first: int
    topic: bytes
    headers: bytes
    """Header block to store before the payload; empty for none."""
    payload: bytes
    acknowledgement: bytes
    """Empty at QoS 0."""


class Acknowledgements(NamedTuple):
    """Consecutive acknowledgements of one kind, without and with failure."""

    kind: PacketType
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""
    packet_ids: list[int]
    reason: int = 0


class Pings(NamedTuple):
    """Consecutive PINGREQs, each of which gets an answer."""

    ping_count: int


def packet_count(event: "Event") -> int:
    """Return the number of packets in an event."""
    if isinstance(event, Acknowledgements):
        return len(event.packet_ids)
    if isinstance(event, Publishes):
        return len(event.first_bytes)
    return event.ping_count if isinstance(event, Pings) else 1


Event = Connect | Publishes | Acknowledgements | Subscribe | Unsubscribe | Pings | Disconnect | Auth
