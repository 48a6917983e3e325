"""Encoding of a run of records as PUBLISH packets for one session: QoS, properties, and records to leave out. No
I/O; the result is one buffer."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mqtt_front.codec.fields import varint
from mqtt_front.codec.frame import Form, Records, frame_publishes, publish_size, with_duplicate_flag
from mqtt_front.codec.packets import MQTT_5
from mqtt_front.delivery.position_properties import PositionProperties, frame_placed
from mqtt_front.feeds.feed import Feed
from mqtt_front.feeds.shared_reads import PacketsKey, SharedBatch
from mqtt_front.feeds.subscription import Grant
from mqtt_front.kernel.loops import frame_records
from mqtt_front.protocol.header_block import NO_HEADERS, StoredHeaders, stored_headers
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.sessions.session import InFlight, Target
from timestone.reading.batch import Batch
from timestone.record import FLAG_RETAIN

_FEW_TOPICS = 8
"""A batch of more topics is framed faster than it is determined whether others have the same packets."""
_EXPIRY = b"\x02"
_MICROSECONDS = 1_000_000


class Packed(NamedTuple):
    """Result of packing a run of records."""

    data: bytes
    delivered_count: int
    oversize_count: int
    """Number of records that are too large for the client. They count as delivered."""
    expired_count: int
    exactly_once: bool = False
    """Whether a record is sent at QoS 2: the session must be durable first, or a crash would send it again under
    another packet id."""


def pack(
    feed: Feed, batch: Batch, target: Target, time: PassingTime, shared: SharedBatch | None = None
) -> Packed:
    """Encode the records of `batch`, and advance the window of the feed and the packet ids of the session.

    The caller has limited the batch to the room in the window. shared: the last one that several feeds may read."""
    key, known = None, dict[PacketsKey, Packed]()
    if shared is not None and shared.batch is batch:
        key, known = _shared_key(feed, shared, target), shared.packets
    packed = known.get(key) if key is not None else None
    if packed is None:
        packed = _pack_own(feed, batch, target, time)
        if key and batch.plain and packed.delivered_count == len(batch) and not packed.oversize_count:
            known[key] = packed
    feed.window.seen = max(feed.window.seen, batch.next_offset)
    return packed


def _shared_key(feed: Feed, shared: SharedBatch, target: Target) -> PacketsKey | None:
    """Return what decides on the packets of a batch, if they are the same for all feeds with such a key: of plain
    records at QoS 0, of a few topics, without aliases."""
    if (
        not 0 < len(shared.topic_ids) <= _FEW_TOPICS
        or target.aliases is not None
        or feed.gap is not None
        or feed.replaying
        or (feed.tells_place and target.level == MQTT_5)
    ):
        return None
    first = int(shared.batch.offsets[0])
    forms = []
    for topic_id in shared.topic_ids:
        form = feed.forms.get(topic_id)
        if form is None or form.qos or first < max(form.first_offset, feed.qos0_from):
            return None
        forms.append((topic_id, form.head, form.block, form.retain))
    return target.packet_bytes, tuple(forms)


def _pack_own(feed: Feed, batch: Batch, target: Target, time: PassingTime) -> Packed:
    """As `pack`, for one feed."""
    replay_until = feed.window.seen if feed.replaying else 0
    if not feed.sent_below or not len(batch) or batch.offsets[0] >= feed.sent_below:
        return _pack(feed, batch, target, time, replay_until)
    below = batch.offsets < feed.sent_below
    packed = _pack(feed, batch.select(below), target, time, replay_until)
    packed = packed._replace(data=with_duplicate_flag(packed.data))
    if not below.all():
        packed = _joined(packed, _pack(feed, batch.select(~below), target, time, replay_until))
    return packed


def _naming_count(feed: Feed, batch: Batch, target: Target) -> int:
    """Return the number of records at the front that introduce a topic alias, each for another topic. The records
    after them can be sent by alias."""
    named: set[int] = set()
    if target.aliases is not None and not target.aliases.settled:
        topic_ids, counts = np.unique(batch.topic_ids, return_counts=True)
        columns = zip(topic_ids.tolist(), counts.tolist(), strict=True)
        _forget_forms(feed, [one for one, count in columns if target.aliases.expect(feed.head(one), count)])
        for topic_id in batch.topic_ids.tolist():
            if topic_id in named or not target.aliases.tells(feed.head(topic_id)):
                break
            named.add(topic_id)
    return len(named)


def _joined(one: Packed, other: Packed) -> Packed:
    return Packed(
        one.data + other.data,
        one.delivered_count + other.delivered_count,
        one.oversize_count + other.oversize_count,
        one.expired_count + other.expired_count,
        one.exactly_once or other.exactly_once,
    )


def _pack(feed: Feed, batch: Batch, target: Target, time: PassingTime, replay_until: int) -> Packed:
    """As `pack`. Records below `replay_until` were sent on an earlier connection, or were not to be sent."""
    naming = _naming_count(feed, batch, target)
    if not 0 < naming < len(batch):
        return _pack_part(feed, batch, target, time, replay_until)
    after = np.arange(len(batch)) >= naming
    named = _pack_part(feed, batch.select(~after), target, time, replay_until)
    return _joined(named, _pack_part(feed, batch.select(after), target, time, replay_until))


def _pack_part(feed: Feed, batch: Batch, target: Target, time: PassingTime, replay_until: int) -> Packed:
    first, plain = 0, Packed(b"", 0, 0, 0)
    positions = None
    if target.level == MQTT_5 and feed.tells_place:
        positions = PositionProperties(feed.log.name, feed.source.partition)
    if batch.plain and not replay_until and feed.gap is None:
        first, plain = _pack_plain(feed, batch, target, positions)
    if first < len(batch):
        rest = batch.select(np.arange(len(batch)) >= first) if first else batch
        plain = _joined(plain, _pack_each(feed, rest, target, time, replay_until, positions))
    return plain


def _pack_plain(
    feed: Feed, batch: Batch, target: Target, positions: PositionProperties | None
) -> tuple[int, Packed]:
    """Encode records without header blocks, nearly all of them, as a run, up to the first that needs special
    handling. Return its position and the packets."""
    session, forms = feed.session, feed.forms
    records = Records(batch.data, batch.offsets, batch.topic_ids, batch.flags, batch.starts, batch.lengths)
    ids = session.packet_ids.next(len(batch), session.ids_in_use()) if feed.needs_packet_ids else []
    if positions is not None:
        _learn_forms(feed, batch, target, told=True)
        framed = frame_placed(
            records, batch.timestamps_us, forms, ids, feed.qos0_from, target.packet_bytes, positions
        )
    else:
        framed = frame_records(records, forms, ids, feed.qos0_from, target.packet_bytes)
        if framed.end < len(batch) and int(batch.topic_ids[framed.end]) not in forms:
            _learn_forms(feed, batch, target, told=False)
            framed = frame_records(records, forms, ids, feed.qos0_from, target.packet_bytes)
    if framed.offsets:
        session.in_flight.update(
            (packet_id, InFlight(feed, offset, qos))
            for packet_id, offset, qos in zip(ids, framed.offsets, framed.qos, strict=False)
        )
        feed.window.sent(framed.offsets)
        session.outstanding += len(framed.offsets)
        session.packet_ids.last = ids[len(framed.offsets) - 1]
    if target.aliases is not None and not target.aliases.settled and framed.packet_count == framed.end:
        _count_topics(feed, batch, framed.end, target)
    return framed.end, Packed(framed.data, framed.packet_count, 0, 0, 2 in framed.qos)


def _learn_forms(feed: Feed, batch: Batch, target: Target, *, told: bool) -> None:
    for topic_id in set(batch.topic_ids.tolist()).difference(feed.forms):
        feed.forms[topic_id] = _form(feed, topic_id, target, told=told)


def _form(feed: Feed, topic_id: int, target: Target, *, told: bool) -> Form | None:
    """Return how plain records of a topic are sent to this client now. told: position properties follow, so the
    block has no length yet."""
    form, grant = feed.form(topic_id, with_block=target.level == MQTT_5), feed.grant(topic_id)
    if form is None or grant is None or not (told or target.aliases):
        return form
    head, number = target.aliases.of(form.head) if target.aliases else (form.head, b"")
    properties = number + grant.identifiers
    return form._replace(head=head, block=properties if told else varint(len(properties)) + properties)


def _count_topics(feed: Feed, batch: Batch, end: int, target: Target) -> None:
    """Note that all records up to `end` are sent: the client knows the alias of some topics, others are frequent."""
    assert target.aliases is not None
    topic_ids, counts = np.unique(batch.topic_ids[:end], return_counts=True)
    columns = zip(topic_ids.tolist(), counts.tolist(), strict=True)
    _forget_forms(feed, [one for one, count in columns if target.aliases.sent(feed.head(one), count)])


def _forget_forms(feed: Feed, topic_ids: Iterable[int]) -> None:
    """Change how these topics are sent, by all feeds of the client: an alias that one feed has introduced serves
    all."""
    for other in feed.session.feeds.values():
        if other.log is feed.log:
            for topic_id in topic_ids:
                other.forms.pop(topic_id, None)


def _pack_each(
    feed: Feed,
    batch: Batch,
    target: Target,
    time: PassingTime,
    replay_until: int,
    positions: PositionProperties | None,
) -> Packed:
    """Encode records one by one: those with header blocks, those sent before a reconnect, and those for special
    clients."""
    told = 0 if target.aliases is None else target.aliases.told_count
    rows = _Rows(feed, target, positions)
    rows.gather(batch, replay_until, time)
    if target.aliases is not None and target.aliases.told_count > told:
        _forget_forms(feed, set(batch.topic_ids.tolist()))
    rows.number()
    exactly_once = any(qos == 2 for _, _, qos in rows.new)
    return Packed(rows.framed(), len(rows.payloads), rows.oversize_count, rows.expired_count, exactly_once)


@dataclass(slots=True, eq=False)
class _Rows:
    """Deliveries collected as columns."""

    feed: Feed
    target: Target
    positions: PositionProperties | None
    firsts: list[int] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    packet_ids: list[int] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    new: list[tuple[int, int, int]] = field(default_factory=list)
    """Row, offset and QoS of each delivery that needs a packet id."""
    oversize_count: int = 0
    expired_count: int = 0

    def gather(self, batch: Batch, replay_until: int, time: PassingTime) -> None:
        """Add the deliveries of the records."""
        feed, own_key = self.feed, self.feed.session.key
        columns = zip(
            batch.offsets.tolist(), batch.topic_ids.tolist(), batch.flags.tolist(), batch.payloads(),
            batch.timestamps_us.tolist(), strict=True,
        )  # fmt: skip
        for number, (offset, topic_id, flags, payload, timestamp_us) in enumerate(columns):
            stored = stored_headers(batch.header_block(number))
            left_s = None
            if stored.expiry_s is not None:
                left_s = stored.expiry_s - time.age_us(timestamp_us) // _MICROSECONDS
            grant = feed.grant(topic_id)
            if grant is not None and offset < grant.plain_from:
                grant = grant.at(offset, stored.publisher == own_key)
            if offset < replay_until:
                properties = _forwarded(stored, left_s) + (b"" if grant is None else grant.identifiers)
                if self.positions is not None:
                    properties += self.positions.of(offset, timestamp_us)
                self._resend(offset, topic_id, flags, payload, grant, properties)
            elif left_s is not None and left_s <= 0:
                self.expired_count += 1
            elif grant is not None:
                properties = _forwarded(stored, left_s) + grant.identifiers
                if self.positions is None:
                    self._add(offset, flags, payload, grant, properties)
                else:
                    properties += self.positions.of(offset, timestamp_us, feed.gap)
                    if self._add(offset, flags, payload, grant, properties):
                        feed.gap = None

    def _add(self, offset: int, flags: int, payload: bytes, grant: Grant, properties: bytes) -> bool:
        """Add one delivery, unless it is too large for the client or was missed at QoS 0."""
        qos = min(flags >> 1 & 3, grant.qos)
        if qos == 0 and offset < self.feed.qos0_from:
            return False
        head, number = grant.head, b""
        if self.target.aliases is not None:
            head, number = self.target.aliases.of(grant.head)
        block = varint(len(number) + len(properties)) + number + properties
        if number and publish_size(head, block, len(payload), qos > 0) > self.target.packet_bytes:
            head, number = grant.head, b""  # an alias alone must not make the message too large
            block = varint(len(properties)) + properties
        if self._oversize(head, block, payload, qos):
            return False
        if self.target.aliases is not None and (number or not self.target.aliases.of(head)[1]):
            self.target.aliases.sent(grant.head)
        if qos:
            self.new.append((len(self.payloads), offset, qos))
        retain = flags & FLAG_RETAIN if grant.retain_as_published else 0
        self._row(0x30 | qos << 1 | retain, head, 0, block, payload)
        return True

    def _oversize(self, head: bytes, block: bytes, payload: bytes, qos: int) -> bool:
        size = publish_size(head, block if self.target.level == MQTT_5 else b"", len(payload), qos > 0)
        if size <= self.target.packet_bytes:
            return False
        self.oversize_count += 1
        return True

    def _resend(
        self, offset: int, topic_id: int, flags: int, payload: bytes, grant: Grant | None, properties: bytes
    ) -> None:
        """Add a record that was in flight when the connection ended, with the same packet id and DUP. Its
        subscription may have ended, and its expiry does not apply any more [MQTT-4.3.3-7]."""
        entry = self.feed.resend.get(offset)
        if entry is None:
            return  # acknowledged, or sent at QoS 0
        packet_id, qos = entry
        if not self.feed.may_read(topic_id):  # it had the right before; `resend` is given up at the end
            return
        retain = flags & FLAG_RETAIN if grant is not None and grant.retain_as_published else 0
        block, head = varint(len(properties)) + properties, self.feed.head(topic_id)
        if self._oversize(head, block, payload, qos):  # the client accepts smaller packets than before
            return
        del self.feed.resend[offset]
        self._row(0x38 | qos << 1 | retain, head, packet_id, block, payload)
        self.feed.session.outstanding += 1

    def _row(self, first: int, head: bytes, packet_id: int, block: bytes, payload: bytes) -> None:
        self.firsts.append(first)
        self.heads.append(head)
        self.packet_ids.append(packet_id)
        self.blocks.append(block)
        self.payloads.append(payload)

    def number(self) -> None:
        """Assign packet ids to deliveries that need new ones and note them as in flight."""
        if not self.new:
            return
        feed, session = self.feed, self.feed.session
        in_flight = session.in_flight
        ids = session.packet_ids.take(len(self.new), session.ids_in_use())
        for packet_id, (row, offset, qos) in zip(ids, self.new, strict=True):
            self.packet_ids[row] = packet_id
            in_flight[packet_id] = InFlight(feed, offset, qos)
        feed.window.sent([offset for _, offset, _ in self.new])
        session.outstanding += len(ids)

    def framed(self) -> bytes:
        blocks = self.blocks if self.target.level == MQTT_5 else None
        return frame_publishes(self.firsts, self.heads, self.packet_ids, blocks, self.payloads)


def _forwarded(stored: StoredHeaders, left_s: int | None) -> bytes:
    """Return the properties of the record with the remainder of its expiry interval."""
    if stored is NO_HEADERS or left_s is None:
        return stored.properties
    return stored.properties + _EXPIRY + max(0, left_s).to_bytes(4, "big")
