"""The retained messages are a function of the logs, whatever was saved of them and when."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.codec.properties import Properties
from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.protocol.header_block import header_block
from mqtt_front.retained.checkpoint import decode_checkpoint, encode_retained
from mqtt_front.retained.keeper import SPACE, Appended, Retaining, has_retained
from mqtt_front.retained.messages import RetainedMessage, RetainedMessages
from mqtt_front.runtime.clocks import PassingTime
from tests.support.damaged_json import DAMAGED_JSON
from tests.support.manual_loop import ManualLoop
from tests.support.step_clock import StepClock
from timestone.config import StoreConfig
from timestone.disk.clock import Clock
from timestone.errors import OffsetOutOfRange
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone.store import Store
from timestone.writing.write_batch import Draft


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def clocked(tmp_path: Path, clock: StepClock) -> Iterator[Store]:
    """A store whose records are as old as the clock says."""
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
        **limits: int,
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
    draft = Draft([block + payload], log.topic_id(topic), flags=2 | retain, header_lengths=len(block))
    log.append_draft(draft, ack="written")


def test_what_is_known_to_hold_nothing_retained_is_not_read(
    store: Store, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(store, executor)
    log = parts.logs[0].log
    append(log, "a", b"1", retain=False)
    with monkeypatch.context() as patched:
        patched.setattr(log, "read", lambda offset: pytest.fail("it was read"))
        parts.retaining.follow([Appended("mqtt", range(0, 1), False)])
    append(log, "b", b"2")  # by somebody else, in front of what the front appends
    append(log, "c", b"3", retain=False)
    parts.retaining.follow([Appended("mqtt", range(2, 3), False)])
    assert parts.values() == {"b": b"2"}
    assert parts.logs[0].position == 3


def test_the_last_retained_record_of_each_topic_counts(store: Store, executor: ThreadPoolExecutor) -> None:
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
def test_a_checkpoint_that_cannot_be_read_costs_nothing_but_time(
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


def test_a_message_with_headers_that_are_none_is_left_alone(
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
def test_a_restart_finds_them_whenever_they_were_saved_last(
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


def test_a_start_goes_on_when_retention_takes_what_it_was_about_to_read(
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


def test_the_checkpoint_never_passes_a_change_that_is_not_saved(
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


def test_what_could_not_be_saved_is_saved_later(
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
    assert "could not be saved" in caplog.text
    parts.loop.pass_time(1.0)
    parts.save()
    assert parts.retaining.saved and set(store.documents.items(SPACE)) == {"a", ""}


def test_a_topic_that_goes_to_another_log_now_has_one_message(
    store: Store, executor: ThreadPoolExecutor
) -> None:
    parts = Parts(store, executor, "one", "two")
    append(store.log("one"), "a", b"1")
    assert parts.values() == {"a": b"1"}
    append(store.log("two"), "a", b"2")
    parts.values()
    assert [len(each) for each in parts.logs] == [0, 1]
    append(store.log("two"), "a", b"")
    assert parts.values() == {}


def test_a_message_is_forgotten_when_its_time_is_over(
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


def test_a_clock_that_is_set_a_day_ahead_costs_no_message(
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


def test_a_message_that_is_replaced_or_cleared_does_not_expire(
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


def test_a_topic_that_is_published_again_and_again_is_looked_at_once(
    store: Store, executor: ThreadPoolExecutor
) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    block = header_block(Properties(message_expiry_interval=10**9))
    draft = Draft([block + b"x"] * 5000, log.topic_id("a"), flags=3, header_lengths=len(block))
    log.append_draft(draft, ack="written")
    assert parts.values() == {"a": b"x"}
    assert parts.retaining._expiries.held_count < 2000


def row(topic: str, payload: bytes = b"x", retain: bool = True) -> PublishRow:
    return PublishRow(0x32 | retain, topic.encode(), b"", payload, b"\x40\x02\0\1")


def test_limits_count_what_is_on_its_way_to_the_log(store: Store, executor: ThreadPoolExecutor) -> None:
    parts = Parts(store, executor, count_limit=2, bytes_limit=100)
    retaining = parts.retaining
    assert retaining.over_limit(Publishes.of([row("a"), row("b"), row("c"), row("a")])) == [2]
    assert retaining.over_limit(Publishes.of([row("d"), row("d", retain=False), row("d", b"")])) == [0]
    append(store.log("mqtt"), "a", b"1")
    retaining.follow()
    retaining.forget_expected()  # b was never appended
    assert retaining.over_limit(Publishes.of([row("e"), row("a", bytes(200)), row("a", bytes(90))])) == [1]
    assert retaining.refused_count == 3


def test_runs_without_the_flag_are_not_looked_at() -> None:
    assert not has_retained(Publishes.of([row("a", retain=False)] * 3))
    assert has_retained(Publishes.of([row("a", retain=False), row("a")]))


def test_what_is_no_longer_in_memory_is_read_by_a_thread(
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
