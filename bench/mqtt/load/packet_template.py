"""Packets of one length as an array: fields that differ between messages are columns, the rest is a template.

Each payload begins with its sender, its number among the messages of that sender, and its due time. Loss, duplicates,
order and latency are computed from these, for a whole buffer at a time.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Packets = npt.NDArray[Any]
"""A structured array, one row a packet; its fields are those of `PacketTemplate.dtype`."""

STAMP = struct.Struct("<IIq")
"""Sender, number, and nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share."""
_TIME = struct.Struct("<q")
_TIME_AT = STAMP.size - _TIME.size
_TAIL_BYTES = 4


@dataclass(frozen=True, slots=True)
class PacketTemplate:
    """One packet as an example of all."""

    packet: bytes
    stamp_at: int
    """Position of the payload."""
    payload_bytes: int
    id_at: int | None = None
    """Position of the packet id, if there is one."""
    topic_at: int | None = None
    """Position of the changing digits of the topic, if there are some."""
    topic_digits: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError when a payload is too short for the stamp."""
        if self.payload_bytes < STAMP.size:
            raise ValueError(f"a payload needs {STAMP.size} bytes for sender, counter and time")

    @property
    def size_bytes(self) -> int:
        return len(self.packet)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the fields of `Packets`. Start and tail are the same in all packets, and show that a stream is in
        step."""
        fields: dict[str, tuple[str, int]] = {
            "start": ("<u2", 0),
            "sender": ("<u4", self.stamp_at),
            "number": ("<u4", self.stamp_at + 4),
            "sent": ("<i8", self.stamp_at + _TIME_AT),
        }
        if self.payload_bytes >= STAMP.size + _TAIL_BYTES:
            fields["tail"] = ("<u4", self.stamp_at + self.payload_bytes - _TAIL_BYTES)
        if self.id_at is not None:
            fields["id"] = (">u2", self.id_at)
        if self.topic_at is not None:
            fields["topic"] = (f"S{self.topic_digits}", self.topic_at)
        return np.dtype(
            {
                "names": list(fields),
                "formats": [kind for kind, _ in fields.values()],
                "offsets": [at for _, at in fields.values()],
                "itemsize": self.size_bytes,
            }
        )

    def buffer(self, count: int) -> bytearray:
        """Return a buffer for `count` packets, filled with the template."""
        return bytearray(self.packet * count)

    def packets(self, data: bytearray | memoryview, count: int, start: int = 0) -> Packets:
        """Return the first `count` packets of `data` from byte `start` on, without copying."""
        return np.ndarray(count, self.dtype, data, start)

    def stamp_time(self, data: bytearray, row: int, sent_ns: int) -> None:
        """Fill in the due time of one packet: like a column of one row, at a tenth of the time."""
        _TIME.pack_into(data, row * len(self.packet) + self.stamp_at + _TIME_AT, sent_ns)


def filling(payload_bytes: int) -> bytes:
    """Return a payload before it is stamped: text that can be compressed, like telemetry."""
    text = b'{"celsius": 21.5, "state": "running"}, '
    return (text * (payload_bytes // len(text) + 1))[:payload_bytes]
