"""Session: state of a client that outlives its connections, namely subscriptions and its position in each log.

A session stores offsets, not messages. While its client is away it exists only as a document (`session_document`)."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, Protocol

from mqtt_front.codec.packets import PacketType
from mqtt_front.feeds.feed import Feed, FeedState, LogSource, OnWake
from mqtt_front.feeds.filter_feeds import FilterFeeds
from mqtt_front.feeds.retained_feed import RetainedFeed
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.kernel import loops
from mqtt_front.protocol.packet_ids import PacketIds
from mqtt_front.protocol.topic_aliases import OutgoingAliases
from mqtt_front.reasons import Reason
from mqtt_front.security.rules import Permissions
from mqtt_front.sessions.replay import Beginning
from mqtt_front.sessions.session_use import SESSION_BYTES, subscription_bytes


def session_key(client_id: str, user: str | None) -> str:
    """Return the key of a session: the client id, and the user that owns it.

    Two users may use the same client id. An anonymous client has only its client id. No client id contains U+0000."""
    return client_id if user is None else f"{client_id}\0{user}"


class Target(NamedTuple):
    """Parts of a connection that affect the bytes of a delivery."""

    level: int
    packet_bytes: int
    """Maximum packet size of the client."""
    aliases: OutgoingAliases | None = None
    """Topic aliases; None if the client takes none."""


class InFlight(NamedTuple):
    """Unacknowledged delivery at QoS 1 or 2."""

    feed: Feed
    offset: int
    qos: int


class Client(Protocol):
    """Connection that packets are sent to. Implemented by `ClientProtocol`."""

    target: Target
    inflight_limit: int
    """Maximum unacknowledged deliveries of the client."""
    writable: bool
    """Whether its socket takes more; the connection reports when this becomes true."""
    delivery_count: int
    """Messages sent; counted by delivery."""

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes that its socket has not taken."""

    def deliver(self, data: bytes) -> None:
        """Send packets."""

    def end(self, reason: Reason, message: str) -> None:
        """End the connection."""

    def cut_off(self) -> None:
        """Close it at once, without a reason; its session is kept."""


class Session(loops.ServedSession):
    """Session of one client. Event-loop thread only."""

    __slots__ = (
        "_changed", "_changes", "_no_local_count", "_replays", "_together", "client_id", "counted_bytes", "documented",
        "documented_subscriptions", "key", "permissions", "reads_server", "received", "size_bytes", "subscriptions",
        "system_filters", "unsettled",
    )  # fmt: skip

    def __init__(self, key: str, expiry_s: int = 0, last_packet_id: int = 0) -> None:
        """key: as `session_key` returns it."""
        self.key = key
        self.client_id = key.partition("\0")[0]
        self.client: Client | None = None
        self.expiry_s = expiry_s
        """Seconds that it outlives its connection; 0: ends with it; 0xFFFFFFFF: never expires."""
        self.documented = False
        """Whether there may be a document of it on the disk."""
        self.subscriptions: dict[str, Subscription] = {}
        self.feeds = FilterFeeds(self)
        self.packet_ids = PacketIds(last_packet_id)
        self.in_flight: dict[int, InFlight] = {}
        """Deliveries by packet id."""
        self.released: dict[int, None] = {}
        """Packet ids of deliveries at QoS 2 between PUBREC and PUBCOMP."""
        self.received: set[int] = set()
        """Packet ids of the client's publishes at QoS 2 before PUBREL."""
        self.unsettled: set[int] = set()
        """Those of them whose records may not be in the log yet."""
        self.outstanding = 0
        """Unacknowledged deliveries of this connection, limited by the client's receive maximum."""
        self.permissions: Permissions | None = None
        """What its client may receive while connected; None for everything."""
        self.reads_server = False
        """Whether its client may receive what the server records about itself, as far as `permissions` let it."""
        self.saving_count = 0
        """Deliveries that wait until the session is durable; later ones for the client queue behind them."""
        self.system_filters: tuple[str, ...] = ()
        """Its filters on `$SYS`."""
        self.no_local = False
        """Whether a subscription needs the publisher of a record."""
        self._no_local_count = 0
        self._changed: dict[str, Subscription | None] = {}
        """Changes of the transaction in progress by topic filter; None for subscriptions that end."""
        self._changes: dict[Feed, dict[str, Subscription | None]] = {}
        """The same by feed."""
        self._together = False
        self.documented_subscriptions: dict[str, str] = {}
        """By topic filter: how it stands in the document, kept for those that did not change since. Empty while they
        are few."""
        self.size_bytes = SESSION_BYTES + len(key)
        """What it counts for the limit on bytes."""
        self.counted_bytes = 0
        """How much of that is counted by now. Kept by `Sessions`."""
        self._replays: list[Feed] = []
        """Feeds with redeliveries since the client connected."""

    @contextmanager
    def one_change(self) -> Iterator[None]:
        """Apply all subscriptions and unsubscriptions within as one change: feeds change once, at the end."""
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
        """Add or replace a subscription. Return whether its filter is new in this session.

        It covers records appended from now on to the logs of `sources`; a shared one or a replay begins where
        `starts` states by name of the log. One that replaces another continues at its offset, so that no record is
        missed or repeated."""
        topic_filter = subscription.topic_filter
        old = self.subscriptions.get(topic_filter)
        since = {} if old is None else dict(old.since)
        for source in sources:
            self.feeds.cover(subscription, source, since, (starts or {}).get(source.log.key))
        self.subscriptions[topic_filter] = replace(subscription, since=since)
        self._note(topic_filter, old)
        return old is None

    def unsubscribe(self, topic_filter: str) -> bool:
        """End a subscription. Return False if there was none. Deliveries in flight continue."""
        old = self.subscriptions.pop(topic_filter, None)
        if old is None:
            return False
        self._note(topic_filter, old)
        return True

    def deliver_retained(self, topic_filters: Iterable[str]) -> None:
        """Send the retained messages of some topic filters, each once. Replacements from now on are delivered live,
        so no message is missed in between and no old one follows a newer one."""
        self.feeds.drop_idle()
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
            key = self.feeds.free_key("retained")
            feed = RetainedFeed(self, source, key, wanted, until=source.log.end_offset)
            feed.change(wanted)
            self.feeds[key] = feed

    def restore(
        self, subscriptions: Iterable[Subscription], sources: Callable[[str], Iterable[LogSource]]
    ) -> None:
        """Restore subscriptions from a document. sources: returns the logs that a filter covers now; for one that it
        did not cover before, the subscription begins now."""
        self.subscriptions = {one.topic_filter: one for one in subscriptions}
        self._no_local_count = sum(one.no_local for one in self.subscriptions.values())
        self.size_bytes = SESSION_BYTES + len(self.key) + sum(map(subscription_bytes, self.subscriptions))
        self._changes = {feed: {} for feed in self.feeds.values()}  # one may have no subscription left
        with self.one_change():
            for one in list(self.subscriptions.values()):
                self.subscribe(one, sources(one.topic_filter))

    def _note(self, topic_filter: str, old: Subscription | None) -> None:
        """Note a changed subscription for its feeds. old: the one replaced."""
        new = self.subscriptions.get(topic_filter)
        self._changed[topic_filter] = new
        self.documented_subscriptions.pop(topic_filter, None)
        for one in (old, new):
            if one is not None:
                for key in one.since:
                    if (feed := self.feeds.get(key)) is not None:
                        self._changes.setdefault(feed, {})[topic_filter] = new
        if (old is None) != (new is None):
            self.size_bytes += subscription_bytes(topic_filter) * (1 if old is None else -1)
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
        """Attach a client: every feed continues at its committed offset. Return by log the number of offsets deleted
        by retention since. Arguments as for `Feed.attach`."""
        self.outstanding = len(self.released)
        self.feeds.drop_idle()
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
        """Detach the client: only offsets remain."""
        for feed in self.feeds.values():
            feed.detach()
        self.outstanding = 0

    def accepted(self, packet_ids: Iterable[int]) -> list[int]:
        """Handle PUBREC: the client has these deliveries and keeps their ids until PUBCOMP. Return the ids to
        release, repeated ones included; unknown ids are left out."""
        known = []
        for packet_id in packet_ids:
            entry = self.in_flight.get(packet_id)
            if entry is not None and entry.qos == 2:
                del self.in_flight[packet_id]
                entry.feed.window.acknowledged(entry.offset)
                if entry.feed.resend.pop(entry.offset, None) is not None:
                    self.outstanding += 1  # sent on an earlier connection, but its release counts on this one
                self.released[packet_id] = None
            if packet_id in self.released:
                known.append(packet_id)
        return known

    def completed(self, packet_ids: Iterable[int]) -> list[int]:
        """Handle PUBCOMP: the client has released these ids. Return the unexpected ones."""
        unmatched = []
        for packet_id in packet_ids:
            if packet_id in self.released:
                del self.released[packet_id]
                self.outstanding -= 1
            else:
                unmatched.append(packet_id)
        return unmatched

    def forget_received(self, packet_ids: Iterable[int]) -> list[int]:
        """Release these ids of the client's publishes. Return the unknown ones."""
        known = []
        for packet_id in packet_ids:
            if packet_id in self.received:
                self.received.discard(packet_id)
                self.unsettled.discard(packet_id)
                known.append(packet_id)
        return known

    def ids_in_use(self) -> Container[int]:
        """Return the packet ids that no new delivery may use."""
        return self.in_flight if not self.released else self.in_flight.keys() | self.released.keys()

    def acknowledged(self, packet_ids: Iterable[int], qos: int = 1) -> list[int]:
        """Handle a final acknowledgement of deliveries at `qos`. Return the ids without such a delivery."""
        unmatched = []
        for packet_id in packet_ids:
            entry = self.in_flight.get(packet_id)
            if entry is None or entry.qos != qos:
                unmatched.append(packet_id)
                continue
            del self.in_flight[packet_id]
            entry.feed.window.acknowledged(entry.offset)
            if entry.feed.resend.pop(entry.offset, None) is None:
                self.outstanding -= 1
        return unmatched

    def awaits(self, packet_id: int) -> PacketType | None:
        """Return the acknowledgement that the delivery with this packet id waits for; None if no delivery has it."""
        entry = self.in_flight.get(packet_id)
        if entry is not None:
            return PacketType.PUBREC if entry.qos == 2 else PacketType.PUBACK
        return PacketType.PUBCOMP if packet_id in self.released else None

    def give_up(self, feed: Feed) -> list[int]:
        """Count redeliveries whose records are gone as delivered. Return the packet ids that the client must
        release, because at QoS 2 it could take another message with such an id for a repetition."""
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
        """Return the feeds in a state, in order of service: retained messages are older than live ones."""
        feeds = [feed for feed in self.feeds.values() if feed.state is state]
        if len(feeds) > 1:
            feeds.sort(key=lambda feed: not isinstance(feed, RetainedFeed))
        return feeds

    def must_wait(self, feed: Feed) -> bool:
        """Return whether another feed must finish its redeliveries first [MQTT-4.6.0-1]."""
        if not self._replays or feed.replaying:
            return False
        replays = self._replays
        while replays and not replays[-1].replaying:
            replays.pop()
        return bool(replays)
