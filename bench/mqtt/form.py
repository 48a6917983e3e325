"""Packets of one length as an array: what differs from message to message is a column, all else a template.

Each payload begins with who sent it, its number among what that one sent, and when it was to be sent. That is what
loss, duplicates, order and latency are told from, for a whole buffer at a time.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Packets = npt.NDArray[Any]
"""A structured array, one row a packet; its fields are those of `Form.dtype`."""

STAMP = struct.Struct("<IIq")
"""Sender, number, and nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share."""
_TIME = struct.Struct("<q")
_TIME_AT = STAMP.size - _TIME.size
_TAIL_BYTES = 4


@dataclass(frozen=True, slots=True)
class Form:
    """One packet as an example of all."""

    template: bytes
    stamp_at: int
    """Where the payload begins."""
    payload_bytes: int
    id_at: int | None = None
    """Where the packet id stands, if there is one."""
    topic_at: int | None = None
    """Where the changing digits of the topic stand, if it has some."""
    topic_digits: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError when a payload has no room for the stamp."""
        if self.payload_bytes < STAMP.size:
            raise ValueError(f"a payload needs {STAMP.size} bytes for counter and time")

    @property
    def size_bytes(self) -> int:
        return len(self.template)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The fields of `Packets`: start and tail are the same in all, and show that a stream is in step."""
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
        """Room for `count` packets, filled with the template."""
        return bytearray(self.template * count)

    def packets(self, data: bytearray | memoryview, count: int, start: int = 0) -> Packets:
        """The first `count` packets of `data` from byte `start` on, without copying."""
        return np.ndarray(count, self.dtype, data, start)

    def stamp_time(self, data: bytearray, row: int, sent_ns: int) -> None:
        """Fill in when one packet was sent: what a column of one would do, at a tenth of the time."""
        _TIME.pack_into(data, row * len(self.template) + self.stamp_at + _TIME_AT, sent_ns)


def filling(payload_bytes: int) -> bytes:
    """A payload before it is stamped: text that would compress, as telemetry does."""
    text = b'{"celsius": 21.5, "state": "running"}, '
    return (text * (payload_bytes // len(text) + 1))[:payload_bytes]
