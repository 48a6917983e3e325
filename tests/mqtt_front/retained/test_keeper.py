"""The retained messages are a function of the logs, independent of when they were saved."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.codec.properties import Properties
from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.protocol.header_block import header_block
from mqtt_front.retained.checkpoint import CHECKPOINT_KEY, decode_checkpoint, encode_retained
from mqtt_front.retained.keeper import SPACE, Appended, Retaining, has_retained
from mqtt_front.retained.messages import UNOWNED, RetainedMessage, RetainedMessages
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.user_share import Shares
from tests.support.damaged_json import DAMAGED_JSON
from tests.support.manual_loop import ManualLoop
from tests.support.step_clock import StepClock
from timestone.config import StoreConfig
from timestone.disk.clock import Clock
from timestone.errors import OffsetOutOfRange
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone.record import Header, HeaderKind, encode_headers
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def clocked(tmp_path: Path, clock: StepClock) -> Iterator[Store]:
    """A store whose records age by the given clock."""
    with Store(tmp_path / "clocked", StoreConfig(), clock=clock) as opened:
        yield opened


class Parts:
    """The retained messages of a store's logs, turned by hand; several one after the other are restarts."""

    def __init__(
        self,
        store: Store,
        executor: ThreadPoolExecutor,
        *names: str,
        clock: StepClock | None = None,
        **limits: Any,
    ) -> None:
        """`clock`: the store's own, where ages matter."""
        self.store, self.loop, self.clock = store, ManualLoop(), clock or StepClock(Clock().now_us())
        self.logs = [RetainedMessages(store.log(name)) for name in names or ("mqtt",)]
        bounds: dict[str, Any] = {"count_limit": 1000, "bytes_limit": 1 << 20, **limits}
        self.retaining = Retaining(
            self.logs, store.documents, self.loop, executor, executor, log=logging.getLogger("test"),
            time=PassingTime(self.clock), **bounds,
        )  # fmt: skip
        self.retaining.load()

    def values(self) -> dict[str, bytes]:
        self.retaining.follow()
        return {
            message.topic: message.payload
            for each in self.logs
            for topic in each._offsets
            if (message := each.get(topic)) is not None
        }

    def save(self) -> None:
        self.retaining.save()
        self.loop.run_until(lambda: self.retaining._writer._writing is None and not self.loop._calls)


def append(log: Log, topic: str, payload: bytes, retain: bool = True, block: bytes = b"") -> None:
    write_batch = WriteBatch(
        [block + payload], log.topic_id(topic), flags=2 | retain, header_lengths=len(block)
    )
    log.append_batch(write_batch, ack="written")


def test_runs_without_retained_records_are_not_read(
    store: Store, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(store, executor)
    log = parts.logs[0].log
    append(log, "a", b"1", retain=False)
    with monkeypatch.context() as patched:
        patched.setattr(log, "read", lambda offset: pytest.fail("it was read"))
        parts.retaining.follow([Appended("mqtt", range(0, 1), False)])
    append(log, "b", b"2")  # by another appender, before the front's own append
    append(log, "c", b"3", retain=False)
    parts.retaining.follow([Appended("mqtt", range(2, 3), False)])
    assert parts.values() == {"b": b"2"}
    assert parts.logs[0].position == 3


def test_last_retained_record_of_each_topic_is_kept(store: Store, executor: ThreadPoolExecutor) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    append(log, "a", b"1")
    append(log, "a", b"2")
    append(log, "b", b"3")
    append(log, "b", b"", retain=False)
    append(log, "b", b"live", retain=False)
    append(log, "c", b"4")
    append(log, "c", b"", block=header_block(Properties(content_type="x")))
    assert parts.values() == {"a": b"2", "b": b"3"}


@pytest.mark.parametrize("damaged", [b'{"mqtt": [1, -1]}', *DAMAGED_JSON.values()])
def test_undecodable_checkpoint_is_replaced_by_reading_the_log(
    store: Store, executor: ThreadPoolExecutor, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    append(log, "a", b"1")
    parts.retaining.follow()
    parts.save()
    append(log, "b", b"2")
    store.documents.put_many(SPACE, {"": damaged})
    assert Parts(store, executor).values() == {"a": b"1", "b": b"2"}
    assert len(caplog.messages) == 1 and "read from their beginnings" in caplog.text


def test_document_with_invalid_headers_is_skipped(
    store: Store, executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    append(log, "a", b"1")
    parts.retaining.follow()
    parts.save()
    bad = RetainedMessage(0, 0, "bad", 3, b"\7\xff\xff\0\0\0\0", b"x")
    store.documents.put_many(SPACE, {"bad": encode_retained("mqtt", bad)})
    assert Parts(store, executor).values() == {"a": b"1"}
    assert len(caplog.messages) == 1 and "message of 'bad' is left alone: its headers" in caplog.text


@pytest.mark.parametrize("saves", [0, 1, 2, 3])
def test_restart_finds_retained_messages_after_any_last_save(
    store: Store, executor: ThreadPoolExecutor, saves: int
) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    for step in range(3):
        for number in range(10):
            append(log, f"t/{number}", b"%d" % step if (step, number) != (2, 3) else b"")
        parts.retaining.follow()
        if step < saves:
            parts.save()
    expected = {f"t/{number}": b"2" for number in range(10) if number != 3}
    assert parts.values() == Parts(store, executor).values() == expected


def test_start_continues_when_retention_deletes_unread_records(
    store: Store, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = store.log("mqtt")
    append(log, "a", b"1")
    append(log, "b", b"2")
    read = log.read

    def gone(offset: int) -> Batch:
        monkeypatch.setattr(log, "read", read)
        raise OffsetOutOfRange(offset, 1, 2)

    monkeypatch.setattr(log, "read", gone)
    assert Parts(store, executor).values() == {"b": b"2"}


def test_checkpoint_never_passes_an_unsaved_change(
    store: Store, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqtt_front.retained.keeper._SAVED_AT_A_TIME", 4)
    parts, log = Parts(store, executor), store.log("mqtt")
    for number in range(10):
        append(log, f"t/{number}", b"x")
    parts.retaining.follow()
    for saved in (4, 8, 10):
        parts.save()
        documents = store.documents.items(SPACE)
        assert decode_checkpoint(documents.pop(""))["mqtt"].offset == saved
        assert len(documents) == saved
        assert len(Parts(store, executor).values()) == 10
    assert parts.retaining.saved


def test_failed_save_is_repeated(
    store: Store,
    executor: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    append(log, "a", b"1")
    parts.retaining.follow()

    def refuse(space: str, items: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(store.documents, "put_many", refuse)
        parts.save()
    assert "could not save 2 of mqtt.retained: the disk is full" in caplog.text
    parts.loop.pass_time(1.0)
    parts.save()
    assert parts.retaining.saved and set(store.documents.items(SPACE)) == {"a", ""}


def test_message_of_a_deleted_log_is_forgotten_when_another_is_made_under_its_name(
    store: Store, executor: ThreadPoolExecutor
) -> None:
    parts, log = Parts(store, executor, "mqtt", "other"), store.log("mqtt")
    append(log, "x", b"old")
    append(log, "a", b"old")
    append(store.log("other"), "b", b"of the other")
    assert len(parts.values()) == 3
    parts.save()
    store.delete_log("mqtt")
    parts = Parts(store, executor, "mqtt", "other")
    assert parts.values() == {"b": b"of the other"}
    assert set(store.documents.items(SPACE)) == {"b", CHECKPOINT_KEY}
    append(store.log("mqtt"), "c", b"new")  # at the offset of the one that is gone
    assert Parts(store, executor, "mqtt", "other").values() == {"b": b"of the other", "c": b"new"}


def test_topic_routed_to_another_log_has_one_message(store: Store, executor: ThreadPoolExecutor) -> None:
    parts = Parts(store, executor, "one", "two")
    append(store.log("one"), "a", b"1")
    assert parts.values() == {"a": b"1"}
    append(store.log("two"), "a", b"2")
    parts.values()
    assert [len(each) for each in parts.logs] == [0, 1]
    append(store.log("two"), "a", b"")
    assert parts.values() == {}


def test_message_is_removed_when_it_expires(
    clocked: Store, clock: StepClock, executor: ThreadPoolExecutor
) -> None:
    parts, log = Parts(clocked, executor, clock=clock), clocked.log("mqtt")
    append(log, "a", b"x", block=header_block(Properties(message_expiry_interval=10)))
    assert parts.values() == {"a": b"x"}
    for passed_ms, left in ((9_000, 1), (2_000, 0)):
        parts.clock.advance(passed_ms)
        parts.retaining.expire()
        assert parts.retaining.count == left
    parts.save()
    assert set(clocked.documents.items(SPACE)) == {""}


def test_no_message_expires_when_the_clock_is_set_a_day_ahead(
    clocked: Store, clock: StepClock, executor: ThreadPoolExecutor
) -> None:
    parts, log = Parts(clocked, executor, clock=clock), clocked.log("mqtt")
    append(log, "a", b"x", block=header_block(Properties(message_expiry_interval=3600)))
    assert parts.values() == {"a": b"x"}
    parts.clock.step(86_400_000)
    parts.retaining.expire()
    assert parts.values() == {"a": b"x"}
    parts.clock.step(-2 * 86_400_000)
    parts.clock.advance(3_601_000)
    parts.retaining.expire()
    assert parts.values() == {}, "nor does one that is set back keep it"


def test_replaced_or_cleared_message_does_not_expire(
    clocked: Store, clock: StepClock, executor: ThreadPoolExecutor
) -> None:
    parts, log = Parts(clocked, executor, clock=clock), clocked.log("mqtt")
    for topic in "ab":
        append(log, topic, b"x", block=header_block(Properties(message_expiry_interval=10)))
    append(log, "a", b"stays")
    append(log, "b", b"")
    append(log, "b", b"later", block=header_block(Properties(message_expiry_interval=1000)))
    assert parts.values() == {"a": b"stays", "b": b"later"}
    parts.clock.advance(500_000)
    parts.retaining.expire()
    assert parts.values() == {"a": b"stays", "b": b"later"}
    parts.clock.advance(1_000_000)
    parts.retaining.expire()
    assert parts.values() == {"a": b"stays"}


def test_topic_published_repeatedly_is_processed_once(store: Store, executor: ThreadPoolExecutor) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    block = header_block(Properties(message_expiry_interval=10**9))
    write_batch = WriteBatch([block + b"x"] * 5000, log.topic_id("a"), flags=3, header_lengths=len(block))
    log.append_batch(write_batch, ack="written")
    assert parts.values() == {"a": b"x"}
    assert len(parts.retaining._expiries._heap) < 2000


def row(topic: str, payload: bytes = b"x", retain: bool = True) -> PublishRow:
    return PublishRow(0x32 | retain, topic.encode(), b"", payload, b"\x40\x02\0\1")


def test_limits_count_publishes_in_flight(store: Store, executor: ThreadPoolExecutor) -> None:
    parts = Parts(store, executor, count_limit=2, bytes_limit=100)
    retaining = parts.retaining
    first = Publishes.of([row("a"), row("b"), row("c"), row("a")])
    assert retaining.over_limit(first, "o") == {2: "retained_count"}
    other = Publishes.of([row("d"), row("d", retain=False), row("d", b"")])
    assert retaining.over_limit(other, "o") == {0: "retained_count"}
    append(store.log("mqtt"), "a", b"1")
    retaining.follow()
    retaining.forget_expected()  # b was never appended
    grown = Publishes.of([row("e"), row("a", bytes(200)), row("a", bytes(90))])
    assert retaining.over_limit(grown, "o") == {1: "retained_bytes"}
    assert retaining.refused_count == 3


def owned(key: str, will: bool = False) -> bytes:
    """The header block of a message of a client, or of its will."""
    return encode_headers([Header(HeaderKind.WILL if will else HeaderKind.PUBLISHER, "", key.encode())])


def test_messages_count_for_the_owner_of_the_last_publisher(
    store: Store, executor: ThreadPoolExecutor
) -> None:
    parts, log = Parts(store, executor, shares=Shares(users=True)), store.log("mqtt")
    append(log, "a", b"1", block=owned("c\0alice"))
    append(log, "b", b"22", block=owned("c\0alice\x005", will=True))
    append(log, "c", b"333", block=owned("anonymous"))
    append(log, "d", b"4")
    append(log, "a", b"55", block=owned("c\0bob"))
    append(log, "e", b"6", block=owned("d\0alice"))
    append(log, "e", b"")
    for restarted in (False, True):
        if restarted:
            parts.save()
            parts = Parts(store, executor, shares=Shares(users=True))
        parts.retaining.follow()
        (messages,) = parts.logs
        owners = ("\0alice", "\0bob", "", UNOWNED)
        assert [messages.counts.of(owner) for owner in owners] == [1, 1, 1, 1]
        assert messages.sizes.of("\0bob") == 1 + len(owned("c\0bob")) + 2
        assert messages.sizes.total == parts.retaining.size_bytes


def test_one_owner_leaves_its_share_to_others(store: Store, executor: ThreadPoolExecutor) -> None:
    parts = Parts(store, executor, shares=Shares(50), count_limit=4, bytes_limit=200)
    retaining, log = parts.retaining, store.log("mqtt")

    def refused(owner: str, *rows: PublishRow) -> dict[int, str]:
        return retaining.over_limit(Publishes.of(rows), owner)

    over = "user_share_percent"
    assert refused("greedy", row("a"), row("b"), row("c"), row("a")) == {2: over}
    for topic in "ab":
        append(log, topic, b"x", block=owned("greedy"))
    retaining.follow()
    retaining.forget_expected()
    assert refused("greedy", row("a"), row("c"), row("b", b"")) == {1: over}
    assert refused("greedy", row("a", bytes(120))) == {0: over}
    append(log, "m", b"x", block=owned("modest"))
    retaining.follow()
    assert refused("greedy", row("m")) == {0: over}, "a topic of another one is one more of its own"
    assert refused("modest", row("a"), row("n")) == {1: over}
    assert refused("third", row("c", bytes(90)), row("d")) == {1: "retained_count"}


def test_runs_without_the_retain_flag_are_skipped() -> None:
    assert not has_retained(Publishes.of([row("a", retain=False)] * 3))
    assert has_retained(Publishes.of([row("a", retain=False), row("a")]))


def test_records_outside_the_tail_are_read_by_a_thread(
    store: Store, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = store.log("mqtt")
    parts = Parts(store, executor)
    append(log, "a", b"1")
    append(log, "b", b"2")
    in_memory = log.in_memory
    monkeypatch.setattr(log, "in_memory", lambda offset: offset > 0 and in_memory(offset))
    called: list[int] = []
    assert not parts.logs[0].catch_up()
    parts.logs[0].waiting.append(lambda: called.append(1))
    parts.loop.run_until(lambda: bool(called))
    assert parts.values() == {"a": b"1", "b": b"2"}
