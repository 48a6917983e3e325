"""What one session gets from one log: a reader while the client is connected, and the window of what is in
flight.

The feed knows which records the session's subscriptions grant. It does not read by itself; `delivery` does.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mqtt_front.codec.fields import text
from mqtt_front.codec.frame import Form
from mqtt_front.feeds.group_store import Groups
from mqtt_front.feeds.in_flight_window import Window
from mqtt_front.feeds.subscription import Grant, Subscription
from mqtt_front.retained.messages import RetainedMessages
from timestone.errors import OffsetOutOfRange
from timestone.filters import FilterTree, topic_matches
from timestone.log import Log
from timestone.reader import Reader
from timestone.reading.batch import Batch
from timestone.reading.tail_cache import SingleRecord

if TYPE_CHECKING:
    from mqtt_front.sessions.session import Session


_FEW_FILTERS = 8
"""Up to so many are tried one by one on a new topic: ten thousand clients with one each need no trees."""


class FeedState(enum.Enum):
    """Where a feed is. Exactly one of these holds at any time, and each has exactly one who moves it on."""

    DETACHED = enum.auto()
    """No reader. Attaching moves it on."""
    READY = enum.auto()
    """In the queue of `delivery`, which will look at it."""
    READING = enum.auto()
    """A thread reads from the disk for it; its result moves it on."""
    SAVING = enum.auto()
    """Packets at QoS 2 wait until the session is durable; then they go out and the feed moves on."""
    PARKED = enum.auto()
    """Caught up; the next append that concerns it moves it on."""
    BLOCKED = enum.auto()
    """The client is slow or has as much in flight as it may; an acknowledgement or a drained socket moves it
    on."""


class LogSource(NamedTuple):
    """A log that feeds can be made of, and what all its feeds share."""

    log: Log
    heads: dict[int, bytes]
    """By topic id: the topic name behind its length, as it stands in a PUBLISH."""
    retained: RetainedMessages
    groups: Groups

    @classmethod
    def of(cls, log: Log, groups: Groups | None = None) -> "LogSource":
        """Nothing is known yet but the log."""
        return cls(log, {}, RetainedMessages(log), Groups() if groups is None else groups)


class Cursor(Protocol):
    """What a feed reads from: a `timestone.reader.Reader`, or what behaves like one. `wake` may be called by any
    thread, the others by the one that serves the feed."""

    @property
    def offset(self) -> int: ...
    @property
    def caught_up(self) -> bool: ...
    def read(self, *, max_records: int = ..., max_bytes: int = ..., max_scan: int | None = None) -> Batch: ...
    def park(self) -> bool: ...
    def seek(self, offset: int) -> None: ...
    def close(self) -> None: ...


def own_key(source: LogSource, topic_filter: str) -> str:
    """The name that a feed of one subscription only has in its session."""
    return f"{source.log.name}/{topic_filter}"


OnWake = Callable[[tuple["Feed", Cursor]], None]
"""Called by the thread that appended, once after each park, with the feed and what it reads from."""


class Feed:
    """One session's view of one log."""

    __slots__ = (
        "_acknowledged_count", "_grants", "_heads", "_on_wake", "_reads_all", "_tree", "forms", "gap", "key",
        "log", "qos0_from", "reader", "resend", "session", "source", "state", "subscriptions", "tells_place", "window",
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
        self.key = source.log.name if key is None else key
        """Its name in the session."""
        self._heads = source.heads
        self.window = Window(seen, in_flight)
        self.state = FeedState.DETACHED
        self.reader: Cursor | None = None
        self.resend: dict[int, tuple[int, int]] = {}
        """After a reconnect: packet id and QoS of each offset in flight that was not sent on this connection
        yet."""
        self.qos0_from = 0
        """What would be sent at QoS 0 is left out below this offset: it was published while the client was
        away."""
        self.subscriptions: dict[str, Subscription] = {}
        self.gap: int | None = None
        """The first offset that is left, when retention has taken some that were asked for and the client was not told
        yet."""
        self.tells_place = False
        """Deliveries to MQTT 5 say where in the log their record is: that is what the client asked about."""
        self._acknowledged_count = 0
        """Subscriptions at QoS 1 and 2."""
        self._reads_all = False
        self._tree: FilterTree[str] | None = None
        self._grants: dict[int, Grant | None] = {}
        self.forms: dict[int, Form | None] = {}
        """What `form` said, by topic id, for whoever asks often; forgotten when it may say something else."""

    @property
    def replaying(self) -> bool:
        """Between the committed offset and what was sent before the reconnect: only what is in `resend` goes
        out."""
        return bool(self.resend)

    @property
    def needs_packet_ids(self) -> bool:
        """A delivery may be acknowledged, so there must be room for it in flight."""
        return self._acknowledged_count > 0 or bool(self.resend)

    @property
    def idle(self) -> bool:
        """There is nothing this feed could ever deliver or get acknowledged."""
        return not self.subscriptions and not self.window.in_flight_count

    @property
    def patterns(self) -> list[str]:
        """The filters that topics have to match."""
        return [one.pattern for one in self.subscriptions.values()]

    def change(self, changed: Mapping[str, Subscription | None]) -> None:
        """Subscriptions of the session that are about this log, by topic filter: new ones, replaced ones, and None for
        those that ended. The cost is that of what changes, not of what stays. An attached feed is DETACHED after it,
        until it is made ready."""
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
        """Get a reader that continues at the committed offset; returns how many offsets retention has taken meanwhile.

        `on_wake` is called by the thread that appends. `missed_qos0`: also deliver what was published while the client
        was away and goes out at QoS 0. A reader that has to find records for `resend` looks at every topic: their
        subscriptions may be gone.
        """
        self._on_wake = on_wake
        self.forms.clear()  # they were for a client of another version, perhaps
        self.qos0_from = 0 if missed_qos0 else self.log.end_offset
        start = self.window.committed
        self.resend = resend
        reached = self._open(start, None)
        self.resend = {offset: entry for offset, entry in resend.items() if offset >= reached}
        if not self.resend:
            self.end_replay()
        return max(0, reached - start)

    def end_replay(self) -> None:
        """All that was in flight before the reconnect is sent again: only the subscriptions count from here
        on."""
        self.resend = {}
        self._open(self.window.seen, self.patterns)
        self.state = FeedState.DETACHED

    def _renew(self, added: Collection[str] = (), removed: Collection[str] = ()) -> None:
        """Go on with a new reader that knows the subscriptions of now, behind everything that was looked at. Some
        patterns were added and some removed.

        Not the old one with other filters: a wake-up that was meant for the old filters may still be on its
        way to it and would carry it past records that only the new ones match.
        """
        self.state = FeedState.DETACHED
        reader = self.reader
        if self._reads_all or not isinstance(reader, Reader):
            self._open(self.window.seen, self.patterns)
            return
        try:
            self._use(reader.successor(self.window.seen, added, removed))
        except OffsetOutOfRange:  # retention has passed it
            self._open(self.window.seen, self.patterns)

    def _open(self, start: int, filters: Sequence[str] | None) -> int:
        """A reader at `start`, or at the nearest offset that is left, of the topics that match a filter, None for all;
        returns where."""
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
        on_wake = self._on_wake
        reader.on_wake = lambda woken, _: on_wake((self, woken))
        self.reader = reader

    # Around each read, in the event loop's thread. The read itself may happen in another one.

    def prepare(self) -> bool | None:
        """A read is next: True when it makes no system call, None when there is nothing to read until the feed is
        woken."""
        assert self.reader is not None
        return self.log.in_memory(self.reader.offset)

    def single(self) -> SingleRecord | None:
        """The next record, when it is a plain one that was appended by itself, and goes out like any other; None when
        that takes a closer look. Does not move."""
        if not isinstance(self.reader, Reader):
            return None
        found = self.reader.single()
        return found if found is not None and self.goes_out(found) else None

    def goes_out(self, record: SingleRecord) -> bool:
        """Does a record of this feed go out like any other?"""
        return not (record.header_length or self.resend or self.gap is not None or self.tells_place)

    def passed(self) -> None:
        """It would be this feed's turn, but its client takes nothing."""

    def took(self, batch: Batch) -> Batch:
        """A batch was read; returns what of it is to be delivered."""
        return batch

    def gave(self, batch: Batch) -> None:
        """The batch was packed: what is not in flight by now never will be."""

    def failed(self) -> None:
        """The read failed."""

    def lost(self, first_left: int) -> None:
        """What lies between the next record to be read and this offset is gone: retention has taken it, or a segment is
        lost."""

    def detach(self) -> None:
        """Give the reader back. A read that is under way keeps its own reference and finds that it came too
        late."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None
        self.resend = {}
        self.state = FeedState.DETACHED

    def grant(self, topic_id: int) -> Grant | None:
        """What the subscriptions grant for a topic; worked out once a topic."""
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
        """May the session's client receive what is published to this topic?"""
        permissions = self.session.permissions
        return permissions is None or permissions.may_read(self.log.topics.name(topic_id) or "")

    def forget_grants(self) -> None:
        """What the client may receive has changed: work out again what each topic comes to."""
        self._grants.clear()
        self.forms.clear()

    def form(self, topic_id: int, *, with_block: bool) -> Form | None:
        """How plain records of a topic go out; None when they do not."""
        grant = self.grant(topic_id)
        if grant is None:
            return None
        block = grant.block if with_block else b""
        return Form(grant.head, block, grant.qos, grant.retain_as_published, grant.plain_from)

    def head(self, topic_id: int) -> bytes:
        """A topic name behind its length, as it stands in a PUBLISH."""
        head = self._heads.get(topic_id)
        if head is None:
            head = self._heads[topic_id] = text(self.log.topics.name(topic_id) or "")
        return head
