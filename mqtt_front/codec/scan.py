"""The inbound hot path: runs of PUBLISH packets, and of acknowledgements, taken from a receive buffer at
once.

What belongs here is the per-message loop and nothing else: no validation of topics or properties (they are
checked once per distinct value, by those who cache them), no state, no I/O. `scan_publishes` has a compiled
twin in `_kernel.pyx`; `mqtt_front.kernel.loops` chooses.
"""

import struct
from array import array
from typing import NamedTuple

RUN_PACKETS = 32_768
"""The most packets of a run, so that one connection's run is no unbounded batch."""
RUN_TOPICS = 256
"""The most different topics of a run: keeps looking one up cheap, whatever a client sends to make it dear."""

# 1 for the first bytes that a well-formed PUBLISH may have: QoS 3 and DUP at QoS 0 are left to `decode`,
# which refuses them with the right reason.
_PUBLISH_FIRST = bytes(first >> 4 == 3 and (first & 6) != 6 and (first & 14) != 8 for first in range(256))
_PUBACK, _PUBREC = b"\x40\x02", b"\x50\x02"


class PublishRun(NamedTuple):
    """Consecutive PUBLISH packets as columns. All bytes are copies; none refers to the receive buffer.
    Numbers in columns are as this machine has them."""

    first_bytes: bytes
    """Of each packet: type, DUP, QoS, RETAIN."""
    topics: list[bytes]
    """The different topics in the order in which they first come: not checked, empty where an alias stands
    for one."""
    topic_numbers: bytes
    """Of each packet: the place of its topic in `topics`, u16."""
    data: bytes
    """The payloads, back to back."""
    lengths: bytes
    """Of each payload, u32."""
    acknowledgements: bytes
    """What to answer once the run is stored: PUBACK for each packet at QoS 1, PUBREC for each at QoS 2, four
    bytes each, in order."""
    properties: dict[int, bytes]
    """The property block of each packet that has one, without its length, by the packet's place in the
    run."""
    position: int
    """The first byte behind the run."""


def scan_publishes(data: bytes, position: int, end: int, level: int, size_limit: int) -> PublishRun:
    """Take PUBLISH packets from `data[position:end]` until one is incomplete, too large or not well-formed,
    another packet stands there, or the run is as long as runs get. `size_limit` is the most bytes of one
    packet.

    Whatever stops a run before its first packet is for `decode` to judge: it is either no PUBLISH, or not
    complete, or one that `decode` refuses. Costs about 0.5 µs a message on the machine of docs/performance.md;
    the bound methods and the nesting are what keep it there. Raises ValueError when the place is not in `data`.
    """
    if not 0 <= position <= end <= len(data):
        raise ValueError(f"bytes {position} to {end} of {len(data)}")
    first_bytes = bytearray()
    topics: dict[bytes, int] = {}
    numbers: list[int] = []
    packet_ids: list[bytes] = []
    properties: dict[int, bytes] = {}
    payloads: list[bytes] = []
    add_first, add_number, add_payload = first_bytes.append, numbers.append, payloads.append
    wellformed, with_properties, number_of = _PUBLISH_FIRST, level == 5, topics.get
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
        at = topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        if first & 6:
            at += 2
        length = 0
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
        elif at > stop:
            break
        if first & 6 and not data[topic_end] and not data[topic_end + 1]:
            break  # packet id 0
        topic = data[body + 2 : topic_end]
        number = number_of(topic)
        if number is None:
            number = len(topics)
            if number == RUN_TOPICS:
                break
            topics[topic] = number
        if length:
            properties[len(payloads)] = data[at - length : at]
        if first & 6:
            packet_ids.append(data[topic_end : topic_end + 2])
        add_number(number)
        add_first(first)
        add_payload(data[at:stop])
        position = stop
        if len(payloads) == RUN_PACKETS:
            break
    return PublishRun(
        bytes(first_bytes),
        list(topics),
        array("H", numbers).tobytes(),
        b"".join(payloads),
        array("I", map(len, payloads)).tobytes(),
        _acknowledgements(first_bytes, packet_ids),
        properties,
        position,
    )


def _acknowledgements(first_bytes: bytearray, packet_ids: list[bytes]) -> bytes:
    if not packet_ids:
        return b""
    ids = iter(packet_ids)
    if any(first & 4 for first in set(first_bytes)):
        return b"".join((_PUBREC if first & 4 else _PUBACK) + next(ids) for first in first_bytes if first & 6)
    return _PUBACK + _PUBACK.join(packet_ids)


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


def scan_pings(data: bytes, position: int, end: int) -> int:
    """How many PINGREQs stand at `position`, one behind the other."""
    whole = (end - position) // 2 * 2
    stop = position + whole
    return min(_leading(data[position:stop:2], 0xC0), _leading(data[position + 1 : stop : 2], 0))


def _leading(column: bytes, value: int) -> int:
    """How many bytes at the front of `column` are `value`."""
    return len(column) - len(column.lstrip(bytes((value,))))
