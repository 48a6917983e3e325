"""Receipts of inbound QoS 2: a publish that is sent twice is appended once, also after a kill in between.

The packet ids that a client has not released are part of its session (`Session.received`). Ids that a saved session
does not have yet are found in the log: the record of a QoS 2 publish contains the packet id and the client, so both
become durable together."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.protocol.header_block import with_packet_id
from mqtt_front.sessions.log_batches import batches_since
from mqtt_front.sessions.session import Session
from timestone.log import Log
from timestone.record import FLAG_QOS_MASK, FLAG_QOS_SHIFT, HeaderKind

_EXACTLY_ONCE = 2 << FLAG_QOS_SHIFT


class ReceivedId(NamedTuple):
    """Packet id found in a log, with the offset of its record."""

    log: str
    offset: int
    packet_id: int


class Receipts:
    """Receipts of the publishes at QoS 2. One instance a front."""

    def __init__(self, logs: Sequence[Log], *, is_partitioned: bool = False) -> None:
        """is_partitioned: whether a publish may have to be sent again to the leader of another shard, which must not
        append it twice, be its session a lasting one or not."""
        self._is_partitioned = is_partitioned
        self.logs = tuple(logs)
        """Logs that publishes go to."""
        self._found: dict[str, list[ReceivedId]] = {}
        self.run_id = secrets.randbits(52)
        """Distinguishes documents of this process from those of earlier ones."""
        self.settled = {log.key: log.end_offset for log in self.logs}
        """Offset by log below which sessions have all packet ids of this process. Maintained by `Ingest`."""
        self.count = 0
        """Number of publishes at QoS 2 in sessions that outlive their connections."""

    def once(self, session: Session, run: Publishes) -> tuple[Publishes, list[bytes]]:
        """Return the publishes of a run to append, and the packet ids of those appended before. New ids belong to
        the session until the client's PUBREL. Raises ProtocolViolation if the properties of one are too large; the
        ids of the run are then unused again."""
        kept: list[PublishRow] = []
        new: list[int] = []
        repeated: list[bytes] = []
        try:
            for row in run.rows():
                if row.first & 6 == 4:
                    raw = row.acknowledgement[2:]
                    packet_id = int.from_bytes(raw, "big")
                    if packet_id in session.received:
                        repeated.append(raw)
                        continue
                    session.received.add(packet_id)
                    session.unsettled.add(packet_id)
                    new.append(packet_id)
                    if session.expiry_s or self._is_partitioned:
                        self.count += 1
                        row = with_packet_id(row, session.key)
                kept.append(row)
        except Exception:
            session.forget_received(new)
            raise
        return Publishes.of(kept, run.size_bytes), repeated

    def none_is_open(self) -> None:
        """Note that no publish is on its way: what the logs have now, also of other servers, need not be searched for
        packet ids of this one."""
        for log in self.logs:
            self.settled[log.key] = max(self.settled[log.key], log.end_offset)

    def recover(self, since: Mapping[str, int]) -> None:
        """Find the packet ids of records at or after an offset of each log; all of a log without an offset. Reads
        the disk: call before the loop serves clients."""
        self._found = received_since(self.logs, since)

    def has_found(self, key: str) -> bool:
        """Return whether `recover` has found a packet id of a client, settled ones included."""
        return key in self._found

    def found(self, key: str, until: Mapping[str, int]) -> set[int]:
        """Return the packet ids of a client in records that an earlier process appended at or after `until` of each
        log."""
        entries = self._found.get(key, ())
        return {one.packet_id for one in entries if one.offset >= until.get(one.log, 0)}


def received_since(logs: Iterable[Log], since: Mapping[str, int]) -> dict[str, list[ReceivedId]]:
    """Return packet ids of QoS 2 publishes appended at or after an offset of each log, by session key."""
    found: dict[str, list[ReceivedId]] = {}
    for log in logs:
        for batch in batches_since(log, since.get(log.key, 0)):
            for number in np.flatnonzero((batch.flags & FLAG_QOS_MASK) == _EXACTLY_ONCE).tolist():
                items = {item.kind: item.value for item in batch.headers_of(number)}
                if HeaderKind.PACKET_ID in items and HeaderKind.PUBLISHER in items:
                    key = items[HeaderKind.PUBLISHER].decode("utf-8", "replace")
                    packet_id = int.from_bytes(items[HeaderKind.PACKET_ID], "little")
                    entry = ReceivedId(log.key, int(batch.offsets[number]), packet_id)
                    found.setdefault(key, []).append(entry)
    return found
