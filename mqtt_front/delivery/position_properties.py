"""User properties of a delivery that state the position of its record: `log`, `partition` where a log has several,
`offset` and `timestamp`, after all others."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mqtt_front.codec.fields import text, varint
from mqtt_front.codec.frame import Form, Framed, Records, publish_size

_USER_PROPERTY = b"\x26"


class PositionProperties:
    """Encoded user properties of deliveries from one log."""

    __slots__ = ("_front",)

    def __init__(self, log: str, partition: int | None = None) -> None:
        """partition: of a log that has several."""
        of_partition = b"" if partition is None else _pair("partition", str(partition))
        self._front = _pair("log", log) + of_partition + _USER_PROPERTY + text("offset")

    def front(self, digit_count: int) -> bytes:
        """Bytes before an offset of the given number of digits."""
        return self._front + digit_count.to_bytes(2, "big")

    def time(self, timestamp_us: int) -> bytes:
        """Bytes after an offset."""
        time = b"%d" % timestamp_us
        return _TIMESTAMP + len(time).to_bytes(2, "big") + time

    def of(self, offset: int, timestamp_us: int, gap: int | None = None) -> bytes:
        """Return the properties of one record. gap: records before this offset are missing, by retention or by
        damage; the property `stream-gap` tells the client."""
        told = b"" if gap is None else _pair("stream-gap", str(gap))
        digits = b"%d" % offset
        return b"".join((told, self.front(len(digits)), digits, self.time(timestamp_us)))


def frame_placed(
    records: Records,
    timestamps_us: npt.NDArray[np.int64],
    forms: Mapping[int, Form | None],
    packet_ids: Sequence[int],
    qos0_from: int,
    size_limit: int,
    positions: PositionProperties,
) -> Framed:
    """Encode all of `records` as `codec.frame.frame_records` does, with the position of each after the properties of
    its form, whose block has no length prefix here. Every topic must be in `forms`."""
    parts: list[bytes] = []
    offsets: list[int] = []
    levels = bytearray()
    packet_count, end = 0, len(records.offsets)
    data = records.data
    fronts: dict[
        tuple[int, int, int, int, int], tuple[bytes, bytes] | None
    ] = {}  # those of messages of the same form are made once
    times: dict[int, bytes] = {}
    rows = zip(*(column.tolist() for column in records[1:]), timestamps_us.tolist(), strict=True)
    for place, (offset, topic_id, flags, start, length, timestamp_us) in enumerate(rows):
        form = forms[topic_id]
        if form is None:
            continue
        qos = min(flags >> 1 & 3, form.qos)
        if form.first_offset <= offset < qos0_from and qos == 0:
            continue
        digits = b"%d" % offset
        time = times.get(timestamp_us)
        if time is None:
            time = times[timestamp_us] = positions.time(timestamp_us)
        key = (topic_id, qos, flags & 1, length, len(digits) << 8 | len(time))
        if key not in fronts:
            fronts[key] = _front(form, key, size_limit, positions.front(len(digits)))
        front = fronts[key]
        if offset < form.first_offset or front is None or (qos and len(offsets) == len(packet_ids)):
            end = place
            break
        packet_id = b""
        if qos:
            packet_id = packet_ids[len(offsets)].to_bytes(2, "big")
            offsets.append(offset)
            levels.append(qos)
        parts += (front[0], packet_id, front[1], digits, time, data[start : start + length])
        packet_count += 1
    return Framed(b"".join(parts), end, packet_count, offsets, bytes(levels))


def _front(
    form: Form, key: tuple[int, int, int, int, int], size_limit: int, told: bytes
) -> tuple[bytes, bytes] | None:
    """Return the bytes before the packet id and after it, up to the digits of the offset; None if the packet would
    be too large."""
    _, qos, retain, length, sizes = key
    properties_length = len(form.block) + len(told) + (sizes >> 8) + (sizes & 0xFF)
    block = varint(properties_length) + form.block + told
    block_length = len(block) + (sizes >> 8) + (sizes & 0xFF)
    if publish_size(form.head, b"", block_length + length, qos > 0) > size_limit:
        return None
    remaining = len(form.head) + (2 if qos else 0) + block_length + length
    return bytes((0x30 | qos << 1 | (retain if form.retain else 0),)) + varint(remaining) + form.head, block


def _pair(name: str, value: str) -> bytes:
    return _USER_PROPERTY + text(name) + text(value)


_TIMESTAMP = _USER_PROPERTY + text("timestamp")
