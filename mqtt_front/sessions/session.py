"""The state of one client that outlives its connections: subscriptions, and how far it has come in each log.

A session stores offsets, not messages. While its client is away it is a document (`session_document`) and
nothing else.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, Protocol

from mqtt_front.feeds.feed import Feed, FeedState, LogSource, OnWake, own_key
from mqtt_front.feeds.retained_feed import RetainedFeed
from mqtt_front.feeds.shared_feed import SharedFeed
from mqtt_front.feeds.stream_feed import StreamFeed
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.protocol.outgoing_aliases import OutgoingAliases
from mqtt_front.protocol.packet_ids import PacketIds
from mqtt_front.reasons import Reason
from mqtt_front.security.rules import Permissions
from mqtt_front.sessions.replay import Beginning
from mqtt_front.topics.filter_form import Kind


def session_key(client_id: str, user: str | None) -> str:
    """The name of a session: the client id, and the user that it belongs to. Two users may use the same client id.

    An anonymous client has its client id alone. No client id contains U+0000.
    """
    return client_id if user is None else f"{client_id}\0{user}"


class Target(NamedTuple):
    """What of a connection matters for the bytes of a delivery."""

    level: int
    packet_bytes: int
    """The largest packet the client takes."""
    aliases: OutgoingAliases | None = None
    """Numbers for topics; None when the client takes none."""


class InFlight(NamedTuple):
    """A delivery at QoS 1 or 2 that waits for its acknowledgement."""

    feed: Feed
    offset: int
    qos: int


class Client(Protocol):
    """The connection of a session's client, as far as deliveries go."""

    target: Target
    inflight_limit: int
    """Unacknowledged deliveries that the client takes at a time."""
    writable: bool
    """Its socket takes more; when that changes back, the connection says so."""

    def deliver(self, data: bytes) -> None:
        """Send packets."""

    def end(self, reason: Reason, message: str) -> None:
        """End the connection."""


class Session:
    """One client's session. Used by the event loop's thread only."""

    __slots__ = (
        "_changed", "_changes", "_key_count", "_no_local_count", "_replays", "_together",
        "client", "client_id", "documented", "documented_subscriptions", "expiry_s", "feeds", "in_flight", "key",
        "no_local", "outstanding", "packet_ids", "permissions", "received", "released", "saving_count",
        "subscriptions", "system_filters", "unsettled",
    )  # fmt: skip

    def __init__(self, key: str, expiry_s: int = 0, last_packet_id: int = 0) -> None:
        """`key` as `session_key` makes it."""
        self.key = key
        self.client_id = key.partition("\0")[0]
        self.client: Client | None = None
        self.expiry_s = expiry_s
        """Seconds that it outlives its connection; 0: it ends with it; 0xFFFFFFFF: without end."""
        self.documented = False
        """There may be a document of it on the disk."""
        self.subscriptions: dict[str, Subscription] = {}
        self.feeds: dict[str, Feed] = {}
        """By their keys: the name of the log, unless it is about one subscription only."""
        self.packet_ids = PacketIds(last_packet_id)
        self.in_flight: dict[int, InFlight] = {}
        """By packet id."""
        self.released: dict[int, None] = {}
        """Packet ids of deliveries at QoS 2 that the client has (PUBREC) and may not forget yet (no PUBCOMP)."""
        self.received: set[int] = set()
        """Packet ids of the client's own publishes at QoS 2 that it has not released (no PUBREL)."""
        self.unsettled: set[int] = set()
        """Those of them whose records may not be in the log yet."""
        self.outstanding = 0
        """Deliveries of this connection that are not acknowledged: what the client's receive maximum is
        about."""
        self.permissions: Permissions | None = None
        """What its client may receive, while one is connected; None for everything."""
        self.saving_count = 0
        """Deliveries that wait until the session is durable; everything for its client queues behind them."""
        self.system_filters: tuple[str, ...] = ()
        """Those of its filters that are about what the server says of itself."""
        self.no_local = False
        """Some subscription wants to know who published a record."""
        self._no_local_count = 0
        self._changed: dict[str, Subscription | None] = {}
        """By topic filter: subscriptions that begin or change with the change under way; None for those that end."""
        self._changes: dict[Feed, dict[str, Subscription | None]] = {}
        """Those of them that each feed reads for."""
        self._together = False
        self.documented_subscriptions: dict[str, str] = {}
        """By topic filter: how it stands in the document, kept for those that did not change since. Empty while they
        are few."""
        self._key_count = 0
        self._replays: list[Feed] = []
        """Feeds that had to send something again when the client was connected."""

    @contextmanager
    def one_change(self) -> Iterator[None]:
        """Take what is subscribed and unsubscribed within as one change: feeds are changed once, at the end."""
        self._together = True
        try:
            yield
        finally:
            self._together = False
            self._apply()

    def subscribe(
        self,
        subscription: Subscription,
        sources: Iterable[LogSource],
        starts: Mapping[str, Beginning] | None = None,
    ) -> bool:
        """Add or replace the subscription for its filter; True when the filter is new in this session.

        It is about what is appended from now on to the logs of `sources`, or, if it is a shared one or a replay, from
        where `starts` says by name of the log; one that replaces another continues at its offset, so that nothing is
        missed or doubled.
        """
        topic_filter = subscription.topic_filter
        old = self.subscriptions.get(topic_filter)
        since = {} if old is None else dict(old.since)
        for source in sources:
            if subscription.form.kind is Kind.PLAIN:
                self._share_feed(source, since)
            else:
                start = (starts or {}).get(source.log.name, Beginning(source.log.end_offset, False))
                self._own_feed(subscription, source, start, since)
        self.subscriptions[topic_filter] = replace(subscription, since=since)
        self._note(topic_filter, old)
        return old is None

    def _share_feed(self, source: LogSource, since: dict[str, int]) -> None:
        """See to it that the feed of a log, which all plain subscriptions have in common, is there."""
        name = source.log.name
        if name not in self.feeds:
            self.feeds[name] = Feed(self, source, source.log.end_offset)
        elif name in since:
            return
        since[name] = source.log.end_offset

    def _own_feed(
        self, subscription: Subscription, source: LogSource, start: Beginning, since: dict[str, int]
    ) -> None:
        """See to it that the feed which only this subscription has is there."""
        key = own_key(source, subscription.topic_filter)
        if key in self.feeds and key in since:
            return
        if key in self.feeds:  # of a subscription that has ended, and left something in flight
            ended = self.feeds.pop(key)
            ended.key = self._free_key("ended")
            self.feeds[ended.key] = ended
        since[key] = 0
        feed: Feed
        if subscription.form.shared:
            feed = SharedFeed(self, source, subscription.topic_filter, start=start.offset)
        else:
            feed = StreamFeed(self, source, subscription.topic_filter, start.offset)
            if start.missed:
                feed.lost(start.offset)
        self.feeds[key] = feed

    def _free_key(self, kind: str) -> str:
        while (key := f"{kind}/{self._key_count}") in self.feeds:
            self._key_count += 1
        self._key_count += 1
        return key

    def unsubscribe(self, topic_filter: str) -> bool:
        """End a subscription; False when there was none. What is in flight continues."""
        old = self.subscriptions.pop(topic_filter, None)
        if old is None:
            return False
        self._note(topic_filter, old)
        return True

    def deliver_retained(self, topic_filters: Iterable[str]) -> None:
        """Send what is retained for the topics of some subscriptions, each message once. What replaces it from now on
        is delivered live, so nothing is missed between the two, and nothing old comes after the new."""
        self.drop_idle_feeds()
        by_feed: dict[str, dict[str, Subscription | None]] = {}
        for topic_filter in topic_filters:
            subscription = self.subscriptions[topic_filter]
            for key in subscription.since:
                by_feed.setdefault(key, {})[topic_filter] = subscription
        for key, wanted in by_feed.items():
            source = self.feeds[key].source
            for feed in self.feeds.values():
                if isinstance(feed, RetainedFeed) and feed.log is source.log:
                    again = wanted.keys() & feed.topic_filters.keys()
                    if again:
                        feed.change(dict.fromkeys(again))
            if source.retained.catch_up() and not source.retained.may_match(wanted):
                continue
            key = self._free_key("retained")
            feed = RetainedFeed(self, source, key, wanted, until=source.log.end_offset)
            feed.change(wanted)
            self.feeds[key] = feed

    def restore(
        self, subscriptions: Iterable[Subscription], sources: Callable[[str], Iterable[LogSource]]
    ) -> None:
        """Take subscriptions over from a document. `sources` finds the logs that a filter is about today: for
        one that was not among them before, the subscription begins now."""
        self.subscriptions = {one.topic_filter: one for one in subscriptions}
        self._no_local_count = sum(one.no_local for one in self.subscriptions.values())
        self._changes = {feed: {} for feed in self.feeds.values()}  # one may have no subscription left
        with self.one_change():
            for one in list(self.subscriptions.values()):
                self.subscribe(one, sources(one.topic_filter))

    def _note(self, topic_filter: str, old: Subscription | None) -> None:
        """The subscription for a filter is another one than `old`: its feeds have to know."""
        new = self.subscriptions.get(topic_filter)
        self._changed[topic_filter] = new
        self.documented_subscriptions.pop(topic_filter, None)
        for one in (old, new):
            if one is not None:
                for key in one.since:
                    if (feed := self.feeds.get(key)) is not None:
                        self._changes.setdefault(feed, {})[topic_filter] = new
        self._no_local_count += (new is not None and new.no_local) - (old is not None and old.no_local)
        if not self._together:
            self._apply()

    def _apply(self) -> None:
        changed, self._changed = self._changed, {}
        changes, self._changes = self._changes, {}
        self.no_local = self._no_local_count > 0
        if any(one.partition("/")[0] == "$SYS" for one in changed):
            self.system_filters = tuple(one for one in self.subscriptions if one.partition("/")[0] == "$SYS")
        for feed in self.feeds.values():
            if isinstance(feed, RetainedFeed):
                for topic_filter in changed.keys() & feed.topic_filters.keys():
                    changes.setdefault(feed, {})[topic_filter] = changed[topic_filter]
        for feed, concerned in changes.items():
            feed.change(concerned)

    def attach(self, on_wake: OnWake, missed_qos0: bool = False) -> dict[str, int]:
        """A client is connected: every feed continues at its committed offset. Returns by log the offsets that
        retention has deleted since. The arguments are those of `Feed.attach`."""
        self.outstanding = len(self.released)
        self.drop_idle_feeds()
        gaps: dict[str, int] = {}
        resends: dict[Feed, dict[int, tuple[int, int]]] = {}
        for packet_id, entry in self.in_flight.items():
            resends.setdefault(entry.feed, {})[entry.offset] = (packet_id, entry.qos)
        for name, feed in self.feeds.items():
            resend = resends.get(feed, {})
            gap = feed.attach(resend, on_wake, missed_qos0)
            if gap:
                gaps[name] = gap
                self._forget(feed, resend.keys() - feed.resend.keys())
        self._replays = [feed for feed in self.feeds.values() if feed.replaying]
        return gaps

    def detach(self) -> None:
        """The client is gone: no reader, no queue, only offsets."""
        for feed in self.feeds.values():
            feed.detach()
        self.outstanding = 0

    def drop_idle_feeds(self) -> None:
        """Forget the feeds that no subscription is about any more."""
        for name in [name for name, feed in self.feeds.items() if feed.idle]:
            self.feeds.pop(name).detach()

    def accepted(self, packet_ids: Iterable[int]) -> list[int]:
        """PUBREC: the client has these deliveries and keeps their ids until PUBCOMP. Returns those that are to be
        released, again if they were before; the others are nobody's."""
        known = []
        for packet_id in packet_ids:
            entry = self.in_flight.get(packet_id)
            if entry is not None and entry.qos == 2:
                del self.in_flight[packet_id]
                entry.feed.window.acknowledged(entry.offset)
                if entry.feed.resend.pop(entry.offset, None) is not None:
                    self.outstanding += (
                        1  # it was sent on an earlier connection, its release counts on this one
                    )
                self.released[packet_id] = None
            if packet_id in self.released:
                known.append(packet_id)
        return known

    def completed(self, packet_ids: Iterable[int]) -> int:
        """PUBCOMP: the client has forgotten these ids; returns how many of them were waiting for that."""
        known = 0
        for packet_id in packet_ids:
            if packet_id in self.released:
                del self.released[packet_id]
                self.outstanding -= 1
                known += 1
        return known

    def forget_received(self, packet_ids: Iterable[int]) -> list[int]:
        """These ids of the client's publishes are free again; returns those that were not."""
        known = []
        for packet_id in packet_ids:
            if packet_id in self.received:
                self.received.discard(packet_id)
                self.unsettled.discard(packet_id)
                known.append(packet_id)
        return known

    def ids_in_use(self) -> Container[int]:
        """Packet ids that no new delivery may get."""
        return self.in_flight if not self.released else self.in_flight.keys() | self.released.keys()

    def acknowledged(self, packet_ids: Iterable[int], qos: int = 1) -> int:
        """The client has these deliveries at `qos`, for good; returns how many of the ids were in flight at all."""
        known = 0
        for packet_id in packet_ids:
            entry = self.in_flight.get(packet_id)
            if entry is None or entry.qos != qos:
                continue
            del self.in_flight[packet_id]
            known += 1
            entry.feed.window.acknowledged(entry.offset)
            if entry.feed.resend.pop(entry.offset, None) is None:
                self.outstanding -= 1
        return known

    def give_up(self, feed: Feed) -> list[int]:
        """The records that were to be sent again are no longer there: count them as delivered. Returns the packet ids
        that the client has to be told to forget: at QoS 2 it may take another message with one of them for a
        repetition."""
        return self._forget(feed, set(feed.resend))

    def _forget(self, feed: Feed, offsets: set[int]) -> list[int]:
        gone = {
            packet_id: entry.qos
            for packet_id, entry in self.in_flight.items()
            if entry.feed is feed and entry.offset in offsets
        }
        released = [packet_id for packet_id, qos in gone.items() if qos == 2]
        for packet_id in gone:
            del self.in_flight[packet_id]
        for offset in offsets:
            feed.window.acknowledged(offset)
            feed.resend.pop(offset, None)
        self.released |= dict.fromkeys(released)
        self.outstanding += len(released)
        return released

    def feeds_in_order(self, state: FeedState) -> list[Feed]:
        """The feeds in a state, in the order in which they should be served: what was retained is older than what is
        live."""
        feeds = [feed for feed in self.feeds.values() if feed.state is state]
        if len(feeds) > 1:
            feeds.sort(key=lambda feed: not isinstance(feed, RetainedFeed))
        return feeds

    def must_wait(self, feed: Feed) -> bool:
        """Does another feed have to send again what was in flight before this one sends anything new?
        [MQTT-4.6.0-1]"""
        if not self._replays or feed.replaying:
            return False
        replays = self._replays
        while replays and not replays[-1].replaying:
            replays.pop()
        return bool(replays)

    @property
    def committed(self) -> Mapping[str, int]:
        """By key of the feed: the lowest offset that is not acknowledged."""
        return {name: feed.window.committed for name, feed in self.feeds.items()}
