"""The way out: feeds that have something to read are served in turn, a bounded step each.

A feed is served when an append woke it, its client acknowledged something, or its socket drained; never by a
timer. What is in memory is read at once; what is only on the disk is read by a thread, because the event loop
must not wait for a disk. A slow client's feed is blocked and costs nothing until the client moves.
"""

import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mqtt_front.codec.frame import frame_acknowledgements
from mqtt_front.delivery.packing import Packed, pack, pack_single
from mqtt_front.feeds.feed import Cursor, Feed, FeedState, OnWake
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from mqtt_front.runtime.throttled_log import Complaints
from mqtt_front.sessions.session import Client, Session
from timestone.errors import CorruptRecord, OffsetOutOfRange, OffsetsLost, StoreClosed
from timestone.log import Log
from timestone.reader import Reader
from timestone.reading.batch import Batch
from timestone.reading.tail_cache import SingleRecord
from timestone.writing.write_batch import Draft

_STEP_RECORDS = 1024
_STEP_BYTES = 128 * 1024
"""What one feed gets in one step: enough to be worth a write, little enough that ten thousand feeds take
turns."""
_SCAN_RECORDS = 65_536
"""Records of other topics that one step looks past."""
_FEEDS_A_TURN = 64
_RETRY_S = 1.0
_PUBREL = 0x62
_PARKED, _BLOCKED = FeedState.PARKED, FeedState.BLOCKED
"""For what happens at each message: a look into an enumeration takes longer than one at a global name."""


@dataclass(slots=True)
class DeliveryCounts:
    """What happened to records on their way out."""

    delivered: int = 0
    oversize: int = 0
    expired: int = 0
    gap: int = 0
    """Offsets that retention took before a session came to them."""
    corrupt: int = 0


class Saver(Protocol):
    """Keeps sessions: what `Sessions` does for deliveries."""

    def changed(self, session: Session) -> None:
        """Offsets of the session moved."""

    def save(self, session: Session, then: Callable[[], None]) -> None:
        """Call `then` once the session is durable as it is now; in the order of the calls."""


class _Step(NamedTuple):
    """What one read was about, until it is dealt with."""

    feed: Feed
    reader: Cursor
    replay_end: int | None
    """Where what was sent before the reconnect ends; None when that is over."""
    next_offset: int


class Delivery:
    """Serves the feeds of connected sessions. All methods but `wake` belong to the event loop's thread."""

    def __init__(
        self, loop: Loop, executor: Executor, complaints: Complaints, sessions: Saver, time: PassingTime
    ) -> None:
        """`executor` runs reads that touch the disk."""
        self._loop = loop
        self._executor = executor
        self._complaints = complaints
        self._sessions = sessions
        self._time = time
        self._ready: deque[Feed] = deque()
        self._scheduled = False
        self._wakes: Mailbox[tuple[Feed, Cursor]] = Mailbox(loop, self._woken)
        self.wake: OnWake = self._wakes.put
        """An append concerns a parked feed. Called by the thread that appended."""
        self._reads: Mailbox[tuple[Feed, Cursor, Batch | Exception]] = Mailbox(loop, self._read)
        self.counts = DeliveryCounts()

    def start(self, session: Session) -> None:
        """The session's client is connected, or its subscriptions changed: see to feeds that nobody looks
        after."""
        for feed in session.feeds_in_order(FeedState.DETACHED):
            if feed.reader is None:  # it is new: nothing was published while the client was away
                feed.attach({}, self.wake, missed_qos0=True)
            self._make_ready(feed)

    def resume(self, session: Session) -> None:
        """The client takes more."""
        for feed in session.feeds.values():
            if feed.state is _BLOCKED:
                break
        else:
            return
        for feed in session.feeds_in_order(_BLOCKED):
            self._make_ready(feed)

    def expect_woken(self) -> None:
        """The loop's own thread is about to append something: `serve_woken` comes next."""
        self._wakes.attended = True

    def serve_woken(self, log: Log | None = None, draft: Draft | None = None, offset: int = 0) -> None:
        """Something was appended by the loop's own thread: serve whom it woke at once, not in a turn to come. If it was
        one draft for one log, at this offset, then whoever waited for its only record need not read it."""
        wakes = self._wakes
        wakes.attended = False
        if not wakes.waiting:
            return
        woken = wakes.take()
        if draft is not None and len(woken) <= _FEEDS_A_TURN and not self._ready:
            record, left = draft.single_at(offset), []
            for feed, reader in woken:
                if record is None or feed.log is not log or not self._sent_to(feed, reader, record):
                    left.append((feed, reader))
            woken = left
        if woken:
            self._scheduled = True
            self._woken(woken)
            self._run()

    def _woken(self, woken: list[tuple[Feed, Cursor]]) -> None:
        for feed, reader in woken:
            if feed.reader is reader and feed.state is FeedState.PARKED:
                self._make_ready(feed)

    def _make_ready(self, feed: Feed) -> None:
        feed.state = FeedState.READY
        self._ready.append(feed)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """One step for each ready feed, up to so many that others get their turn."""
        self._scheduled = False
        for _ in range(min(len(self._ready), _FEEDS_A_TURN)):
            feed = self._ready.popleft()
            if feed.state is FeedState.READY:
                self._serve(feed)
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
        if self._served_single(feed, reader, client):
            return
        in_memory = feed.prepare()
        if in_memory is None:
            feed.state = FeedState.PARKED
        elif in_memory:
            try:
                batch = reader.read(max_records=room, max_bytes=_STEP_BYTES, max_scan=_SCAN_RECORDS)
            except Exception as error:
                self._failed(feed, reader, error)
            else:
                self._deliver(feed, reader, batch)
        else:
            feed.state = FeedState.READING
            try:
                self._executor.submit(self._read_from_disk, feed, reader, room)
            except RuntimeError:  # the executor is shut down: the front is stopping
                feed.state = FeedState.DETACHED

    def _served_single(self, feed: Feed, reader: Cursor, client: Client) -> bool:
        """Most appends to a log of devices are of one record: is it one that goes out like any other?"""
        if not isinstance(reader, Reader):
            return False
        try:
            single = feed.single()
        except StoreClosed as error:
            self._failed(feed, reader, error)
            return True
        return single is not None and self._sent_single(feed, reader, client, single)

    def _sent_to(self, feed: Feed, reader: Cursor, record: SingleRecord) -> bool:
        """A record was appended, and a feed of its log woken: send it, if that is what the feed was woken for and
        nothing is in its way. False: nothing has happened."""
        session = feed.session
        client = session.client
        return (
            feed.reader is reader
            and isinstance(reader, Reader)
            and feed.state is _PARKED
            and reader.offset == record.offset
            and client is not None
            and client.writable
            and session.outstanding < client.inflight_limit
            and not (len(session.feeds) > 1 and session.must_wait(feed))
            and feed.goes_out(record)
            and self._sent_single(feed, reader, client, record)
        )

    def _sent_single(self, feed: Feed, reader: Reader, client: Client, record: SingleRecord) -> bool:
        """Send a record that goes out like any other; there is room in flight. False: nothing has happened."""
        session = feed.session
        if session.saving_count:
            return False
        data = pack_single(feed, record, client.target)
        if data is None:
            return False
        reader.offset = record.offset + 1
        self.counts.delivered += 1
        client.deliver(data)
        if session.expiry_s:
            self._sessions.changed(session)
        if reader.park():
            feed.state = _PARKED
        else:
            self._make_ready(feed)
        return True

    def _read_from_disk(self, feed: Feed, reader: Cursor, room: int) -> None:
        """In a thread of the executor."""
        try:
            outcome: Batch | Exception = reader.read(
                max_records=room, max_bytes=_STEP_BYTES, max_scan=16 * _SCAN_RECORDS
            )
        except Exception as error:
            outcome = error
        self._reads.put((feed, reader, outcome))

    def _read(self, outcomes: list[tuple[Feed, Cursor, Batch | Exception]]) -> None:
        for feed, reader, outcome in outcomes:
            if feed.reader is not reader:
                continue  # the client went, or subscribed to something else, while the disk was busy
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
        packed = pack(feed, batch, client.target, self._time)
        feed.gave(batch)
        self._send(step, client, packed)

    def _send(self, step: _Step, client: Client, packed: Packed) -> None:
        """Hand over what a step came to, at QoS 2 once the session is durable, and continue."""
        feed, session = step.feed, step.feed.session
        self._count(feed, packed)
        if not packed.exactly_once and not session.saving_count:
            if packed.data:
                client.deliver(packed.data)
            self._go_on(step)
            return
        feed.state = FeedState.SAVING
        session.saving_count += 1
        self._sessions.save(session, functools.partial(self._saved, step, client, packed.data))

    def _saved(self, step: _Step, client: Client, data: bytes) -> None:
        """The session is durable with the packet ids in `data`. Saves end in their order, so deliveries keep theirs."""
        session = step.feed.session
        session.saving_count -= 1
        if session.client is client:
            client.deliver(data)
        if step.feed.reader is step.reader and step.feed.state is FeedState.SAVING:
            self._go_on(step)

    def _go_on(self, step: _Step) -> None:
        """A step is done: read on, or wait for more."""
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
        """A read failed: continue behind what cannot be read, and say so."""
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
        """What was in flight before the reconnect was sent again, as far as it is still there."""
        session = feed.session
        forgotten = session.give_up(feed)
        if forgotten and session.client is not None:
            raw = [packet_id.to_bytes(2, "big") for packet_id in forgotten]
            session.client.deliver(frame_acknowledgements(_PUBREL, raw))
        feed.end_replay()
        self.resume(session)
