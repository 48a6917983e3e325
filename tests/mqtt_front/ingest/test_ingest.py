"""The publishes of one turn are one batch a log; acknowledgements are sent when the level is reached, in one write."""

import errno
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Puback, Publish, Pubrec
from mqtt_front.ingest.fair_share import LOOK_S, TURN_S
from mqtt_front.ingest.ingest import Ingest
from mqtt_front.ingest.routing import Router
from mqtt_front.kernel import loops
from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.retained.keeper import Appended
from tests.support.faulty_files import FaultyFiles
from tests.support.manual_loop import ManualLoop
from tests.support.publishing import Source
from tests.support.waiting import TIMEOUT_S
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.log import Log
from timestone.reader import Reader
from timestone.reading.wakeups import Woken
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch
from timestone_access.throttled_log import ThrottledLog

needs_kernel = pytest.mark.skipif(
    loops.NAME != "native", reason="the compiled kernel was not built: make install"
)


class Parts:
    """An ingest over two logs: `alarms` takes alarms/#, `mqtt` the rest."""

    def __init__(
        self, store: Store, ack: Ack = Ack.SYNCED, total_bytes: int = 1 << 30, client_bytes: int = 1 << 30
    ) -> None:
        self.loop = ManualLoop()
        self.logs = [store.log("mqtt"), store.log("alarms")]
        self.router = Router(self.logs, [("alarms/#", 1)], topic_levels=10)
        self.settled: dict[str, int] = {}
        self.appended: list[Appended] = []
        self.woken: list[Woken] = []
        self.ingest = Ingest(
            self.router,
            self.loop,
            ThrottledLog(logging.getLogger("test")),
            ack=ack,
            total_bytes=total_bytes,
            client_bytes=client_bytes,
            settled=self.settled,
            appended=self.appended.extend,
            written=self.written,
        )

    def written(self, readers: list[Woken], *_: object) -> None:
        self.woken += readers

    def settle(self) -> None:
        self.loop.run_until(lambda: self.ingest.settled)

    def know(self, *topics: bytes) -> None:
        """Add topics as if a client had published to them before."""
        self.ingest.add(
            Source(), Publishes.of([PublishRow(0x30, topic, b"", b"first", b"") for topic in topics])
        )
        self.settle()

    def gather(self, source: Source, *sent: Publish) -> int:
        """How many of these packets were taken."""
        wire = [encode_packet(packet, source.level) for packet in sent]
        buffer = bytearray(b"".join(wire))
        taken = self.ingest.gather(source, source.connection, buffer, 0, len(buffer))
        return [*itertools.accumulate(map(len, wire), initial=0)].index(taken)

    def payloads(self, number: int = 0) -> list[bytes]:
        return [record.payload for record in self.logs[number].reader()]


@pytest.fixture
def unflushed(tmp_path: Path) -> Iterator[Store]:
    """A store that flushes nothing by itself: during a flush the loop does not write."""
    with timestone.open(tmp_path / "unflushed", sync_interval_ms=3_600_000) as opened:
        yield opened


@pytest.fixture
def parts(store: Store) -> Parts:
    return Parts(store)


def run(*rows: tuple[str, bytes, int], qos: int = 1, size_bytes: int = 10) -> Publishes:
    """Publishes as (topic, payload, packet id); packet id 0 is QoS 0."""
    answer = {1: b"\x40\x02", 2: b"\x50\x02"}[qos]
    return Publishes.of(
        [
            PublishRow(
                0x30 | (qos << 1 if packet_id else 0),
                topic.encode(),
                b"",
                payload,
                answer + packet_id.to_bytes(2, "big") if packet_id else b"",
            )
            for topic, payload, packet_id in rows
        ],
        size_bytes,
    )


def test_ingest_reports_appended_records_and_whether_some_are_retained(parts: Parts) -> None:
    retained = PublishRow(0x33, b"alarms/x", b"", b"1", b"\x40\x02\0\1")
    parts.ingest.add(Source(), run(("t", b"1", 1), ("alarms/x", b"2", 2), ("t", b"3", 3)))
    parts.ingest.add(Source(), Publishes.of([retained], 10))
    parts.settle()
    assert sorted(parts.appended) == [
        Appended("alarms", range(2), True),
        Appended("mqtt", range(2), False),
    ]


@needs_kernel
def test_wait_for_earlier_publishes_ends_when_the_log_has_them(parts: Parts) -> None:
    known: list[dict[str, int]] = []

    def ask() -> None:
        parts.ingest.once_settled(lambda: known.append(dict(parts.settled)))

    ask()
    assert known == [{}], "nothing was"
    parts.ingest.add(Source(), run(("t", b"1", 1)))
    ask()
    parts.ingest.flush()
    ask()
    assert len(known) == 1
    parts.settle()
    assert known[1:] == [{"mqtt": 1}, {"mqtt": 1}]
    assert parts.gather(Source(), Publish("t", b"2")) == 1
    ask()
    assert len(known) == 3
    parts.settle()
    assert known[3:] == [{"mqtt": 2}]


def test_publishes_of_one_turn_are_one_batch_a_log(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[tuple[str, int, Ack]] = []
    original = Log.submit

    def submit(log: Log, write_batch: WriteBatch, *, ack: Ack, **how: Any) -> Submission:
        submitted.append((log.name, write_batch.count, ack))
        return original(log, write_batch, ack=ack, **how)

    monkeypatch.setattr(Log, "submit", submit)
    sources = [Source() for _ in range(20)]
    for number, source in enumerate(sources):
        parts.ingest.add(source, run(("a", b"%d" % number, 1), ("b", b"x", 2)))
    parts.ingest.add(sources[0], run(("alarms/a", b"fire", 0)))
    parts.settle()
    assert submitted == [("mqtt", 40, Ack.SYNCED), ("alarms", 1, Ack.WRITTEN)]
    assert parts.payloads()[:4] == [b"0", b"x", b"1", b"x"]
    assert parts.payloads(1) == [b"fire"]


def test_acknowledgements_of_a_connection_are_one_write_in_order_of_arrival(parts: Parts) -> None:
    source = Source()
    parts.ingest.add(source, run(("a", b"1", 7), ("a", b"2", 0), ("a", b"3", 5)))
    parts.ingest.add(source, run(("b", b"4", 6)))
    parts.settle()
    assert source.writes == [[Puback(7), Puback(5), Puback(6)]]
    assert source.submitted_bytes == 0 and parts.ingest.submitted_bytes == 0


def test_publish_is_not_acknowledged_before_its_level_is_reached(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions: list[Submission] = []
    original = Log.submit

    def submit(log: Log, write_batch: WriteBatch, *, ack: Ack, **how: Any) -> Submission:
        submissions.append(original(log, write_batch, ack=ack, **how))
        return submissions[-1]

    monkeypatch.setattr(Log, "submit", submit)
    source = Source()
    parts.ingest.add(source, run(("a", b"1", 1)))
    assert source.writes == []
    parts.loop.turn()
    (submission,) = submissions
    assert submission.wait(TIMEOUT_S) == range(0, 1)
    assert parts.logs[0].synced_offset == 1
    parts.settle()
    assert source.acknowledged == [1]


def test_publish_at_level_memory_is_acknowledged_at_once_and_counted(store: Store) -> None:
    parts, source = Parts(store, ack=Ack.MEMORY), Source()
    parts.ingest.add(source, run(("a", b"1", 1)))
    parts.loop.turn()
    assert source.acknowledged == [1]
    assert source.submitted_bytes == 10
    parts.settle()
    assert (source.acknowledged, source.submitted_bytes) == ([1], 0)


def test_flags_headers_and_topics_reach_the_record(parts: Parts) -> None:
    block = bytes.fromhex("02 0000 01000000 78")  # content type "x"
    publishes = Publishes.of([
        PublishRow(0x31, b"a", b"", b"1", b""),
        PublishRow(0x3B, b"b", block, b"2", b"\x40\2\0\1"),
        PublishRow(0x32, b"a", b"", b"3", b"\x40\2\0\2"),
    ])  # fmt: skip
    parts.ingest.add(Source(), run(("c", b"0", 0)))
    parts.ingest.add(Source(), publishes)
    parts.settle()
    records = list(parts.logs[0].reader())
    assert [(record.topic, record.payload, record.flags, len(record.block)) for record in records] == [
        ("c", b"0", 0, 0),
        ("a", b"1", 1, 0),
        ("b", b"2", 1 | 1 << 1, 1),
        ("a", b"3", 1 << 1, 0),
    ]


def test_run_for_several_logs_is_acknowledged_in_order(parts: Parts) -> None:
    source = Source()
    parts.ingest.add(
        source, run(("a", b"1", 1), ("alarms/x", b"2", 2), ("a", b"3", 3), ("alarms/y", b"4", 4))
    )
    parts.settle()
    assert source.acknowledged == [1, 2, 3, 4]
    assert parts.payloads() == [b"1", b"3"]
    assert parts.payloads(1) == [b"2", b"4"]


def test_publish_at_qos_2_is_answered_with_pubrec(parts: Parts) -> None:
    source = Source()
    parts.ingest.add(source, run(("a", b"1", 1), qos=2))
    parts.ingest.add(source, run(("a", b"2", 2)))
    parts.settle()
    assert source.writes == [[Pubrec(1), Puback(2)]]


def test_qos_2_source_learns_the_outcome_of_each_publish_before_the_answer(parts: Parts) -> None:
    source = Source(5)
    source.exactly_once = True
    parts.ingest.add(source, run(("a", b"1", 1), qos=2))
    parts.ingest.add(source, run(("$share/x", b"2", 2), qos=2))
    parts.ingest.repeat(source, [b"\0\1"])
    parts.settle()
    first, second, again = (bytes((0x50, 2, 0, packet_id)) for packet_id in (1, 2, 1))
    assert source.settlements == [(first, 0), (second, 0x90), (again, 0)]
    assert source.writes == [[Pubrec(1), Pubrec(2, 0x90), Pubrec(1)]]
    assert parts.settled == {"mqtt": 1}


def test_repeated_publish_alone_is_answered(parts: Parts) -> None:
    source = Source()
    parts.ingest.repeat(source, [b"\0\7"])
    parts.settle()
    assert source.writes == [[Pubrec(7)]]


def test_repetition_fails_when_its_publish_was_not_stored(parts: Parts) -> None:
    source = Source(5)
    source.lost.add(b"\x50\2\0\7")
    parts.ingest.repeat(source, [b"\0\6", b"\0\7"])
    parts.settle()
    assert source.writes == [[Pubrec(6), Pubrec(7, 0x83)]]


def test_refused_topic_is_answered_in_mqtt_5_and_ends_mqtt_3(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    new, old, silent = Source(5), Source(4), Source(4)
    parts.ingest.add(new, run(("a", b"1", 1), ("$share/x", b"2", 2), ("a", b"3", 3)))
    parts.ingest.add(old, run(("a", b"4", 1), ("$share/x", b"5", 2)))
    parts.ingest.add(silent, run(("$share/x", b"6", 0), ("a", b"7", 0)))
    parts.settle()
    assert new.writes == [[Puback(1), Puback(2, 0x90), Puback(3)]]
    assert old.refusals == ["a publish was refused: TOPIC_NAME_INVALID"]
    assert silent.refusals == [], "QoS 0 is dropped, counted and logged"
    assert parts.payloads() == [b"1", b"3", b"4", b"7"]
    assert parts.ingest.dropped.total() == 3
    assert "$share/x" in caplog.text
    parts.ingest.add(Source(5), run(("/".join("deep" for _ in range(11)), b"8", 1)))
    assert "refused: TOPIC_NAME_INVALID, over topic_levels" in caplog.text


def test_invalid_topic_ends_the_run_after_earlier_publishes(parts: Parts) -> None:
    source = Source()
    fault = parts.ingest.add(source, run(("a", b"1", 1), ("a/#", b"2", 2), ("a", b"3", 3)))
    assert fault is not None
    parts.settle()
    assert source.acknowledged == [1]
    assert parts.payloads() == [b"1"]
    assert parts.ingest.add(source, run(("", b"x", 9))) is not None


def test_client_above_its_bound_is_not_read_until_half_is_settled(store: Store) -> None:
    parts = Parts(store, client_bytes=100)
    greedy, modest = Source(), Source()
    for _ in range(3):
        parts.ingest.add(greedy, run(("a", b"1", 0), size_bytes=50))
    parts.ingest.add(modest, run(("a", b"1", 0), size_bytes=50))
    assert greedy.held() and not modest.held()
    parts.settle()
    assert not greedy.held()


def test_every_publisher_is_held_above_the_total_bound(store: Store) -> None:
    parts = Parts(store, total_bytes=100)
    sources = [Source() for _ in range(4)]
    for source in sources:
        parts.ingest.add(source, run(("a", b"1", 1), size_bytes=40))
    assert [source.held() for source in sources] == [False, False, True, True]
    parts.settle()
    assert not any(source.held() for source in sources)


def test_full_disk_is_answered_in_mqtt_5_and_ends_mqtt_3(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with timestone.open(tmp_path / "full", min_free_bytes=1 << 60) as store:
        parts = Parts(store)
        new, old, silent = Source(5), Source(4), Source(4)
        parts.ingest.add(new, run(("a", b"1", 1), ("alarms/x", b"2", 2)))
        parts.ingest.add(old, run(("a", b"3", 3)))
        parts.ingest.add(silent, run(("a", b"4", 0)))
        parts.settle()
        assert new.writes == [[Puback(1, 0x97), Puback(2, 0x97)]]
        assert old.writes == [] and len(old.refusals) == 1
        assert silent.refusals == []
        assert parts.ingest.dropped.total() == 4
        assert "could not be stored" in caplog.text
        assert parts.ingest.submitted_bytes == 0


@pytest.mark.parametrize(("number", "reason"), [(errno.ENOSPC, 0x97), (errno.EIO, 0x83)])
def test_failed_log_is_logged_and_other_logs_continue(
    parts: Parts, number: int, reason: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(5)

    def fail(write_batch: WriteBatch, *, ack: Ack, done: Any, woken: object) -> Submission:
        submission = Submission(write_batch, ack, done)
        submission.resolve(OSError(number, "broken"))
        return submission

    monkeypatch.setattr(parts.logs[1], "submit", fail)
    parts.ingest.add(source, run(("a", b"1", 1), ("alarms/x", b"2", 2), ("a", b"3", 3)))
    parts.settle()
    assert source.writes == [[Puback(1), Puback(2, reason), Puback(3)]]
    assert parts.payloads() == [b"1", b"3"]


def test_closed_store_fails_publishes_like_other_errors(parts: Parts, store: Store) -> None:
    source = Source(5)
    store.close()
    parts.ingest.add(source, run(("a", b"1", 1)))
    parts.settle()
    assert source.writes == [[Puback(1, 0x83)]]


@needs_kernel
def test_fast_path_publishes_are_one_batch_and_answered_in_order(parts: Parts) -> None:
    parts.know(b"a")
    one, other = Source(), Source(5)
    assert parts.gather(one, Publish("a", b"1", 1, packet_id=1), Publish("a", b"2")) == 2
    assert parts.gather(other, Publish("a", b"3", 1, packet_id=7)) == 1
    assert parts.gather(one, Publish("a", b"4", 1, packet_id=2)) == 1
    assert not parts.ingest.settled
    parts.settle()
    assert parts.payloads() == [b"first", b"1", b"2", b"3", b"4"]
    assert (one.writes, other.writes) == ([[Puback(1), Puback(2)]], [[Puback(7)]])
    assert (one.connection.unacknowledged, other.connection.unacknowledged) == (2, 1)
    assert (one.submitted_bytes, parts.ingest.submitted_bytes) == (0, 0)
    assert (parts.ingest.received_count, parts.ingest.gathered_count) == (5, 4)
    assert parts.appended[-1] == Appended("mqtt", range(1, 5), retained=False)


@needs_kernel
def test_fast_path_keeps_the_order_with_general_publishes_of_a_turn(parts: Parts) -> None:
    parts.know(b"a")
    source = Source()
    assert parts.gather(source, Publish("a", b"1", 1, packet_id=1)) == 1
    parts.ingest.add(source, run(("a", b"2", 2)))
    assert parts.gather(source, Publish("a", b"3", 1, packet_id=3)) == 0
    parts.ingest.add(source, run(("a", b"3", 3)))
    parts.settle()
    assert parts.payloads() == [b"first", b"1", b"2", b"3"]
    assert source.acknowledged == [1, 2, 3]


@needs_kernel
def test_new_topics_are_learned_and_then_use_the_fast_path(parts: Parts) -> None:
    learning, other = Source(router=parts.router), Source()
    sent = [Publish(topic, topic.encode(), 1, packet_id=1) for topic in ("x", "y", "x")]
    assert parts.gather(other, *sent) == 0, "the topics are not in the cache"
    assert parts.gather(learning, *sent) == 3
    assert parts.gather(other, *sent) == 3
    assert parts.gather(learning, Publish("z", b""), Publish("$SYS/z", b"")) == 0, "one of them is refused"
    parts.settle()
    assert parts.payloads() == [b"x", b"y", b"x"] * 2
    assert (len(parts.router.logs[0].topics), parts.ingest.dropped.total()) == (2, 0)


@needs_kernel
def test_fast_path_takes_more_topics_than_one_run(parts: Parts) -> None:
    topics = [b"%d" % number for number in range(600)]
    parts.know(*topics)
    source = Source(5)
    sent = [Publish(topic.decode(), topic, 1, packet_id=1) for topic in topics]
    source.connection.unacknowledged = source.connection.room - 599
    assert parts.gather(source, *sent) == 0
    source.connection.unacknowledged -= 1
    assert parts.gather(source, *sent) == 600
    parts.settle()
    assert parts.payloads()[-600:] == topics
    assert source.connection.room == 0


def test_fast_path_is_not_used_at_level_memory(store: Store) -> None:
    parts = Parts(store, ack=Ack.MEMORY)
    parts.know(b"a")
    assert parts.gather(Source(), Publish("a", b"1", 1, packet_id=1)) == 0


@needs_kernel
def test_large_fast_path_batch_is_submitted_before_the_end_of_the_turn(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.know(b"a")
    write_batches: list[int] = []
    original = parts.logs[0].submit

    def submit(write_batch: WriteBatch, **how: Any) -> Submission:
        write_batches.append(write_batch.count)
        return original(write_batch, **how)

    monkeypatch.setattr(parts.logs[0], "submit", submit)
    source = Source()
    for number in range(5):
        parts.gather(source, Publish("a", b"%d" % number * 170_000))
    assert write_batches == [4]
    parts.settle()
    assert write_batches == [4, 1]


@needs_kernel
def test_bounds_hold_for_the_fast_path(store: Store) -> None:
    parts = Parts(store, client_bytes=100)
    parts.know(b"a")
    parts.loop.pass_time(LOOK_S)
    greedy = Source()
    held = []
    for _ in range(2):
        parts.gather(greedy, Publish("a", b"x" * 90))
        held.append(greedy.held())
    parts.settle()
    assert [*held, greedy.held()] == [False, True, False]


@needs_kernel
@pytest.mark.parametrize("plain", [True, False])
def test_flooding_client_takes_turns_beside_a_light_one(store: Store, *, plain: bool) -> None:
    parts = Parts(store, client_bytes=1000)
    parts.know(b"a")
    greedy = Source()
    if plain:
        parts.gather(greedy, Publish("a", b"x" * 600))
    else:
        parts.ingest.add(greedy, run(("a", b"x" * 600, 0), size_bytes=600))
    assert greedy.held()
    parts.settle()
    assert (greedy.held(), greedy.submitted_bytes) == (True, 0)
    parts.loop.pass_time(TURN_S)
    assert not greedy.held()


@needs_kernel
@pytest.mark.parametrize("ack", [Ack.WRITTEN, Ack.SYNCED])
def test_disk_error_is_reported_to_fast_path_sources(tmp_path: Path, ack: Ack) -> None:
    files = FaultyFiles()
    with timestone.open(tmp_path / "faulty", files=files) as store:
        parts = Parts(store, ack=ack)
        parts.know(b"a")
        new, old = Source(5), Source(4)
        fault = files.fail("pwrite", errno.ENOSPC, path=".segment")
        parts.gather(new, Publish("a", b"1", 1, packet_id=1))
        parts.gather(old, Publish("a", b"2", 1, packet_id=2))
        parts.settle()
        fault.lift()
        assert new.writes == [[Puback(1, 0x97)]]
        assert old.writes == [] and len(old.refusals) == 1
        assert (parts.ingest.dropped.total(), parts.ingest.submitted_bytes) == (2, 0)
        parts.gather(new, Publish("a", b"3", 1, packet_id=3))
        parts.settle()
        assert parts.payloads() == [b"first", b"3"]


def quick(parts: Parts) -> Reader:
    """Make the fast path apply: only the loop writes, a topic is known, and no write seems to take time. Return a
    parked reader."""
    log = parts.logs[0]
    log._end.inline_writes.now_s = lambda: 0.0
    log.append(b"first", topic="a", ack="written")
    reader = log.reader("latest")
    assert reader.park()
    return reader


@needs_kernel
def test_loop_writes_a_small_batch_itself_and_reports_it(unflushed: Store) -> None:
    parts, source = Parts(unflushed, ack=Ack.WRITTEN), Source()
    reader, wakeups = quick(parts), parts.loop.wakeup_count
    parts.ingest.add(source, run(("a", b"1", 1)))
    parts.loop.turn()
    assert source.acknowledged == [1], "in the same turn"
    assert (parts.woken, parts.loop.wakeup_count) == ([(reader, 1)], wakeups)


@needs_kernel
def test_loop_writes_at_level_synced_and_serves_readers_first(unflushed: Store) -> None:
    parts = Parts(unflushed)
    reader, source = quick(parts), Source()
    parts.ingest.add(source, run(("a", b"1", 1)))
    parts.loop.turn()
    assert parts.woken == [(reader, 1)]
    parts.settle()
    assert source.acknowledged == [1]
    assert parts.payloads() == [b"first", b"1"]
