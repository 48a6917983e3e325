"""Feeds are always in one state that an event can end: parked, ready, being read, blocked. None is lost, none is busy
without work."""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import pytest

import timestone
from mqtt_front.delivery.delivery import Delivery
from mqtt_front.feeds.feed import Feed, FeedState, FeedWake, LogSource
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.kernel import loops, single_delivery
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.traces import NO_TRACES
from mqtt_front.sessions.session import InFlight, Session
from tests.support.committed import committed
from tests.support.manual_loop import ManualLoop
from tests.support.mqtt_clients import FakeClient
from timestone.errors import CorruptRecord
from timestone.log import Log
from timestone.reader import Reader
from timestone.reading.batch import Batch
from timestone.reading.wakeups import Woken
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch
from timestone_access.throttled_log import ThrottledLog

needs_kernel = pytest.mark.skipif(
    loops.NAME != "native", reason="the compiled kernel was not built: make install"
)


class Parts:
    """A delivery over one log, turned by hand."""

    def __init__(self, log: Log, executor: ThreadPoolExecutor) -> None:
        self.log = log
        self.loop = ManualLoop()
        self.changes: list[Session] = []
        self.saves: list[Callable[[], None]] = []
        self.delivery = Delivery(
            self.loop, executor, ThrottledLog(logging.getLogger("test")), self, PassingTime()
        )
        self.source = LogSource.of(log)

    def changed(self, session: Session) -> None:
        self.changes.append(session)

    def save(self, session: Session, then: Callable[[], None]) -> None:
        """Mark as durable when the test decides, for sessions that outlive their connections."""
        if session.expiry_s:
            self.saves.append(then)
        else:
            then()

    def saved(self) -> None:
        """Everything saved so far is durable."""
        saves, self.saves = self.saves, []
        for then in saves:
            then()
        self.loop.settle()

    def client(self, *filters: str, qos: int = 1, inflight_limit: int = 65_535) -> tuple[Session, FakeClient]:
        session, client = Session("c"), FakeClient(inflight_limit=inflight_limit)
        for topic_filter in filters or ("#",):
            session.subscribe(Subscription(topic_filter, qos), [self.source])
        self.attach(session, client)
        return session, client

    def attach(self, session: Session, client: FakeClient) -> None:
        session.client = client
        session.attach(self.delivery.wake)
        self.delivery.start(session)
        self.loop.settle()

    def leave(self, session: Session) -> None:
        session.client = None
        session.detach()

    def publish(self, *payloads: bytes, topic: str = "t", qos: int = 1) -> None:
        write_batch = WriteBatch(list(payloads), self.log.topic_id(topic), flags=qos << 1)
        self.log.append_batch(write_batch, ack="written")

    def publish_at_once(self, payload: bytes, topic: str = "t") -> None:
        """Append one record as the loop's own thread does."""
        write_batch = WriteBatch.single(payload, self.log.topic_id(topic), 2)
        self.delivery.serve_woken(*self.append_now(write_batch))

    def append_now(self, write_batch: WriteBatch) -> tuple[list[Woken], int]:
        """Append in the loop's own thread; return what `serve_woken` takes."""
        woken: list[Woken] = []
        appended = self.log.append_now(write_batch, woken)
        if appended is None:
            assert self.log.end_offset == 0, "only the first append has to prepare files and names"
            appended = self.log.append_batch(write_batch, ack="written")
            self.loop.settle()
        return woken, perf_counter_ns()

    def acknowledge(self, session: Session, client: FakeClient, count: int | None = None) -> list[bytes]:
        """Acknowledge all deliveries; return their payloads."""
        taken = client.take()
        for one in taken[:count]:
            session.acknowledged([one.packet_id] if one.qos else [])
        self.delivery.resume(session)
        self.loop.settle()
        return [one.payload for one in taken]

    def state(self, session: Session) -> FeedState:
        return session.feeds[self.log.name].state


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.fixture
def parts(store: Store, executor: ThreadPoolExecutor) -> Parts:
    return Parts(store.log("mqtt"), executor)


def test_caught_up_feed_is_parked_and_woken_by_a_matching_append(parts: Parts) -> None:
    session, client = parts.client("a")
    assert parts.state(session) is FeedState.PARKED
    parts.publish(b"not for you", topic="b")
    assert parts.loop.wakeup_count == 0
    parts.publish(b"1", b"2", topic="a")
    assert parts.loop.wakeup_count == 1
    parts.loop.settle()
    assert [one.payload for one in client.take()] == [b"1", b"2"]
    assert parts.state(session) is FeedState.PARKED
    assert session in parts.changes


def test_one_append_wakes_the_loop_once_for_all_its_readers(parts: Parts) -> None:
    clients = [parts.client("a") for _ in range(50)]
    parts.publish(b"x", topic="a")
    assert parts.loop.wakeup_count == 1
    parts.loop.settle()
    assert all(len(client.take()) == 1 for _, client in clients)


@needs_kernel
def test_parked_client_is_sent_the_loops_own_record_without_a_read(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [parts.client("t"), parts.client("+"), parts.client("other")]
    parts.publish_at_once(b"0")  # from now on it is known how records of this topic go out
    rung = parts.loop.wakeup_count
    with monkeypatch.context() as patched:
        patched.setattr(Reader, "read", None)
        parts.publish_at_once(b"1")
        parts.publish_at_once(b"2")
    assert [[one.payload for one in client.take()] for _, client in found] == [[b"0", b"1", b"2"]] * 2 + [[]]
    assert [session.outstanding for session, _ in found] == [3, 3, 0]
    assert parts.delivery.counts.delivered == 6
    assert parts.loop.wakeup_count == rung
    assert all(parts.state(session) is FeedState.PARKED for session, _ in found)


@needs_kernel
@pytest.mark.parametrize("why", ["full window", "full socket", "saving", "another record", "gap"])
def test_inline_delivery_does_pending_work_first(parts: Parts, why: str) -> None:
    session, client = parts.client("t", inflight_limit=2)
    feed = session.feeds["mqtt"]
    parts.publish_at_once(b"0")
    if why == "full window":
        parts.publish_at_once(b"1")
    elif why == "full socket":
        client.writable = False
    elif why == "saving":
        session.expiry_s, session.saving_count = 60, 1
    elif why == "gap":
        feed.gap = 0
    write_batch = WriteBatch.single(b"2", parts.log.topic_id("t"), 2)
    if why == "another record":  # the committer has appended this one, and the loop the one behind it
        parts.publish(b"1")
    woken, began_ns = parts.append_now(write_batch)
    sent = len(client.publishes)
    parts.delivery.serve_woken(woken, began_ns)
    if why in ("full window", "full socket", "saving"):
        assert len(client.publishes) == sent
    client.writable = True
    parts.saved()
    received = parts.acknowledge(session, client) + parts.acknowledge(session, client)
    assert received == [b"0", b"1", b"2"] if why in ("full window", "another record") else [b"0", b"2"]


@needs_kernel
def test_feeds_woken_by_the_loops_own_append_can_be_served_in_the_same_turn(parts: Parts) -> None:
    session, client = parts.client("a")
    parts.publish(b"0", topic="a")
    parts.loop.settle()
    assert len(client.take()) == 1
    woken, began_ns = parts.append_now(WriteBatch([b"1"], parts.log.topic_id("a"), flags=2))
    parts.delivery.serve_woken(woken, began_ns)
    assert [one.payload for one in client.take()] == [b"1"]
    parts.delivery.serve_woken([], began_ns)  # no client is left
    parts.loop.settle()
    assert client.take() == [] and parts.state(session) is FeedState.PARKED
    parts.publish(b"2", topic="a")
    parts.loop.settle()
    assert [one.payload for one in client.take()] == [b"2"]


def test_idle_delivery_schedules_no_work(parts: Parts) -> None:
    parts.client("a")
    parts.loop.settle()
    assert not parts.loop._calls and not parts.loop.timers


def test_full_window_blocks_until_an_acknowledgement(parts: Parts) -> None:
    session, client = parts.client(inflight_limit=3)
    parts.publish(*[b"%d" % number for number in range(10)])
    parts.loop.settle()
    assert parts.state(session) is FeedState.BLOCKED
    assert parts.acknowledge(session, client) == [b"0", b"1", b"2"]
    assert parts.acknowledge(session, client, count=1) == [b"3", b"4", b"5"]
    assert [one.payload for one in client.take()] == [b"6"]
    assert session.outstanding == 3


def test_qos_0_needs_no_place_in_the_window(parts: Parts) -> None:
    session, client = parts.client("t", qos=0, inflight_limit=1)
    parts.publish(*[b"%d" % number for number in range(10)])
    parts.loop.settle()
    assert len(client.take()) == 10
    assert parts.state(session) is FeedState.PARKED


def test_feed_is_not_read_while_its_client_does_not_read(parts: Parts) -> None:
    session, client = parts.client()
    client.writable = False
    parts.publish(b"1")
    parts.loop.settle()
    assert parts.state(session) is FeedState.BLOCKED and client.publishes == []
    client.writable = True
    parts.delivery.resume(session)
    parts.loop.settle()
    assert [one.payload for one in client.take()] == [b"1"]


def test_slow_client_does_not_delay_others(parts: Parts) -> None:
    slow, _ = parts.client(inflight_limit=1)
    _, quick = parts.client()
    parts.publish(*[b"x"] * 5000)
    parts.loop.settle()
    assert len(quick.take()) == 5000
    assert parts.state(slow) is FeedState.BLOCKED


def test_feeds_far_behind_are_served_in_turn(parts: Parts) -> None:
    clients = [parts.client()[1] for _ in range(3)]
    parts.publish(*[b"x"] * 4000)
    while not all(client.publishes for client in clients):
        parts.loop.turn()
    assert max(len(client.publishes) for client in clients) < 4000, (
        "no client got all before everybody got some"
    )


def test_reconnecting_client_continues_at_its_position(parts: Parts) -> None:
    session, client = parts.client()
    parts.publish(b"1", b"2", b"3")
    parts.loop.settle()
    first = client.take()
    session.acknowledged([first[0].packet_id])
    parts.leave(session)
    parts.publish(b"4")
    parts.loop.settle()
    again = FakeClient()
    parts.attach(session, again)
    taken = again.take()
    assert [(one.payload, one.duplicate) for one in taken] == [
        (b"2", True), (b"3", True), (b"4", False),
    ]  # fmt: skip
    assert [one.packet_id for one in taken[:2]] == [one.packet_id for one in first[1:]]
    assert parts.acknowledge(session, again) == []
    assert parts.state(session) is FeedState.PARKED
    parts.publish(b"5")
    parts.loop.settle()
    assert [one.payload for one in again.take()] == [b"5"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_resend_is_bounded_by_the_window_of_the_new_connection(parts: Parts, limit: int) -> None:
    session, client = parts.client()
    parts.publish(*[b"%d" % number for number in range(20)])
    parts.loop.settle()
    assert len(client.take()) == 20
    parts.leave(session)
    again = FakeClient(inflight_limit=limit)
    parts.attach(session, again)
    got: list[bytes] = []
    while again.publishes:
        assert len(again.publishes) <= limit
        got += parts.acknowledge(session, again)
    assert got == [b"%d" % number for number in range(20)]
    assert committed(session) == {"mqtt": 20}


def test_qos_2_delivery_waits_for_durable_packet_ids_and_keeps_the_order(parts: Parts) -> None:
    session, client = parts.client(qos=2)
    session.expiry_s = 100
    parts.publish(b"1", qos=2)
    parts.loop.settle()
    assert parts.state(session) is FeedState.SAVING and client.publishes == []
    session.subscribe(Subscription("other", 0), [parts.source])
    parts.delivery.start(session)
    parts.publish(b"2", topic="other", qos=0)
    parts.loop.settle()
    assert client.publishes == [], "not before what was there first"
    parts.saved()
    parts.saved()
    taken = client.take()
    assert [(one.payload, one.qos) for one in taken] == [(b"1", 2), (b"2", 0)]
    assert session.accepted([taken[0].packet_id]) == [taken[0].packet_id]
    assert session.outstanding == 1, "until PUBCOMP"
    assert committed(session) == {"mqtt": 2}
    assert session.completed([taken[0].packet_id]) == []
    assert session.outstanding == 0


def test_qos_2_delivery_of_a_temporary_session_is_not_delayed(parts: Parts) -> None:
    session, client = parts.client(qos=2)
    parts.publish(b"1", qos=2)
    parts.loop.settle()
    assert [one.qos for one in client.take()] == [2]
    assert parts.state(session) is FeedState.PARKED


def test_records_durable_after_a_disconnect_are_not_sent_to_the_next_connection(parts: Parts) -> None:
    session, client = parts.client(qos=2)
    session.expiry_s = 100
    parts.publish(b"1", qos=2)
    parts.loop.settle()
    parts.leave(session)
    again = FakeClient()
    parts.attach(session, again)
    parts.saved()
    assert client.publishes == []
    assert [(one.payload, one.duplicate) for one in again.take()] == [(b"1", True)]


def test_additional_subscription_wakes_a_parked_feed(parts: Parts) -> None:
    session, client = parts.client("a")
    session.subscribe(Subscription("b", 1), [parts.source])
    parts.delivery.start(session)
    parts.loop.settle()
    parts.publish(b"1", topic="b")
    parts.loop.settle()
    assert [one.payload for one in client.take()] == [b"1"]


@pytest.fixture
def short_tail(tmp_path: Path, executor: ThreadPoolExecutor) -> Iterator[Parts]:
    """A store with a minimal tail: feeds that are behind are read from the disk."""
    with timestone.open(tmp_path / "short", tail_bytes=1) as store:
        yield Parts(store.log("mqtt"), executor)


def test_records_outside_the_tail_are_read_by_another_thread(
    short_tail: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = short_tail
    session, client = parts.client()
    reading: list[str] = []
    read = Reader.read

    def noticed(reader: Reader, **limits: Any) -> Batch:
        if not parts.source.log.in_memory(reader.offset):
            reading.append(threading.current_thread().name)
        return read(reader, **limits)

    monkeypatch.setattr(Reader, "read", noticed)
    for number in range(100):
        parts.publish(b"%d" % number)
    parts.loop.run_until(lambda: len(client.publishes) == 100)
    assert [one.payload for one in client.take()] == [b"%d" % number for number in range(100)]
    assert reading and threading.current_thread().name not in reading
    parts.loop.run_until(lambda: parts.state(session) is FeedState.PARKED)


def test_read_that_ends_after_a_disconnect_is_discarded(short_tail: Parts) -> None:
    parts = short_tail
    session, client = parts.client()
    parts.publish(b"1")
    parts.loop.run_until(lambda: parts.state(session) is FeedState.READING)
    parts.leave(session)
    again = FakeClient()
    parts.attach(session, again)
    parts.loop.run_until(lambda: bool(again.publishes))
    assert [one.payload for one in again.take()] == [b"1"]
    assert client.publishes == []


def test_subscribing_during_a_read_from_the_disk_misses_nothing(
    short_tail: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, subscribed = short_tail, threading.Event()
    read, loop_thread = Reader.read, threading.current_thread()

    def read_later(reader: Reader, **limits: Any) -> Batch:
        assert threading.current_thread() is loop_thread or subscribed.wait(10)
        return read(reader, **limits)

    monkeypatch.setattr(Reader, "read", read_later)
    session, client = parts.client("a")
    parts.publish(b"1", topic="a")
    parts.loop.run_until(lambda: parts.state(session) is FeedState.READING)
    session.subscribe(Subscription("b", 1), [parts.source])
    parts.delivery.start(session)
    subscribed.set()
    parts.publish(b"2", topic="b")
    parts.loop.run_until(lambda: len(client.publishes) >= 2)
    assert [one.payload for one in client.take()] == [b"1", b"2"]


def test_offsets_deleted_by_retention_are_skipped_counted_and_logged(
    parts: Parts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, client = parts.client(inflight_limit=1)
    parts.publish(*[b"%d" % number for number in range(10)])
    parts.loop.settle()
    monkeypatch.setattr(parts.log, "_start_offset", 6)
    assert parts.acknowledge(session, client) == [b"0"]
    assert [one.payload for one in client.take()] == [b"6"]
    assert parts.delivery.counts.gap == 5
    assert "retention took offsets 1 to 5" in caplog.text


def test_corrupt_record_is_skipped_and_logged(
    parts: Parts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = parts.client()
    parts.publish(b"0", b"1")
    original, damaged = parts.log.read_matching, [True]

    def read_matching(offset: int, *arguments: object, **options: object) -> object:
        if damaged:
            damaged.clear()
            raise CorruptRecord(parts.log.folder, offset, "crc")
        return original(offset, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(parts.log, "read_matching", read_matching)
    parts.loop.settle()
    assert [one.payload for one in client.take()] == [b"1"]
    assert parts.delivery.counts.corrupt == 1
    assert "offset 0 is corrupt" in caplog.text


def test_failed_read_is_repeated_later(
    parts: Parts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, client = parts.client()
    parts.publish(b"0")
    with monkeypatch.context() as broken:

        def fail(*arguments: object, **options: object) -> object:
            raise OSError(5, "Input/output error")

        broken.setattr(parts.log, "read_matching", fail)
        parts.loop.settle()
        assert parts.state(session) is FeedState.BLOCKED
    parts.loop.pass_time(2)
    assert [one.payload for one in client.take()] == [b"0"]
    assert "Input/output error" in caplog.text


def test_closing_store_stops_its_feeds_silently(parts: Parts, store: Store) -> None:
    session, _ = parts.client()
    store.close()
    parts.loop.settle()
    assert parts.state(session) in (FeedState.DETACHED, FeedState.PARKED)


@needs_kernel
def test_single_records_are_delivered_without_a_batch(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    session, client = parts.client("t")
    parts.publish(b"the topic is known from now on")
    parts.loop.settle()

    def no_batch(*_: object, **__: object) -> None:
        raise AssertionError("a batch was read")

    monkeypatch.setattr(Reader, "read", no_batch)
    for number in range(3):
        parts.publish(b"%d" % number)
        parts.loop.settle()
    assert [one.payload for one in client.publishes[1:]] == [b"0", b"1", b"2"]
    assert session.feeds["mqtt"].state is FeedState.PARKED
    parts.publish(b"elsewhere", topic="u")
    parts.loop.settle()
    assert len(client.publishes) == 4


def crowd(parts: Parts, seed: int) -> list[tuple[Session, FakeClient]]:
    """Connect clients of a few kinds, each of which comes more than once."""
    chance, found = random.Random(seed), []
    for number in range(40):
        limit = chance.choice([3, 65_535])
        client = FakeClient(chance.choice([4, 5]), chance.choice([1 << 28, 1 << 28, 9]), limit)
        session = Session(f"c{number}", chance.choice([0, 60]))
        names = chance.choice([["t"], ["t"], ["#"], ["t", "u"], ["u"], ["t", "+"]])
        for name in names:
            one = Subscription(name, chance.choice([0, 0, 0, 1]), retain_as_published=chance.random() < 0.2)
            session.subscribe(one, [parts.source])
        parts.attach(session, client)
        found.append((session, client))
    return found


@needs_kernel
@pytest.mark.parametrize("seed", range(20))
def test_shared_packets_are_what_each_client_would_have_been_sent(
    store: Store, executor: ThreadPoolExecutor, seed: int
) -> None:
    shared_count, log = 0, store.log("mqtt")

    class Counted(loops.SingleDelivery):
        def send(self, feed: Feed) -> int:
            nonlocal shared_count
            seen = feed.window.seen
            sent: int = super().send(feed)
            shared_count += feed.window.seen > seen + 1  # not a single record
            return sent

    one, other = (Parts(log, executor) for _ in range(2))
    for parts, kind in ((one, Counted), (other, single_delivery.SingleDelivery)):
        delivery = parts.delivery
        delivery._single = kind(
            FeedState.PARKED, InFlight, parts.changed, delivery.counts, NO_TRACES, FeedWake
        )
    chance, sides = random.Random(seed), [(parts, crowd(parts, seed)) for parts in (one, other)]
    for number in range(40):
        payloads = [b"%d" % (1000 * number + place) for place in range(chance.randrange(1, 6))]
        flags = chance.choice([0, 0, 1, 2, 3])  # RETAIN, and QoS 1
        log.append_batch(WriteBatch(payloads, log.topic_id(chance.choice("ttu")), flags=flags), ack="written")
        stuck, moved = chance.randrange(40), chance.random()
        for parts, clients in sides:
            session, client = clients[stuck]
            if moved < 0.2:
                client.writable = not client.writable
            elif moved < 0.5 and session.client is not None:
                parts.leave(session)  # what comes at QoS 0 until it is back is not for it
            elif moved < 0.5:
                parts.attach(session, client)
            elif moved < 0.7 and session.client is not None:
                parts.acknowledge(session, client)
            if client.writable:
                parts.delivery.resume(session)
            if number % 3:
                parts.loop.settle()
    for parts, _ in sides:
        parts.loop.settle()
    for mine, theirs in zip(sides[0][1], sides[1][1], strict=True):
        assert mine[1].publishes == theirs[1].publishes
        assert mine[1].delivery_count == theirs[1].delivery_count
        feeds = [session.feeds.get("mqtt") for session in (mine[0], theirs[0])]
        states = [
            feed and (feed.state, feed.window.seen, feed.reader and feed.reader.offset) for feed in feeds
        ]
        assert states[0] == states[1]
        assert (mine[0].outstanding, mine[0].packet_ids.last) == (
            theirs[0].outstanding,
            theirs[0].packet_ids.last,
        )
    assert one.delivery.counts.by_log == other.delivery.counts.by_log
    assert {session.key for session in one.changes} == {session.key for session in other.changes}
    assert shared_count > 3


@needs_kernel
def test_shared_packets_are_not_for_a_client_that_was_away(parts: Parts) -> None:
    others = [parts.client("t", qos=0) for _ in range(3)]
    late, late_client = parts.client("t", qos=0)
    parts.publish(b"seen", qos=0)
    parts.loop.settle()
    for _, client in others:
        client.writable = False
    parts.leave(late)
    # Two steps, in the first of which the client learns how records are sent to it.
    missed = [b"%d" % number for number in range(1500)]
    parts.publish(*missed, qos=0)
    parts.loop.settle()
    for session, client in others:
        client.writable = True
        parts.delivery.resume(session)
    parts.attach(late, late_client)
    for _, client in others:
        assert [one.payload for one in client.take()] == [b"seen", *missed]
    assert [one.payload for one in late_client.take()] == [b"seen"]


@needs_kernel
def test_closing_store_stops_feeds_that_could_have_shared_packets_silently(
    parts: Parts, store: Store
) -> None:
    found = [parts.client("t", qos=0) for _ in range(3)]
    parts.publish(b"seen", qos=0)
    parts.loop.settle()
    for _, client in found:
        client.writable = False
    parts.publish(b"a", b"b", qos=0)
    parts.loop.settle()
    for session, client in found:
        client.writable = True
        parts.delivery.resume(session)
        if session is found[1][0]:
            parts.loop.settle()
    store.close()
    parts.loop.settle()
    assert [len(client.take()) for _, client in found] == [3, 3, 1]
    assert parts.state(found[2][0]) is FeedState.DETACHED
