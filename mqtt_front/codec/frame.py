"""The outbound hot path: deliveries and acknowledgements as one buffer for many. Pure functions, as in
`scan`."""

from collections.abc import Sequence

from mqtt_front.codec.fields import varint

Buffer = bytes | memoryview


def frame_publishes(
    first_bytes: Sequence[int],
    heads: Sequence[bytes],
    packet_ids: Sequence[int],
    properties: Sequence[bytes] | None,
    payloads: Sequence[Buffer],
) -> bytes:
    """PUBLISH packets back to back, one for each payload.

    `heads` are topic names behind their two-byte lengths; `packet_ids` has 0 for each packet at QoS 0;
    `properties` are property blocks with their length, or None for clients before MQTT 5. The caller has
    checked sizes and ids.
    """
    parts: list[Buffer] = []
    fronts: dict[
        tuple[int, int, bytes], bytes
    ] = {}  # the fixed header and topic of like messages are made once
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
    """Bytes of the whole packet that `frame_publishes` makes of one delivery; what Maximum Packet Size is
    about."""
    remaining = len(head) + len(block) + payload_size + (2 if with_id else 0)
    return 1 + (1 if remaining < 128 else len(varint(remaining))) + remaining


def frame_acknowledgements(first: int, packet_ids: Sequence[bytes], reason: int = 0) -> bytes:
    """PUBACKs (or PUBRECs, …) back to back for two-byte packet ids, by one join.

    A reason other than 0 makes the MQTT 5 form; the caller does not ask for it on older connections.
    """
    if not packet_ids:
        return b""
    if reason == 0:
        head = bytes((first, 2))
        return head + head.join(packet_ids)
    head, tail = bytes((first, 3)), bytes((reason,))
    return head + (tail + head).join(packet_ids) + tail
