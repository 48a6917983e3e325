"""Outbound delivery: serves the feeds that have records to read, in turn, with a bounded step for each.

A feed is served when an append wakes it, when its client acknowledges a message, or when its socket drains; never by
a timer. Records in memory are read at once. Records only on disk are read by a thread, because the event loop must
not wait for a disk. The feed of a slow client is blocked, and costs nothing until the client reads."""

import functools
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import NamedTuple, Protocol

from mqtt_front.codec.frame import frame_acknowledgements
from mqtt_front.delivery.packing import Packed, pack
from mqtt_front.feeds.feed import Feed, FeedState, FeedWake, OnWake
from mqtt_front.feeds.shared_reads import Cursor, SharedReads
from mqtt_front.kernel.loops import SingleDelivery
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from mqtt_front.runtime.thread_work import ThreadWork
from mqtt_front.runtime.traces import NO_TRACES, Traces
from mqtt_front.sessions.session import Client, InFlight, Session
from timestone.errors import CorruptRecord, OffsetOutOfRange, OffsetsLost, StoreClosed
from timestone.metrics.histogram import Histogram
from timestone.reader import Reader
from timestone.reading.batch import Batch
from timestone.reading.wakeups import Wakeups, Woken
from timestone_access.throttled_log import ThrottledLog

_STEP_RECORDS = 1024
_STEP_BYTES = 128 * 1024
"""Maximum records of one step of a feed: worth a write, but short enough for ten thousand feeds to take turns."""
_SCAN_RECORDS = 65_536
"""Maximum records of other topics that one step skips."""
_FEEDS_A_TURN = 64
_RETRY_S = 1.0
_PUBREL = 0x62
_MORE = 2
"""Result of `SingleDelivery.send`: there is more to read."""
_PARKED, _BLOCKED = FeedState.PARKED, FeedState.BLOCKED
"""Used for each message: access to a global name is faster than access to a member of an enumeration."""


@dataclass(slots=True)
class DeliveryCounts:
    """Counters of outbound delivery."""

    delivered: int = 0
    oversize: int = 0
    expired: int = 0
    gap: int = 0
    """Offsets that retention deleted before a session read them."""
    corrupt: int = 0
    by_log: Counter[str] = field(default_factory=Counter)
    """Messages sent from each log."""
    latency: Histogram = field(default_factory=Histogram)
    """Time from when a subscription could be served, because of a publish or because its client had made room, until
    its messages were passed to the socket."""


class Saver(Protocol):
    """Store of sessions, as delivery sees it. Implemented by `Sessions`."""

    def changed(self, session: Session) -> None:
        """Note that offsets of the session have moved."""

    def save(self, session: Session, then: Callable[[], None]) -> None:
        """Call `then` when the current state of the session is durable, in the order of the calls."""


class _Step(NamedTuple):
    """Request of one read, until its result is handled."""

    feed: Feed
    reader: Cursor
    replay_end: int | None
    """Offset after the last delivery before the reconnect; None when redelivery is over."""
    next_offset: int


class Delivery:
    """Delivery to connected sessions. All methods except `wake` run in the thread of the event loop."""

    def __init__(
        self,
        loop: Loop,
        executor: Executor,
        throttled_log: ThrottledLog,
        sessions: Saver,
        time: PassingTime,
        remote_executor: Executor | None = None,
        *,
        traces: Traces = NO_TRACES,
    ) -> None:
        """executor: runs reads of the disk. remote_executor: runs those that may wait for a bucket."""
        self._loop = loop
        self._executor = executor
        self._remote_executor = remote_executor or executor
        self._complaints = throttled_log
        self._sessions = sessions
        self._time = time
        self._traces = traces
        self._ready: deque[Feed] = deque()
        self._scheduled = False
        self._wakes: Mailbox[tuple[Feed, Cursor]] = Mailbox(loop, self._woken)
        self.wake: OnWake = self._wakes.put
        """Note that an append concerns a parked feed. Called by the appending thread."""
        self._work = ThreadWork(loop)
        self._reads_in_memory = SharedReads()
        self.counts = DeliveryCounts()
        self._single = SingleDelivery(_PARKED, InFlight, sessions.changed, self.counts, traces, FeedWake)

    def start(self, session: Session) -> None:
        """Schedule feeds without a pending step, after a connect or a change of subscriptions."""
        for feed in session.feeds_in_order(FeedState.DETACHED):
            if feed.reader is None:  # a new feed: no record was published while the client was away
                feed.attach({}, self.wake, missed_qos0=True)
            self._make_ready(feed)

    def resume(self, session: Session) -> None:
        """Continue after the client has made room."""
        for feed in session.feeds.values():
            if feed.state is _BLOCKED:
                break
        else:
            return
        for feed in session.feeds_in_order(_BLOCKED):
            self._make_ready(feed)

    def serve_woken(self, woken: list[Woken], began_ns: int) -> None:
        """Wake the readers of an append of the event loop, and serve those of feeds at once. began_ns: start of the
        append, by `time.perf_counter_ns`."""
        if len(woken) <= _FEEDS_A_TURN and not self._ready:
            woken = self._single.serve(woken, began_ns)
        left: list[tuple[Feed, Cursor]] = []
        for reader, first_offset in woken:
            if type(reader) is not Reader or type(reader.on_wake) is not FeedWake:
                Wakeups.wake(((reader, first_offset),))
                continue
            if reader.offset < first_offset:  # as `Reader.wake` does, which costs two calls more
                reader.offset = first_offset
            left.append((reader.on_wake.feed, reader))
        if left:
            self._scheduled = True
            self._make_parked_ready(left, began_ns)
            self._run()

    def _woken(self, woken: list[tuple[Feed, Cursor]]) -> None:
        self._make_parked_ready(woken, self._wakes.rung_ns)

    def _make_parked_ready(self, woken: list[tuple[Feed, Cursor]], ready_ns: int) -> None:
        for feed, reader in woken:
            if feed.reader is reader and feed.state is FeedState.PARKED:
                self._make_ready(feed, ready_ns)

    def _make_ready(self, feed: Feed, ready_ns: int = 0) -> None:
        feed.state = FeedState.READY
        feed.ready_ns = ready_ns or perf_counter_ns()
        self._ready.append(feed)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Run one step for each ready feed, up to a limit, so that other work of the loop gets its turn."""
        self._scheduled = False
        for _ in range(min(len(self._ready), _FEEDS_A_TURN)):
            feed = self._ready.popleft()
            if feed.state is FeedState.READY:
                try:
                    sent = self._single.send(feed)
                except StoreClosed:
                    feed.state = FeedState.DETACHED
                    continue
                if not sent:
                    self._serve(feed)
                elif sent == _MORE:
                    self._make_ready(feed)
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _serve(self, feed: Feed) -> None:
        client, reader = feed.session.client, feed.reader
        if client is None or reader is None:
            feed.state = FeedState.DETACHED
            return
        room = _STEP_RECORDS
        if feed.needs_packet_ids:
            room = min(room, client.inflight_limit - feed.session.outstanding)
        if room <= 0 or not client.writable or feed.session.must_wait(feed):
            feed.state = FeedState.BLOCKED
            feed.passed()
            return
        in_memory = feed.prepare()
        if in_memory is None:
            feed.state = FeedState.PARKED
        elif in_memory:
            try:
                batch = self._reads_in_memory.read(
                    reader, max_records=room, max_bytes=_STEP_BYTES, max_scan=_SCAN_RECORDS
                )
            except Exception as error:
                self._failed(feed, reader, error)
            else:
                self._deliver(feed, reader, batch)
        else:
            feed.state = FeedState.READING
            is_local = reader.offset >= feed.log.local_start_offset
            executor = self._executor if is_local else self._remote_executor
            read = functools.partial(
                reader.read, max_records=room, max_bytes=_STEP_BYTES, max_scan=16 * _SCAN_RECORDS
            )
            if not self._work.run(executor, read, functools.partial(self._read, feed, reader)):
                feed.state = FeedState.DETACHED

    def _read(self, feed: Feed, reader: Cursor, outcome: Batch | Exception) -> None:
        if feed.reader is not reader:
            return  # the client disconnected or changed its subscriptions during the read
        if isinstance(outcome, Exception):
            self._failed(feed, reader, outcome)
        else:
            self._deliver(feed, reader, outcome)

    def _deliver(self, feed: Feed, reader: Cursor, batch: Batch) -> None:
        client = feed.session.client
        assert client is not None
        batch = feed.took(batch)
        seen = feed.window.seen
        step = _Step(feed, reader, seen if feed.replaying else None, batch.next_offset)
        if not len(batch):
            feed.window.seen = max(seen, batch.next_offset)
            self._go_on(step)
            return
        shared = self._reads_in_memory.last
        packed = pack(feed, batch, client.target, self._time, shared)
        feed.gave(batch)
        if shared is not None:
            for key in [key for key, one in shared.packets.items() if one is packed]:
                sent = packed.data, packed.delivered_count, batch.next_offset
                self._single.share(shared.place, key, sent)
        self._send(step, client, packed)
        if self._traces.is_open:
            self._traces.delivered(feed.log, batch.offsets)

    def _send(self, step: _Step, client: Client, packed: Packed) -> None:
        """Send the result of a step, at QoS 2 when the session is durable, and continue."""
        feed, session = step.feed, step.feed.session
        self._count(feed, packed)
        client.delivery_count += packed.delivered_count
        if not packed.exactly_once and not session.saving_count:
            self._pass_on(feed, client, packed)
            self._go_on(step)
            return
        feed.state = FeedState.SAVING
        session.saving_count += 1
        self._sessions.save(session, functools.partial(self._saved, step, client, packed))

    def _pass_on(self, feed: Feed, client: Client, packed: Packed) -> None:
        """Pass packets to the socket, and count them once for all messages of a step."""
        if packed.data:
            client.deliver(packed.data)
            self.counts.by_log[feed.log.name] += packed.delivered_count
            self.counts.latency.observe(perf_counter_ns() - feed.ready_ns, packed.delivered_count)

    def _saved(self, step: _Step, client: Client, packed: Packed) -> None:
        """Send when the session is durable with the packet ids in `packed`. Saves end in order, so deliveries keep
        theirs."""
        session = step.feed.session
        session.saving_count -= 1
        if session.client is client:
            self._pass_on(step.feed, client, packed)
        if step.feed.reader is step.reader and step.feed.state is FeedState.SAVING:
            self._go_on(step)

    def _go_on(self, step: _Step) -> None:
        """Finish a step: continue reading, or wait for more records."""
        feed = step.feed
        self._sessions.changed(feed.session)
        if step.replay_end is not None and (not feed.replaying or step.next_offset >= step.replay_end):
            self._end_replay(feed)
            self._make_ready(feed)
        elif step.reader.caught_up and step.reader.park():
            feed.state = FeedState.PARKED
        else:
            self._make_ready(feed)

    def _count(self, feed: Feed, packed: Packed) -> None:
        counts, client_id = self.counts, feed.session.client_id
        counts.delivered += packed.delivered_count
        counts.expired += packed.expired_count
        if packed.oversize_count:
            counts.oversize += packed.oversize_count
            message = f"records of log {feed.log.name} are too large for client {client_id!r}"
            self._complaints.warn(f"oversize {client_id}", message)

    def _failed(self, feed: Feed, reader: Cursor, error: Exception) -> None:
        """Continue after records that cannot be read, and log them."""
        client_id, name = feed.session.client_id, feed.log.name
        feed.failed()
        if isinstance(error, StoreClosed):
            feed.state = FeedState.DETACHED
            return
        if isinstance(error, OffsetOutOfRange):
            self.counts.gap += max(0, error.start - reader.offset)
            message = f"log {name}: retention took offsets {reader.offset} to {error.start - 1} before {client_id!r}"
            self._complaints.warn(f"gap {client_id}", message)
            feed.lost(error.start)
            self._skip(feed, reader, error.start)
        elif isinstance(error, CorruptRecord):
            self.counts.corrupt += error.next_offset - error.offset
            self._complaints.warn(f"corrupt {name}", f"log {name}: {error}; skipped for {client_id!r}")
            if isinstance(error, OffsetsLost):
                feed.lost(error.next_offset)
            self._skip(feed, reader, error.next_offset)
        else:
            self._complaints.warn(f"read {name}", f"log {name} cannot be read for {client_id!r}: {error}")
            feed.state = FeedState.BLOCKED
            self._loop.call_later(_RETRY_S, self.resume, feed.session)
            return
        self._make_ready(feed)

    def _skip(self, feed: Feed, reader: Cursor, offset: int) -> None:
        seen = feed.window.seen
        reader.seek(offset)
        if not feed.replaying:
            feed.window.seen = max(seen, offset)
        elif offset >= seen:
            feed.window.seen = offset
            self._end_replay(feed)

    def _end_replay(self, feed: Feed) -> None:
        """End the redelivery of messages that were in flight before the reconnect."""
        session = feed.session
        forgotten = session.give_up(feed)
        if forgotten and session.client is not None:
            raw = [packet_id.to_bytes(2, "big") for packet_id in forgotten]
            data = frame_acknowledgements(_PUBREL, raw)
            self._sessions.save(session, functools.partial(session.client.deliver, data))
        feed.end_replay()
        self.resume(session)
