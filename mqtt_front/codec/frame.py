"""Outbound hot path: encodes many deliveries or acknowledgements into one buffer. Pure functions, as in `scan`;
`frame_records` has a compiled twin in `_kernel.pyx`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mqtt_front.codec.fields import VARINT_MAX, varint

Buffer = bytes | memoryview


class Records(NamedTuple):
    """Columns of plain records, without header blocks, of a batch read from a log."""

    data: bytes
    offsets: npt.NDArray[np.int64]
    topic_ids: npt.NDArray[np.uint32]
    flags: npt.NDArray[np.uint16]
    """RETAIN and QoS of each publish, at their bit positions in the first byte of a PUBLISH."""
    starts: npt.NDArray[np.int64]
    """Position of each record in `data`."""
    lengths: npt.NDArray[np.uint32]


class Form(NamedTuple):
    """Encoding of plain records of one topic for one client."""

    head: bytes
    """Topic name with its length prefix."""
    block: bytes
    """Property block with its length; empty before MQTT 5."""
    qos: int
    """Maximum QoS granted."""
    retain: bool
    """Whether RETAIN is sent as published; otherwise it is 0."""
    first_offset: int
    """Records below this offset are encoded in another way."""


class Framed(NamedTuple):
    """Encoded packets of a run of records."""

    data: bytes
    end: int
    """Index of the first record that was not encoded."""
    packet_count: int
    """Number of packets in `data`."""
    offsets: list[int]
    """Offsets of the packets with a packet id, in order."""
    qos: bytes
    """QoS of the same packets."""


def frame_records(
    records: Records,
    forms: Mapping[int, Form | None],
    packet_ids: Sequence[int],
    qos0_from: int,
    size_limit: int,
) -> Framed:
    """Encode PUBLISH packets for records.

    forms: by topic id; None for a topic that is not delivered. packet_ids: assigned in order to packets at QoS 1 and 2.
    qos0_from: deliveries at QoS 0 below this offset are left out. size_limit: maximum bytes of one packet.

    Stops before a record whose topic is missing in `forms`, that lies below the first offset of its form, whose
    packet would be too large, or for which no packet id is left; the caller handles it. Raises ValueError for a
    record outside `data` or for columns of unequal length."""
    data, end = records.data, _count(records)
    parts: list[bytes] = []
    offsets: list[int] = []
    levels = bytearray()
    packet_count = 0
    fronts: dict[
        tuple[int, int, int, int], bytes | None
    ] = {}  # those of messages of the same form are made once
    rows = zip(*(column.tolist() for column in records[1:]), strict=True)
    for place, (offset, topic_id, flags, start, length) in enumerate(rows):
        form = forms.get(topic_id, _UNKNOWN)
        if form is None:
            continue
        qos = min(flags >> 1 & 3, form.qos)
        if form.first_offset <= offset < qos0_from and qos == 0:
            continue
        key = (topic_id, qos, flags & 1, length)
        if key not in fronts:
            fronts[key] = _front(form, qos, flags & 1, length, size_limit)
        front = fronts[key]
        if offset < form.first_offset or front is None or (qos and len(offsets) == len(packet_ids)):
            end = place
            break
        if start < 0 or start + length > len(data):
            raise ValueError(f"{length} bytes at {start} of {len(data)}")
        packet_id = b""
        if qos:
            packet_id = packet_ids[len(offsets)].to_bytes(2, "big")
            offsets.append(offset)
            levels.append(qos)
        parts += (front, packet_id, form.block, data[start : start + length])
        packet_count += 1
    return Framed(b"".join(parts), end, packet_count, offsets, bytes(levels))


def with_duplicate_flag(data: bytes) -> bytes:
    """PUBLISH packets back to back, with DUP in those at QoS 1."""
    packets, at = bytearray(data), 0
    while at < len(packets):
        if packets[at] & 6 == 2:
            packets[at] |= 8
        length, shift = 0, 0
        while True:
            at += 1
            length |= (packets[at] & 0x7F) << shift
            if packets[at] < 0x80:
                break
            shift += 7
        at += 1 + length
    return bytes(packets)


_UNKNOWN = Form(b"", b"", 0, False, 1 << 62)
"""Form of an unknown topic: no record is at or above its first offset."""


def _count(records: Records) -> int:
    counts = {len(column) for column in records[1:]}
    if len(counts) > 1:
        raise ValueError(f"columns of {sorted(counts)} records")
    return counts.pop()


def _front(form: Form, qos: int, retain: int, length: int, size_limit: int) -> bytes | None:
    """Return fixed header and topic; None if the packet would be too large."""
    remaining = len(form.head) + (2 if qos else 0) + len(form.block) + length
    if not 0 <= form.qos <= 2:
        raise ValueError(f"no form: {form}")
    if remaining > VARINT_MAX:
        return None
    fixed = bytes((0x30 | qos << 1 | (retain if form.retain else 0),)) + varint(remaining)
    return fixed + form.head if len(fixed) + remaining <= size_limit else None


def frame_publishes(
    first_bytes: Sequence[int],
    heads: Sequence[bytes],
    packet_ids: Sequence[int],
    properties: Sequence[bytes] | None,
    payloads: Sequence[Buffer],
) -> bytes:
    """Encode one PUBLISH packet for each payload.

    heads: topic names with two-byte length prefix. packet_ids: 0 for packets at QoS 0. properties: property blocks
    with their length; None before MQTT 5. The caller has checked sizes and ids."""
    parts: list[Buffer] = []
    fronts: dict[
        tuple[int, int, bytes], bytes
    ] = {}  # fixed header and topic of messages of the same form are made once
    for number, payload in enumerate(payloads):
        first, head, packet_id = first_bytes[number], heads[number], packet_ids[number]
        block = properties[number] if properties is not None else b""
        size = len(block) + len(payload)
        key = (first, size, head)
        front = fronts.get(key)
        if front is None:
            front = fronts[key] = bytes((first,)) + varint(len(head) + (2 if packet_id else 0) + size) + head
        if packet_id:
            parts += (front, packet_id.to_bytes(2, "big"), block, payload)
        else:
            parts += (front, block, payload)
    return b"".join(parts)


def publish_size(head: bytes, block: bytes, payload_size: int, with_id: bool) -> int:
    """Return the size of the packet that `frame_publishes` makes of one delivery, as limited by Maximum Packet Size."""
    remaining = len(head) + len(block) + payload_size + (2 if with_id else 0)
    return 1 + (1 if remaining < 128 else len(varint(remaining))) + remaining


def frame_acknowledgements(first: int, packet_ids: Sequence[bytes], reason: int = 0) -> bytes:
    """Encode PUBACKs (or PUBRECs, …) for two-byte packet ids in one join. A reason other than 0 gives the MQTT 5
    form, which the caller does not request before MQTT 5."""
    if not packet_ids:
        return b""
    if reason == 0:
        head = bytes((first, 2))
        return head + head.join(packet_ids)
    head, tail = bytes((first, 3)), bytes((reason,))
    return head + (tail + head).join(packet_ids) + tail


def with_reason(acknowledgements: bytes, reason: int) -> bytes:
    """Convert PUBACKs and PUBRECs of four bytes to their MQTT 5 form with a reason."""
    tail = bytes((reason,))
    return b"".join(
        acknowledgements[at : at + 1] + b"\x03" + acknowledgements[at + 2 : at + 4] + tail
        for at in range(0, len(acknowledgements), 4)
    )
