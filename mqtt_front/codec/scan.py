"""The inbound hot path: runs of PUBLISH packets, and of acknowledgements, taken from a receive buffer at
once.

What belongs here is the per-message loop and nothing else: no validation of topics or properties (they are
checked once per distinct value, by those who cache them), no state, no I/O. The pure functions of this module
are the ones that a native twin replaces.
"""

import struct
from typing import NamedTuple

# 1 for the first bytes that a well-formed PUBLISH may have: QoS 3 and DUP at QoS 0 are left to `decode`,
# which refuses them with the right reason.
_PUBLISH_FIRST = bytes(first >> 4 == 3 and (first & 6) != 6 and (first & 14) != 8 for first in range(256))


class PublishRun(NamedTuple):
    """Consecutive PUBLISH packets as columns. All bytes are copies; none refers to the receive buffer."""

    first_bytes: bytearray
    """Of each packet: type, DUP, QoS, RETAIN."""
    topics: list[bytes]
    """As they came: not checked, empty where an alias stands for the topic."""
    packet_ids: list[bytes]
    """Two bytes for each packet at QoS 1 or 2, in order; packets at QoS 0 have no entry."""
    properties: dict[int, bytes]
    """The property block of each packet that has one, without its length, by the packet's place in the
    run."""
    payloads: list[bytes]
    position: int
    """The first byte behind the run."""


def scan_publishes(data: bytes, position: int, end: int, level: int, size_limit: int) -> PublishRun:
    """Take PUBLISH packets from `data[position:end]` until one is incomplete, too large or not well-formed,
    or another packet stands there. `size_limit` is the most bytes of one packet.

    Whatever stops the scan is for `decode` to judge: every complete packet that stops it is either no PUBLISH
    or one that `decode` refuses. Costs about 0.4 µs a message on the machine of docs/benchmarks.md; the bound
    methods and the nesting are what keep it there.
    """
    first_bytes = bytearray()
    topics: list[bytes] = []
    packet_ids: list[bytes] = []
    properties: dict[int, bytes] = {}
    payloads: list[bytes] = []
    add_first, add_topic, add_id, add_payload = (
        first_bytes.append,
        topics.append,
        packet_ids.append,
        payloads.append,
    )
    wellformed, with_properties = _PUBLISH_FIRST, level == 5
    limit = end - 4  # the shortest PUBLISH has five bytes, so one comparison guards the first lookups
    while position < limit:
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
        at = body + 2 + (data[body] << 8 | data[body + 1])
        topic_end = at
        if first & 6:
            at += 2
        if with_properties:
            if at >= stop:
                break
            length = data[at]
            at += 1
            if length:
                if length > 127:
                    length, at = _long_length(data, at - 1, stop)
                at += length
                if at > stop:
                    break
                properties[len(payloads)] = data[at - length : at]
        elif at > stop:
            break
        if first & 6:
            packet_id = data[topic_end : topic_end + 2]
            if packet_id == b"\0\0":
                break
            add_id(packet_id)
        add_topic(data[body + 2 : topic_end])
        add_first(first)
        add_payload(data[at:stop])
        position = stop
    properties.pop(len(payloads), None)  # of a packet that turned out to be bad
    return PublishRun(first_bytes, topics, packet_ids, properties, payloads, position)


def _long_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A variable byte integer of more than one byte and the place behind it; (a length past every end) if it
    is bad."""
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
    """Packet ids of the run of equal four-byte acknowledgements at `position`, and the place behind the run.

    Such a packet is its first byte, the length 2 and a packet id: PUBACK, PUBREC, PUBREL or PUBCOMP without a
    reason. Ids of zero stop the run. Work per packet is done by slices, none of it in Python.
    """
    whole = (end - position) // 4 * 4
    heads = data[position : position + whole : 4], data[position + 1 : position + whole : 4]
    same = min(_leading(heads[0], data[position]), _leading(heads[1], 2))
    found = list(struct.unpack_from(f">{2 * same}H", data, position)[1::2])
    if 0 in found:
        found = found[: found.index(0)]
    return found, position + len(found) * 4


def _leading(column: bytes, value: int) -> int:
    """How many bytes at the front of `column` are `value`."""
    return len(column) - len(column.lstrip(bytes((value,))))
