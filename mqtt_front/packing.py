"""A run of records as the PUBLISH packets that one session gets of it.

This is where a record meets a subscription: which QoS, which properties, whether at all. No I/O; the result
is one buffer.
"""

from typing import NamedTuple

from mqtt_front.codec.fields import varint
from mqtt_front.codec.frame import frame_publishes, publish_size
from mqtt_front.feed import Feed
from mqtt_front.headers import NO_HEADERS, StoredHeaders, stored_headers
from mqtt_front.session import InFlight, Target
from mqtt_front.subscription import Grant
from timestone.batch import Batch
from timestone.record import FLAG_RETAIN

_EXPIRY = b"\x02"
_EMPTY_BLOCK = b"\0"


class Packed(NamedTuple):
    """What became of a run of records."""

    data: bytes
    delivered_count: int
    oversize_count: int
    """Records that are too large for this client: they count as delivered."""
    expired_count: int


class _Rows:
    """Deliveries as columns, as they gather."""

    __slots__ = (
        "blocks",
        "expired_count",
        "firsts",
        "heads",
        "new",
        "oversize_count",
        "packet_ids",
        "payloads",
    )

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.heads: list[bytes] = []
        self.packet_ids: list[int] = []
        self.blocks: list[bytes] = []
        self.payloads: list[bytes] = []
        self.new: list[tuple[int, int, int]] = []
        """Row, offset and QoS of each delivery that needs a packet id."""
        self.oversize_count = 0
        self.expired_count = 0


def pack(feed: Feed, batch: Batch, target: Target, now_us: int) -> Packed:
    """The packets for the records of `batch`, and the feed's window and the session's packet ids moved on.

    The caller has seen to it that the batch has no more records than there is room for in flight.
    """
    rows = _Rows()
    _gather(feed, batch, target, now_us, rows)
    session, window = feed.session, feed.window
    if rows.new:
        ids = session.packet_ids.take(len(rows.new), session.in_flight)
        for packet_id, (row, offset, qos) in zip(ids, rows.new, strict=True):
            rows.packet_ids[row] = packet_id
            session.in_flight[packet_id] = InFlight(feed, offset, qos)
        window.sent([offset for _, offset, _ in rows.new])
        session.outstanding += len(ids)
    window.seen = max(window.seen, batch.next_offset)
    data = frame_publishes(
        rows.firsts, rows.heads, rows.packet_ids, rows.blocks if target.level == 5 else None, rows.payloads
    )
    return Packed(data, len(rows.payloads), rows.oversize_count, rows.expired_count)


def _gather(feed: Feed, batch: Batch, target: Target, now_us: int, rows: _Rows) -> None:
    grants, heads, client_id = feed.grant, feed.head, feed.session.client_id
    replay_until = feed.window.seen if feed.replaying else 0
    header_lengths = None if batch.plain else batch.header_lengths.tolist()
    timestamps = None if header_lengths is None else batch.timestamps_us.tolist()
    columns = zip(
        batch.offsets.tolist(), batch.topic_ids.tolist(), batch.flags.tolist(), batch.payloads(), strict=True
    )
    for number, (offset, topic_id, flags, payload) in enumerate(columns):
        stored, age_us = NO_HEADERS, 0
        if header_lengths is not None and timestamps is not None and header_lengths[number]:
            stored = stored_headers(batch.header_block(number))
            age_us = now_us - timestamps[number]
        grant = grants(topic_id)
        if grant is not None and offset < grant.plain_from:
            grant = grant.at(offset, stored.publisher == client_id)
        if offset < replay_until:
            _resend(feed, offset, heads(topic_id), grant, flags, stored, age_us, payload, target, rows)
            continue
        if grant is None:
            continue
        qos = min(flags >> 1 & 3, grant.qos)
        if qos == 0 and offset < feed.qos0_from:
            continue
        first = 0x30 | qos << 1 | (flags & FLAG_RETAIN if grant.retain_as_published else 0)
        block = grant.block
        if stored is not NO_HEADERS:
            if stored.expiry_s is not None and age_us >= stored.expiry_s * 1_000_000:
                rows.expired_count += 1
                continue
            block = _block(stored, age_us, grant.identifiers)
        head = heads(topic_id)
        if (
            len(payload) + len(head) + len(block) + 8 > target.packet_bytes
            and publish_size(head, block if target.level == 5 else b"", len(payload), qos > 0)
            > target.packet_bytes
        ):
            rows.oversize_count += 1
            continue
        if qos:
            rows.new.append((len(rows.payloads), offset, qos))
        rows.firsts.append(first)
        rows.heads.append(head)
        rows.packet_ids.append(0)
        rows.blocks.append(block)
        rows.payloads.append(payload)


def _resend(
    feed: Feed,
    offset: int,
    head: bytes,
    grant: Grant | None,
    flags: int,
    stored: StoredHeaders,
    age_us: int,
    payload: bytes,
    target: Target,
    rows: _Rows,
) -> None:
    """One record that was in flight when the connection ended: the same packet id and DUP. Its subscription
    may be gone; it may be past its expiry, which does not count for what was sent before [MQTT-4.3.3-7]."""
    entry = feed.resend.pop(offset, None)
    if entry is None:
        return
    packet_id, qos = entry
    retain = flags & FLAG_RETAIN if grant is not None and grant.retain_as_published else 0
    rows.firsts.append(0x38 | qos << 1 | retain)
    rows.heads.append(head)
    rows.packet_ids.append(packet_id)
    rows.blocks.append(_block(stored, age_us, grant.identifiers if grant is not None else b""))
    rows.payloads.append(payload)
    feed.session.outstanding += 1


def _block(stored: StoredHeaders, age_us: int, identifiers: bytes) -> bytes:
    """The property block of a delivery, with its length."""
    if stored is NO_HEADERS:
        return varint(len(identifiers)) + identifiers if identifiers else _EMPTY_BLOCK
    block = stored.properties + identifiers
    if stored.expiry_s is not None:
        left = max(0, stored.expiry_s - age_us // 1_000_000)
        block += _EXPIRY + left.to_bytes(4, "big")
    return varint(len(block)) + block
