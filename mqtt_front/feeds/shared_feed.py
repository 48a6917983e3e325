"""Feed of one member of a shared subscription: takes records that no other member has, as far as its window has
room."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mqtt_front.feeds.feed import Feed, LogSource, OnWake, own_key
from mqtt_front.feeds.in_flight_window import InFlightWindow
from mqtt_front.feeds.shared_group import SharedGroup, Taker
from mqtt_front.feeds.subscription import Subscription
from timestone.reading.batch import Batch
from timestone.reading.topic_mask import TopicMask

if TYPE_CHECKING:
    from mqtt_front.sessions.session import Session

_ROOM = 1024
"""Records that a client at QoS 0 takes at a time."""


class MemberWindow(InFlightWindow):
    """In-flight window of one member. The group keeps the committed offset."""

    __slots__ = ("_group", "_offsets")

    def __init__(self, group: SharedGroup, in_flight: Iterable[int]) -> None:
        self._group = group
        self._offsets = set(in_flight)
        super().__init__(max(self._offsets) + 1 if self._offsets else group.log.end_offset)

    @property
    def committed(self) -> int:
        return min(self._offsets, default=self.seen)

    @property
    def in_flight_count(self) -> int:
        return len(self._offsets)

    def __contains__(self, offset: int) -> bool:
        """Return whether the record at this offset is in flight."""
        return offset in self._offsets

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets)

    def sent(self, offsets: Iterable[int]) -> None:
        """Add offsets that were sent, in any order."""
        self._offsets.update(offsets)
        self._group.sent(offsets)

    def acknowledged(self, offset: int) -> None:
        self._offsets.discard(offset)
        self._group.acknowledged([offset])

    def abandon(self, offsets: Iterable[int]) -> None:
        """Remove offsets that are not this member's any more."""
        self._offsets.difference_update(offsets)


class MemberCursor:
    """Cursor over the records that a group assigns to one member, or to a request of another home."""

    def __init__(self, feed: Taker, group: SharedGroup) -> None:
        self._feed = feed
        self._group = group
        self._choice = TopicMask(group.log.topics, [group.pattern])
        self._returned: list[int] = []
        self._start = 0

    @property
    def returned(self) -> list[int]:
        """Return the offsets of the prepared read, if it is about returned ones."""
        return self._returned

    @property
    def offset(self) -> int:
        """Return where the next read begins."""
        return self._group.next_offset

    @property
    def caught_up(self) -> bool:
        """Return whether there is nothing for this member, or another member is being read for."""
        group = self._group
        return not self._feed.takes_part or group.busy is not None or not group.backlog

    def prepare(self) -> bool | None:
        """Prepare a read as `Feed.prepare`."""
        feed, group = self._feed, self._group
        if not feed.takes_part:
            return None
        if not group.may_read(feed):
            if not group.park(feed):
                feed.wake()
            return None
        group.busy = feed
        self._returned = group.next_returned()
        self._start = self.offset
        return group.log.in_memory(self._start)

    def read(self, *, max_records: int = 1024, max_bytes: int = 0, max_scan: int | None = None) -> Batch:
        """Return the prepared records, or the first of them. Touches only the log, so that a thread may call it."""
        log = self._group.log
        if not self._returned:
            records = self._group.share(max_records)
            return log.read_matching(
                self._start, self._choice, max_records=records, max_bytes=max_bytes, max_scan=max_scan
            )
        batch = log.read(self._start, max_records=max_records, max_bytes=max_bytes)
        return batch.select(np.isin(batch.offsets, self._returned)) if len(batch) else batch

    def park(self) -> bool:
        """Wait for records for this member. Return False if there are some already."""
        return not self._feed.takes_part or self._group.park(self._feed)

    def seek(self, offset: int) -> None:
        """Skip the offsets below, which cannot be read."""
        self._group.skip(offset, self._returned)

    def close(self) -> None:
        """Stop asking."""
        self._group.rest(self._feed)


class SharedFeed(Feed):
    """Member of a group."""

    __slots__ = ("entitled", "group")

    def __init__(
        self,
        session: "Session",
        source: LogSource,
        topic_filter: str,
        in_flight: Iterable[int] = (),
        start: int | None = None,
    ) -> None:
        """start: where a new group begins; by default with records appended from now on."""
        super().__init__(session, source, 0, key=own_key(source, topic_filter))
        self.takes_singles = False  # the group decides about each record
        groups = source.groups
        self.group = groups.get(source.log, topic_filter, start, owner=groups.shares.owner(session.key))
        self.window: MemberWindow = MemberWindow(self.group, in_flight)
        self.entitled = True
        """Whether the client may read every topic of the group. A member that may not takes nothing: records that it
        takes and may not read would be lost to the others."""

    @property
    def qos(self) -> int:
        """Return the highest QoS that it is granted."""
        return max((one.qos for one in self.subscriptions.values()), default=0)

    @property
    def held(self) -> list[int]:
        """Return the offsets that it has in flight at QoS 2, in order."""
        in_flight = self.session.in_flight.values()
        return sorted(one.offset for one in in_flight if one.feed is self and one.qos == 2)

    @property
    def takes_part(self) -> bool:
        """Return whether the group assigns records to this member."""
        return self.entitled and bool(self.subscriptions)

    @property
    def room(self) -> int:
        """Return how many records the client can take."""
        client, session = self.session.client, self.session
        if client is None or not client.writable or session.must_wait(self):
            return 0
        return client.inflight_limit - session.outstanding if self.needs_packet_ids else _ROOM

    def wake(self) -> None:
        """Wake the member. Any thread may call."""
        if self.reader is not None:
            self._on_wake((self, self.reader))

    def change(self, changed: Mapping[str, Subscription | None]) -> None:
        member, session = self.session.key, self.session
        if any(changed.values()):
            self.source.groups.joined(self.group, member)
        super().change(changed)
        if any(changed.values()) and session.client is not None:
            self.group.connected(self)
        if not self.subscriptions:
            self.group.acknowledged(self.held)  # these belong to this client even if the group ends
            self.source.groups.leave(self.group, member)

    def attach(self, resend: dict[int, tuple[int, int]], on_wake: OnWake, missed_qos0: bool = False) -> int:
        """Attach as `Feed.attach`; the group has missed nothing, at any QoS."""
        self.forget_grants()  # the rights of the client may have changed
        if self.subscriptions:  # a stored session that is changed while its client is away is never attached
            self.group.connected(self)
        return super().attach(resend, on_wake, missed_qos0=True)

    def detach(self) -> None:
        """Detach. Unacknowledged deliveries at QoS 1 are returned to the group; those at QoS 2 stay with the client."""
        session, window = self.session, self.window
        given_up = [
            packet_id
            for packet_id, entry in session.in_flight.items()
            if entry.feed is self and entry.qos == 1
        ]
        returned = [session.in_flight.pop(packet_id).offset for packet_id in given_up]
        window.abandon(returned)
        super().detach()
        self.group.disconnected(self, returned, window)

    def forget_grants(self) -> None:
        """Recompute grants as `Feed.forget_grants`; a change of rights may start or end the membership."""
        super().forget_grants()
        permissions, entitled = self.session.permissions, self.entitled
        self.entitled = permissions is None or permissions.may_read_all(self.group.pattern)
        if self.entitled is not entitled and self.reader is not None and not self.replaying:
            self._renew()

    def prepare(self) -> bool | None:
        return self.reader.prepare() if isinstance(self.reader, MemberCursor) else super().prepare()

    def passed(self) -> None:
        self.group.passed(self)

    def took(self, batch: Batch) -> Batch:
        """Note a read batch as `Feed.took`."""
        cursor = self.reader
        if not isinstance(cursor, MemberCursor):  # records after the redelivered ones belong to the group
            return batch.select(batch.offsets < self.window.seen)
        batch = self.group.took(batch, cursor.returned)
        # A record returned by a member may have been this member's before.
        repeats = self.group.repeats(cursor.returned)
        self.sent_below = batch.next_offset if repeats else self.group.assigned_below
        return batch

    def gave(self, batch: Batch) -> None:
        if isinstance(self.reader, MemberCursor):
            window = self.window
            self.group.acknowledged([offset for offset in batch.offsets.tolist() if offset not in window])

    def failed(self) -> None:
        if self.group.busy is self:
            self.group.busy = None

    def _open(self, start: int, filters: Sequence[str] | None) -> int:
        if filters is None:  # redeliver from the log itself
            return super()._open(start, filters)
        if self.reader is not None:
            self.reader.close()
        self.reader = MemberCursor(self, self.group)
        return start
