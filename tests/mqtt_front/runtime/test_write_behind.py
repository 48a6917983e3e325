"""Documents go to the disk off the loop: in order, many in one transaction, and again after a failure."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqtt_front.runtime.write_behind import WriteBehind
from tests.support.manual_loop import ManualLoop


class Disk:
    """Documents that remember their transactions and fail when told to."""

    def __init__(self) -> None:
        self.transactions: list[dict[str, bytes | None]] = []
        self.failures = 0

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None:
        assert space == "mqtt.thing"
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        self.transactions.append(items)

    def items(self, space: str) -> dict[str, bytes]:
        return {}


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as running:
        yield running


def test_what_is_written_in_one_turn_is_one_transaction_with_the_last_word(
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


def test_a_failure_is_logged_and_what_it_was_about_is_written_later_unless_it_is_outdated(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    disk, loop, called = Disk(), ManualLoop(), list[str]()
    disk.failures = 1
    writer = WriteBehind(disk, "mqtt.thing", loop, executor, log=logging.getLogger("test"))
    writer.write("a", b"old")
    writer.write("b", b"kept", lambda: called.append("told"))
    loop.run_until(lambda: bool(called))
    assert "2 things could not be saved: no space left" in caplog.text
    writer.write("a", b"new")
    loop.pass_time(2)
    loop.run_until(lambda: writer.saved)
    assert disk.transactions == [{"a": b"new", "b": b"kept"}]


def test_after_the_executor_has_ended_nothing_is_written_and_nothing_breaks() -> None:
    disk, loop = Disk(), ManualLoop()
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    writer = WriteBehind(disk, "mqtt.thing", loop, ended, log=logging.getLogger("test"))
    writer.write("a", b"1")
    loop.settle()
    assert disk.transactions == []


def test_one_that_was_told_and_failed_holds_up_neither_the_others_nor_what_comes_next(
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
