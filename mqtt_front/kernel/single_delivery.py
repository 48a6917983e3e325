"""Delivery of one plain record that was appended alone: the same packet as `delivery.packing.pack` makes, in a fraction
of the time. Twin of the class of the same name in `_kernel.pyx`."""

from collections.abc import Callable
from typing import Any

from mqtt_front.codec.frame import frame_record

_RETAIN = 1
PACKET_ID_MAX = 65_535


class SingleDelivery:
    """Sender of single records. Event-loop thread only."""

    def __init__(
        self,
        parked: object,
        in_flight: type[tuple[Any, int, int]],
        changed: Callable[[Any], None],
        by_log: dict[str, int],
        traces: Any,
    ) -> None:
        """parked: state of a feed whose reader is parked. in_flight: the class of an unacknowledged delivery. changed:
        called with a session that outlives its connection, when its offsets have moved. by_log: counts what is sent."""
        self._parked = parked
        self._in_flight = in_flight
        self._changed = changed
        self._by_log = by_log
        self._traces = traces

    def send(self, feed: Any, reader: Any) -> int:
        """Send the last record of a log to the client of a feed whose reader is in front of it, and park the reader.
        Return 0, with nothing changed, if the log ends elsewhere or the record needs more than that; 1 if the feed is
        parked; 2 if there is more to read.

        feed: a `Feed`. Raises StoreClosed after sending, from `Reader.park`."""
        session = feed.session
        client = session.client
        if (
            client is None
            or feed.reader is not reader
            or not feed.takes_singles
            or not client.writable
            or session.outstanding >= client.inflight_limit
            or session.saving_count
            or feed.resend
            or feed.gap is not None
            or feed.tells_place
            or (len(session.feeds) > 1 and session.must_wait(feed))
        ):
            return 0
        record = feed.log.single(reader.offset)
        if record is None:
            return 0
        offset, topic_id, flags, header_length, stored = record
        form, target = feed.forms.get(topic_id), client.target
        if form is None or header_length or target.aliases is not None or offset < form.first_offset:
            return 0
        qos, packet_id = min(flags >> 1 & 3, form.qos), 0
        if qos == 2 or (qos == 0 and offset < feed.qos0_from):
            return 0
        if qos:
            if session.released:
                return 0
            packet_id = session.packet_ids.last % PACKET_ID_MAX + 1
            while packet_id in session.in_flight:
                packet_id = packet_id % PACKET_ID_MAX + 1
        packet = frame_record(form, qos, flags & _RETAIN, packet_id, stored, target.packet_bytes)
        if packet is None:
            return 0
        if qos:
            session.in_flight[packet_id] = self._in_flight.__new__(self._in_flight, feed, offset, qos)  # type: ignore[call-arg]
            feed.window.sent((offset,))
            session.outstanding += 1
            session.packet_ids.last = packet_id
        feed.window.seen = max(feed.window.seen, offset + 1)
        reader.offset = offset + 1
        client.delivery_count += 1
        client.deliver(packet)
        self._by_log[feed.log.name] += 1
        if self._traces.is_open:
            self._traces.delivered(feed.log, range(offset, offset + 1))
        if session.expiry_s:
            self._changed(session)
        if not reader.park():
            return 2
        feed.state = self._parked
        return 1
