"""Feed of one session from one log: a reader while the client is connected, and the in-flight window. Knows which
records the subscriptions of the session grant. It does not read by itself; `delivery` does."""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mqtt_front.codec.fields import text
from mqtt_front.codec.frame import Form
from mqtt_front.feeds.group_store import Groups
from mqtt_front.feeds.in_flight_window import InFlightWindow
from mqtt_front.feeds.shared_reads import Cursor
from mqtt_front.feeds.subscription import Grant, Subscription
from mqtt_front.kernel import loops
from mqtt_front.retained.messages import RetainedMessages
from timestone.errors import OffsetOutOfRange
from timestone.filters import FilterTree, topic_matches
from timestone.format.names import is_server_log
from timestone.log import Log
from timestone.metrics.records import SERVER_ROOT
from timestone.reader import Reader
from timestone.reading.batch import Batch

if TYPE_CHECKING:
    from mqtt_front.sessions.session import Session


_FEW_FILTERS = 8
"""Up to this many filters are matched one by one with a new topic: ten thousand clients with one filter each need no
trees."""


class FeedState(enum.Enum):
    """State of a feed. Each has exactly one event that ends it."""

    DETACHED = enum.auto()
    """Without a reader, until it is attached."""
    READY = enum.auto()
    """In the queue of `delivery`."""
    READING = enum.auto()
    """A thread reads from the disk for it, until its result."""
    SAVING = enum.auto()
    """Packets at QoS 2 wait until the session is durable; then they are sent."""
    PARKED = enum.auto()
    """At the end of the log, until an append that concerns it."""
    BLOCKED = enum.auto()
    """The client is slow or its window is full, until an acknowledgement or a drained socket."""


class LogSource(NamedTuple):
    """A log to make feeds of, with what its feeds share."""

    log: Log
    heads: dict[int, bytes]
    """Topic names with their length, as in a PUBLISH, by topic id."""
    retained: RetainedMessages
    groups: Groups
    partition: int | None = None
    """Number of the partition of a log that has several."""

    @classmethod
    def of(cls, log: Log, groups: Groups | None = None) -> "LogSource":
        """Return a source without any known topics."""
        return cls(log, {}, RetainedMessages(log), Groups() if groups is None else groups)


def own_key(source: LogSource, topic_filter: str) -> str:
    """Return the key of a feed that serves one subscription only."""
    return f"{source.log.key}/{topic_filter}"


OnWake = Callable[[tuple["Feed", Cursor]], None]
"""Called by the appending thread, once after each park, with the feed and its cursor."""


class FeedWake:
    """Call of a reader of a feed for the wake-up. `Delivery` takes the feed from it where it need not be called."""

    __slots__ = ("_on_wake", "feed")

    def __init__(self, feed: "Feed", on_wake: OnWake) -> None:
        self.feed = feed
        self._on_wake = on_wake

    def __call__(self, reader: Reader, first_offset: int) -> None:
        self._on_wake((self.feed, reader))


class Feed(loops.ServedFeed):
    """Feed of one session from one log."""

    __slots__ = (
        "_acknowledged_count", "_grants", "_heads", "_on_wake", "_reads_all", "_tree", "key", "ready_ns", "sent_below",
        "source", "subscriptions",
    )  # fmt: skip

    def __init__(
        self,
        session: "Session",
        source: LogSource,
        seen: int,
        in_flight: Iterable[int] = (),
        key: str | None = None,
    ) -> None:
        self.session = session
        self.source = source
        self.log = source.log
        self.key = source.log.key if key is None else key
        """Key of the feed in its session."""
        self._heads = source.heads
        self.takes_singles = True
        """Whether a record may be sent as `SingleDelivery` does, without `took` and `gave`."""
        self.window = InFlightWindow(seen, in_flight)
        self.state = FeedState.DETACHED
        self.ready_ns = 0
        """When it became ready, by `time.perf_counter_ns`."""
        self.reader: Cursor | None = None
        self.resend: dict[int, tuple[int, int]] = {}
        """Packet id and QoS by offset of deliveries in flight before a reconnect that were not sent on this
        connection yet."""
        self.qos0_from = 0
        """Records below this offset are not delivered at QoS 0: they were published while the client was away."""
        self.sent_below = 0
        """Deliveries at QoS 1 below this offset have DUP: an earlier process may have sent them before it was
        killed."""
        self.subscriptions: dict[str, Subscription] = {}
        self.gap: int | None = None
        """First existing offset, if retention has deleted requested ones and the client was not informed yet."""
        self.tells_place = False
        """Whether deliveries to MQTT 5 state the position of the record, because the subscription names a log."""
        self._acknowledged_count = 0
        """Number of subscriptions at QoS 1 and 2."""
        self._reads_all = False
        self._tree: FilterTree[str] | None = None
        self._grants: dict[int, Grant | None] = {}
        self.forms: dict[int, Form | None] = {}
        """Cached results of `form` by topic id; dropped when they may change."""

    @property
    def replaying(self) -> bool:
        """Return whether the feed is between the committed offset and what was sent before the reconnect: only
        offsets in `resend` are delivered."""
        return bool(self.resend)

    @property
    def needs_packet_ids(self) -> bool:
        """Return whether a delivery may need an acknowledgement, and so room in the window."""
        return self._acknowledged_count > 0 or bool(self.resend)

    @property
    def idle(self) -> bool:
        """Return whether the feed can neither deliver nor get an acknowledgement any more."""
        return not self.subscriptions and not self.window.in_flight_count

    @property
    def patterns(self) -> list[str]:
        """Return the filters that topics must match."""
        return [one.pattern for one in self.subscriptions.values()]

    def change(self, changed: Mapping[str, Subscription | None]) -> None:
        """Change the subscriptions about this log, by topic filter; None for those that ended. The cost depends on
        the changes only. An attached feed is DETACHED afterwards, until it is made ready."""
        subscriptions = self.subscriptions
        added, removed = [], []
        for topic_filter, one in changed.items():
            old = subscriptions.get(topic_filter)
            if one is not None:
                subscriptions[topic_filter] = one
                self._acknowledged_count += one.qos > 0
                self.tells_place |= one.form.log is not None  # all of them, or none
                if old is None:
                    added.append((one.pattern, topic_filter))
            elif old is not None:
                del subscriptions[topic_filter]
                removed.append((old.pattern, topic_filter))
            if old is not None:
                self._acknowledged_count -= old.qos > 0
        if self._tree is not None:
            for pattern, topic_filter in removed:
                self._tree.remove(pattern, topic_filter)
            for pattern, topic_filter in added:
                self._tree.add(pattern, topic_filter)
        elif len(subscriptions) > _FEW_FILTERS:
            self._tree = FilterTree()
            for one in subscriptions.values():
                self._tree.add(one.pattern, one.topic_filter)
        self.forget_grants()
        if self.reader is not None and not self.replaying:
            self._renew([pattern for pattern, _ in added], [pattern for pattern, _ in removed])

    def attach(
        self,
        resend: dict[int, tuple[int, int]],
        on_wake: OnWake,
        missed_qos0: bool = False,
    ) -> int:
        """Get a reader that continues at the committed offset. Return the number of offsets that retention has deleted
        since.

        on_wake: called by the appending thread. missed_qos0: also deliver records at QoS 0 published while the
        client was away. A reader for `resend` reads every topic, because the subscriptions may have ended."""
        self._on_wake = on_wake
        self.forms.clear()  # they may be for a client of another version
        if is_server_log(self.log.name):
            self.forget_grants()  # or of another address
        self.qos0_from = 0 if missed_qos0 else self.log.end_offset
        start = self.window.committed
        self.resend = resend
        reached = self._open(start, None)
        self.resend = {offset: entry for offset, entry in resend.items() if offset >= reached}
        if not self.resend:
            self.end_replay()
        return max(0, reached - start)

    def end_replay(self) -> None:
        """End the redelivery after a reconnect: from here on the subscriptions decide."""
        self.resend = {}
        self._open(self.window.seen, self.patterns)
        self.state = FeedState.DETACHED

    def _renew(self, added: Collection[str] = (), removed: Collection[str] = ()) -> None:
        """Continue after the last examined offset with a new reader for changed patterns. Not the old one with other
        filters: a pending wake-up for the old filters would move it past records that only the new ones match."""
        self.state = FeedState.DETACHED
        reader = self.reader
        if self._reads_all or not isinstance(reader, Reader):
            self._open(self.window.seen, self.patterns)
            return
        try:
            self._use(reader.successor(self.window.seen, added, removed))
        except OffsetOutOfRange:  # retention has deleted it
            self._open(self.window.seen, self.patterns)

    def _open(self, start: int, filters: Sequence[str] | None) -> int:
        """Open a reader at `start`, or at the nearest existing offset, for topics that match a filter, None for all.
        Return its offset."""
        if self.reader is not None:
            self.reader.close()
        self._reads_all = filters is None
        try:
            reader = self.log.reader(start, topics=filters)
        except OffsetOutOfRange as error:
            reader = self.log.reader("earliest" if start < error.start else "latest", topics=filters)
        self._use(reader)
        return reader.offset

    def _use(self, reader: Reader) -> None:
        reader.on_wake = FeedWake(self, self._on_wake)
        self.reader = reader

    # Called around each read by the event loop. The read itself may happen in another thread.

    def prepare(self) -> bool | None:
        """Prepare a read. Return True if it makes no system call, None if there is nothing to read until the next
        wake-up."""
        assert self.reader is not None
        return self.log.in_memory(self.reader.offset)

    def passed(self) -> None:
        """Skip this feed's turn: its client takes nothing."""

    def took(self, batch: Batch) -> Batch:
        """Note a read batch and return the part of it to deliver."""
        return batch

    def gave(self, batch: Batch) -> None:
        """Note that the batch was packed: what is not in flight now needs no delivery."""

    def failed(self) -> None:
        """Note that the read failed."""

    def lost(self, first_left: int) -> None:
        """Note that the offsets up to this one are gone: deleted by retention, or in a lost segment."""

    def detach(self) -> None:
        """Return the reader. A running read keeps its own reference and is discarded."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None
        self.resend = {}
        self.state = FeedState.DETACHED

    def grant(self, topic_id: int) -> Grant | None:
        """Return what the subscriptions grant for a topic; computed once a topic."""
        try:
            return self._grants[topic_id]
        except KeyError:
            topic = self.log.topics.name(topic_id)
            matching = (
                []
                if topic is None or not self.may_read(topic_id)
                else [self.subscriptions[name] for name in self._matching(topic)]
            )
            grant = Grant(matching, self.key, self.head(topic_id)) if matching else None
            self._grants[topic_id] = grant
            return grant

    def _matching(self, topic: str) -> Iterable[str]:
        if self._tree is not None:
            return self._tree.matches(topic)
        return [name for name, one in self.subscriptions.items() if topic_matches(one.pattern, topic)]

    def may_read(self, topic_id: int) -> bool:
        """Return whether the client may receive messages of this topic."""
        topic, permissions = self.log.topics.name(topic_id) or "", self.session.permissions
        if topic.partition("/")[0] == SERVER_ROOT and not self.session.reads_server:
            return False
        return permissions is None or permissions.may_read(topic)

    def forget_grants(self) -> None:
        """Recompute the grants after a change of the client's rights."""
        self._grants.clear()
        self.forms.clear()

    def form(self, topic_id: int, *, with_block: bool) -> Form | None:
        """Return how plain records of a topic are sent; None if they are not."""
        grant = self.grant(topic_id)
        if grant is None:
            return None
        block = grant.block if with_block else b""
        return Form(grant.head, block, grant.qos, grant.retain_as_published, grant.plain_from)

    def head(self, topic_id: int) -> bytes:
        """Return a topic name with its length, as in a PUBLISH."""
        head = self._heads.get(topic_id)
        if head is None:
            head = self._heads[topic_id] = text(self.log.topics.name(topic_id) or "")
        return head
