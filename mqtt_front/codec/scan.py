"""Inbound hot path: takes runs of PUBLISH packets, or of acknowledgements, from a receive buffer.

Contains the loop per message only: no validation of topics and properties (the caches check each distinct value
once), no state, no I/O. `scan_publishes` has a compiled twin in `_kernel.pyx`; `mqtt_front.kernel.loops` chooses."""

import struct
from array import array
from typing import NamedTuple

RUN_PACKETS = 32_768
"""Maximum packets of a run, so that the batch of one connection is bounded."""
RUN_TOPICS = 256
"""Maximum distinct topics of a run: bounds the cost of a lookup."""

# 1 for the first byte of a well-formed PUBLISH. QoS 3 and DUP at QoS 0 are left to `decode`,
# which refuses them with the right reason.
_PUBLISH_FIRST = bytes(first >> 4 == 3 and (first & 6) != 6 and (first & 14) != 8 for first in range(256))
_PUBACK, _PUBREC = b"\x40\x02", b"\x50\x02"


class PublishRun(NamedTuple):
    """Consecutive PUBLISH packets as columns. All bytes are copies, none refers to the receive buffer. Numbers are
    in native byte order."""

    first_bytes: bytes
    """Type, DUP, QoS and RETAIN of each packet."""
    topics: list[bytes]
    """Distinct topics in order of first occurrence: not validated, empty if an alias stands for the topic."""
    topic_numbers: bytes
    """Index of the topic of each packet in `topics`, u16."""
    data: bytes
    """Payloads, concatenated."""
    lengths: bytes
    """Length of each payload, u32."""
    acknowledgements: bytes
    """Acknowledgements to send when the run is stored: PUBACK for each packet at QoS 1, PUBREC for each at QoS 2,
    four bytes each, in order."""
    properties: dict[int, bytes]
    """Property blocks without their length, by index of the packet; only of packets that have one."""
    position: int
    """Position after the run."""


def scan_publishes(data: bytes, position: int, end: int, level: int, size_limit: int) -> PublishRun:
    """Take PUBLISH packets from `data[position:end]` until one is incomplete, too large or malformed, another packet
    type follows, or the run has its maximum length.

    size_limit: maximum bytes of one packet. A run that ends before its first packet is left to `decode`: that packet
    is not a PUBLISH, is incomplete, or is refused. Raises ValueError for a position outside `data`."""
    if not 0 <= position <= end <= len(data):
        raise ValueError(f"bytes {position} to {end} of {len(data)}")
    first_bytes = bytearray()
    topics: dict[bytes, int] = {}
    numbers: list[int] = []
    packet_ids: list[bytes] = []
    properties: dict[int, bytes] = {}
    payloads: list[bytes] = []
    wellformed, with_properties = _PUBLISH_FIRST, level == 5
    limit = end - 4  # the shortest PUBLISH has five bytes, so one comparison guards the first lookups
    while position < limit and len(payloads) < RUN_PACKETS:
        first = data[position]
        if not wellformed[first]:
            break
        body = position + 2
        remaining = data[position + 1]
        if remaining > 127:
            remaining, body = _long_length(data, position + 1, end)
        stop = body + remaining
        if stop > end or stop - position > size_limit or remaining < 3:
            break
        at = topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        if first & 6:
            at += 2
        length = 0
        if with_properties:
            length, at = _property_block(data, at, stop)
        if at > stop:
            break
        if first & 6 and not data[topic_end] and not data[topic_end + 1]:
            break  # packet id 0
        number = topics.setdefault(data[body + 2 : topic_end], len(topics))
        if number == RUN_TOPICS:
            topics.popitem()
            break
        if length:
            properties[len(payloads)] = data[at - length : at]
        if first & 6:
            packet_ids.append(data[topic_end : topic_end + 2])
        numbers.append(number)
        first_bytes.append(first)
        payloads.append(data[at:stop])
        position = stop
    answers = _acknowledgements(first_bytes, packet_ids)
    columns = array("H", numbers).tobytes(), b"".join(payloads), array("I", map(len, payloads)).tobytes()
    return PublishRun(bytes(first_bytes), list(topics), *columns, answers, properties, position)


def _property_block(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """Return the length of the property block whose own length is at `at`, and its end: beyond `stop` if invalid."""
    if at >= stop:
        return 0, stop + 1
    length = data[at]
    if length <= 127:
        return length, at + 1 + length
    length, at = _long_length(data, at, stop)
    return length, at + length


def _acknowledgements(first_bytes: bytearray, packet_ids: list[bytes]) -> bytes:
    if not packet_ids:
        return b""
    ids = iter(packet_ids)
    if any(first & 4 for first in set(first_bytes)):
        return b"".join((_PUBREC if first & 4 else _PUBACK) + next(ids) for first in first_bytes if first & 6)
    return _PUBACK + _PUBACK.join(packet_ids)


def _long_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a variable byte integer of more than one byte and the position after it; (a length beyond every end) if
    invalid."""
    value = data[at] & 0x7F
    for shift in (7, 14, 21):
        at += 1
        if at >= end:
            break
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, at + 1) if byte else (1 << 60, at)
    return 1 << 60, at


def scan_acknowledgements(data: bytes, position: int, end: int) -> tuple[list[int], int]:
    """Return the packet ids of the run of equal four-byte acknowledgements at `position`, and the position after the
    run.

    Such a packet is its first byte, the length 2 and a packet id: PUBACK, PUBREC, PUBREL or PUBCOMP without a
    reason. An id of zero ends the run. Works by slices, without a Python loop over packets."""
    whole = (end - position) // 4 * 4
    heads = data[position : position + whole : 4], data[position + 1 : position + whole : 4]
    same = min(_leading(heads[0], data[position]), _leading(heads[1], 2))
    found = list(struct.unpack_from(f">{2 * same}H", data, position)[1::2])
    if 0 in found:
        found = found[: found.index(0)]
    return found, position + len(found) * 4


def scan_pings(data: bytes, position: int, end: int) -> int:
    """Return the number of consecutive PINGREQs at `position`."""
    whole = (end - position) // 2 * 2
    stop = position + whole
    return min(_leading(data[position:stop:2], 0xC0), _leading(data[position + 1 : stop : 2], 0))


def _leading(column: bytes, value: int) -> int:
    """Return the number of bytes equal to `value` at the front of `column`."""
    return len(column) - len(column.lstrip(bytes((value,))))
