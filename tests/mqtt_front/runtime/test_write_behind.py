"""Documents are written off the loop: in order, many in one transaction, and again after a failure."""

import functools
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqtt_front.runtime.write_behind import WriteBehind
from tests.support.manual_loop import ManualLoop
from timestone.errors import NotLeader


class Disk:
    """Documents that remember their transactions and fail when told to."""

    def __init__(self) -> None:
        self.transactions: list[dict[str, bytes | None]] = []
        self.failures = 0
        self.error: Exception = OSError("no space left on device")

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None:
        assert space == "mqtt.thing"
        if self.failures:
            self.failures -= 1
            raise self.error
        self.transactions.append(items)

    def items(self, space: str) -> dict[str, bytes]:
        return {}


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as running:
        yield running


def test_writes_of_one_turn_are_one_transaction_with_the_last_values(
    executor: ThreadPoolExecutor,
) -> None:
    disk, loop, called = Disk(), ManualLoop(), list[str]()
    writer = WriteBehind(disk, "mqtt.thing", loop, executor, log=logging.getLogger("test"))
    writer.write("a", b"1", lambda: called.append("first"))
    writer.write("b", b"2")
    writer.write("a", None, lambda: called.append("second"))
    assert called == []
    loop.run_until(lambda: writer.saved)
    assert disk.transactions == [{"a": None, "b": b"2"}]
    assert called == ["first", "second"]


def test_document_is_waited_for_as_long_as_it_is_on_its_way(executor: ThreadPoolExecutor) -> None:
    disk, loop, called = Disk(), ManualLoop(), list[str]()
    writer = WriteBehind(disk, "mqtt.thing", loop, executor, log=logging.getLogger("test"))

    def wait(key: str, name: str) -> None:
        assert writer.is_saved(key) is (key == "other")
        writer.once_saved(key, lambda: called.append(name))

    writer.write("a", b"1")
    wait("a", "pending")
    wait("other", "nothing to wait for")
    loop.turn()
    wait("a", "in the transaction")
    writer.write("a", b"2")
    wait("a", "in the next one")
    assert called == ["nothing to wait for"]
    loop.run_until(lambda: len(disk.transactions) == 1 and len(called) > 1)
    assert called[1:3] == ["pending", "in the transaction"]
    loop.run_until(lambda: writer.saved)
    assert called[3:] == ["in the next one"] and writer.is_saved("a")
    called.clear()
    for name, key in (("nothing written", ""), ("pending", "a"), ("in the transaction", "")):
        if key:
            writer.write(key, b"3")
        writer.once_saved(None, functools.partial(called.append, name))
        if name == "pending":
            loop.turn()
    assert called == ["nothing written"]
    loop.run_until(lambda: writer.saved)
    assert called == ["nothing written", "pending", "in the transaction"]


def test_failed_write_is_logged_and_repeated_unless_outdated(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    disk, loop, called = Disk(), ManualLoop(), list[str]()
    disk.failures = 1
    writer = WriteBehind(disk, "mqtt.thing", loop, executor, log=logging.getLogger("test"))
    writer.write("a", b"old")
    writer.write("b", b"kept", lambda: called.append("told"))
    loop.run_until(lambda: bool(called))
    assert "could not save 2 of mqtt.thing: no space left" in caplog.text
    writer.write("a", b"new")
    loop.pass_time(2)
    loop.run_until(lambda: writer.saved)
    assert disk.transactions == [{"a": b"new", "b": b"kept"}]


def test_write_that_another_leader_refuses_needs_no_operator(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    disk, loop, called = Disk(), ManualLoop(), list[str]()
    disk.failures, disk.error = 1, NotLeader("another replica leads")
    writer = WriteBehind(disk, "mqtt.thing", loop, executor, log=logging.getLogger("test"))
    writer.write("a", b"1", lambda: called.append("refused"))
    loop.run_until(lambda: bool(called))
    assert [one.levelname for one in caplog.records if one.name == "test"] in ([], ["DEBUG"])


def test_writes_after_the_executor_ended_are_ignored() -> None:
    disk, loop = Disk(), ManualLoop()
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    writer = WriteBehind(disk, "mqtt.thing", loop, ended, log=logging.getLogger("test"))
    writer.write("a", b"1")
    loop.settle()
    assert disk.transactions == []


def test_failing_callback_affects_neither_others_nor_later_writes(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    disk, loop, called = Disk(), ManualLoop(), list[str]()
    writer = WriteBehind(disk, "mqtt.thing", loop, executor, log=logging.getLogger("test"))

    def fail() -> None:
        writer.write("b", b"2", lambda: called.append("next"))
        raise RuntimeError("a fault of ours")

    writer.write("a", b"1", fail)
    writer.write("a", b"1", lambda: called.append("other"))
    loop.run_until(lambda: len(called) == 2)
    assert called == ["other", "next"] and disk.transactions == [{"a": b"1"}, {"b": b"2"}]
    assert "a fault of ours" in caplog.text
