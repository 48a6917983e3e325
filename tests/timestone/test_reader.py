"""A reader returns each record once, is woken by appends that concern it, and misses none."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from timestone.config import LogConfig
from timestone.errors import InvalidName, OffsetOutOfRange, StoreClosed
from timestone.log import Log
from timestone.reader import Reader
from timestone.store import Store

NEVER_MS = 10**9


@pytest.fixture
def store(quick_directory: Path) -> Iterator[Store]:
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, ack="written", sync_interval_ms=NEVER_MS
    ) as store:
        yield store


@pytest.fixture(params=["in memory", "in files"])
def log(request: pytest.FixtureRequest, quick_directory: Path) -> Iterator[Log]:
    config = LogConfig(segment_entries=4)
    tail_bytes = 10**6 if request.param == "in memory" else 0
    with timestone.open(
        quick_directory / "data",
        min_free_bytes=0,
        ack="written",
        sync_interval_ms=NEVER_MS,
        tail_bytes=tail_bytes,
        log=config,
    ) as store:
        log = store.log("a")
        for number in range(10):
            log.append(b"%d" % number, topic=("x", "y/1", "y/2")[number % 3] if number != 5 else None)
        yield log


def numbers(reader: Reader) -> list[int]:
    return [int(record.payload) for record in reader]


def test_reader_starts_at_the_given_place(log: Log) -> None:
    assert numbers(log.reader()) == list(range(10))
    assert numbers(log.reader("earliest")) == list(range(10))
    assert numbers(log.reader(7)) == [7, 8, 9]
    assert numbers(log.reader("latest")) == []
    assert numbers(log.reader(10)) == []


@pytest.mark.parametrize("start", ["first", "offset:3", None, 1.5])
def test_invalid_start_is_refused(log: Log, start: Any) -> None:
    with pytest.raises(TypeError, match=f"'earliest', 'latest' or a datetime, got {start!r}"):
        log.reader(start)
    with pytest.raises(TypeError, match="invalid start of a reader"):
        log.reader().seek(start)


def test_offset_may_come_from_a_batch(log: Log) -> None:
    offset = log.read(7).offsets[0]
    reader = log.reader(offset)
    assert type(reader.offset) is int
    assert numbers(reader) == [7, 8, 9]


def test_reader_repr_has_its_name_and_offset(log: Log) -> None:
    assert repr(log.reader(7)) == "<Reader of a-0: next offset 7>"
    with log.reader(name="billing", topics=["x", "y/#"]) as reader:
        assert repr(reader) == "<Reader 'billing' of a-0: next offset 0, topics x, y/#>"
    assert repr(reader) == "<Reader 'billing' of a-0: closed, topics x, y/#>"


def test_filter_is_refused_when_it_is_not_text(log: Log) -> None:
    with pytest.raises(TypeError, match="invalid topic filter: expected text, got 5"):
        log.reader(topics=[5])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ("x", [0, 3, 6, 9]),
        ("y/+", [1, 2, 4, 7, 8]),
        ("#", [0, 1, 2, 3, 4, 6, 7, 8, 9]),
        (["x", "y/1", "x"], [0, 1, 3, 4, 6, 7, 9]),
        ("z", []),
        ([], []),
    ],
    ids=str,
)
def test_reader_with_filters_gets_the_records_that_match_each_once(
    log: Log, filters: str | list[str], expected: list[int]
) -> None:
    reader = log.reader(topics=filters)
    assert numbers(reader) == expected
    assert reader.offset == 10
    assert reader.caught_up


def test_interrupted_loop_continues_with_the_next_record(log: Log) -> None:
    for filters in (None, "x", "y/+"):
        reader, found = log.reader(topics=filters), []
        while not reader.caught_up:
            for record in reader:
                assert reader.offset == record.offset + 1
                found.append(int(record.payload))
                break
        assert found == numbers(log.reader(topics=filters))


def test_loop_ended_by_an_error_leaves_the_following_records_to_a_read(log: Log) -> None:
    reader = log.reader()
    with pytest.raises(ZeroDivisionError):
        _ = [1 // (int(record.payload) - 1) for record in reader]
    assert reader.read(max_records=1).payloads() == [b"2"]


def test_loop_continues_at_the_target_of_a_seek(log: Log) -> None:
    reader, found = log.reader(), []
    for record in reader:
        found.append(int(record.payload))
        if found == [0, 1]:
            reader.seek(7)
    assert found == [0, 1, 7, 8, 9]


def test_two_loops_over_a_reader_share_its_records(log: Log) -> None:
    reader = log.reader()
    first, second = iter(reader), iter(reader)
    assert [int(next(which).payload) for which in (first, second, second, first)] == [0, 1, 2, 3]


@pytest.mark.parametrize("max_records", [1, 2, 3, 100])
def test_small_reads_return_each_record_once(log: Log, max_records: int) -> None:
    for filters in (None, "x", "y/+"):
        reader, found = log.reader(topics=filters), []
        while batch := reader.read(max_records=max_records):
            assert len(batch) <= max_records
            found += [int(payload) for payload in batch.payloads()]
        assert found == numbers(log.reader(topics=filters))


def test_bounded_scan_ends_empty_and_continues_later(log: Log) -> None:
    reader = log.reader(topics="nothing")
    offsets = []
    while not reader.caught_up:
        assert not reader.read(max_scan=3)
        offsets.append(reader.offset)
    assert offsets[-1] == 10
    assert len(offsets) >= 2


def test_read_of_zero_records_does_not_move_the_reader(log: Log) -> None:
    reader = log.reader()
    try:
        reader.read(max_records=0)
    except ValueError:
        assert reader.offset == 0
    else:
        assert reader.offset <= 1


@pytest.mark.parametrize("bad", ["a/#/b", "", "a+"])
def test_invalid_filter_is_refused(log: Log, bad: str) -> None:
    with pytest.raises(InvalidName):
        log.reader(topics=bad)


def test_seek_moves_the_reader_and_refuses_offsets_beyond_the_log(log: Log) -> None:
    reader = log.reader()
    reader.seek(8)
    assert numbers(reader) == [8, 9]
    reader.seek("earliest")
    assert reader.offset == 0
    with pytest.raises(OffsetOutOfRange):
        reader.seek(11)
    with pytest.raises(OffsetOutOfRange):
        reader.seek(-1)
    assert reader.offset == 0


def test_filters_can_change_between_reads(log: Log) -> None:
    reader = log.reader(topics="x")
    assert int(reader.read(max_records=1)[0].payload) == 0
    reader.set_topics("y/#")
    assert numbers(reader) == [1, 2, 4, 7, 8]
    reader.set_topics(None)
    reader.seek(4)
    assert numbers(reader) == [4, 5, 6, 7, 8, 9]
    assert reader.topics is None


@pytest.mark.parametrize("many", [0, 50])
def test_successor_reads_and_wakes_for_the_current_filters(store: Store, many: int) -> None:
    log = store.log("a")
    others = [f"other/{number}" for number in range(many)]
    woken: list[str] = []
    old = log.reader("latest", topics=["x", "y", *others])
    old.on_wake = lambda reader, offset: woken.append("old")
    assert old.park()
    log.append(b"0", topic="z")
    new = old.successor(0, ["z/+", "z"], ["x", *others[:20]])
    new.on_wake = lambda reader, offset: woken.append("new")
    assert new.topics == ("y", *others[20:], "z/+", "z")
    assert numbers(new) == [0]
    log.append_many([b"1", b"2"], topic="x")
    assert new.park() is False and numbers(new) == []
    assert new.park()
    log.append(b"3", topic="x")
    assert woken == []
    log.append(b"4", topic="z/1")
    assert woken == ["new"] and numbers(new) == [4]
    with pytest.raises(StoreClosed):
        old.read()


def test_successor_does_not_move_when_the_reader_before_it_is_woken_late(store: Store) -> None:
    log = store.log("a")
    old = log.reader(topics="x")
    new = old.successor(0, ["y"], [])
    log.append(b"0", topic="y")
    log.append(b"1", topic="x")
    old.wake(1)  # the thread that appended has taken it out of the parked ones before
    assert numbers(new) == [0, 1]


def test_successor_is_refused_when_the_reader_has_a_name_or_reads_all_topics(store: Store) -> None:
    log = store.log("a")
    for reader in (log.reader(), log.reader(name="n", topics="x")):
        with pytest.raises(ValueError, match="invalid reader"):
            reader.successor(0, ["y"], [])
        assert numbers(reader) == []


# Parking.


def test_reader_with_unread_records_is_not_parked(store: Store) -> None:
    log = store.log("a")
    reader = log.reader()
    log.append(b"x")
    assert not reader.park()


def test_parked_reader_is_woken_once_by_the_append_that_concerns_it(store: Store) -> None:
    log = store.log("a")
    reader, woken = log.reader(topics="a/#"), list[int]()
    reader.on_wake = lambda _, first_offset: woken.append(first_offset)
    assert reader.park()
    log.append(b"0", topic="b")
    assert woken == []
    log.append_many([b"1", b"2"], topics=["b", "a/1"])
    log.append(b"3", topic="a/2")
    assert woken == [2]
    assert reader.offset == 2, "it does not look again at what was not for it"
    assert numbers(reader) == [2, 3]


def test_wait_returns_with_new_records_or_after_its_timeout(store: Store) -> None:
    log = store.log("a")
    reader = log.reader()
    assert not reader.wait(0.001)
    assert not log.wakeups.parked, "who gave up is not woken behind its own back"
    active_segment = threading.Thread(target=lambda: log.append(b"7"))
    active_segment.start()
    assert reader.wait(10)
    active_segment.join()
    assert numbers(reader) == [7]


def test_wait_ends_with_an_error_when_the_store_is_closed(quick_directory: Path) -> None:
    store = timestone.open(quick_directory / "other", min_free_bytes=0)
    reader = store.log("a").reader()
    closer = threading.Thread(target=store.close)
    parked = threading.Event()
    reader.on_wake = lambda *_: parked.set()
    assert reader.park()
    closer.start()
    with pytest.raises(StoreClosed):
        reader.wait(10)
    closer.join()
    assert parked.is_set(), "every reader parked when the log closed was woken"


def test_closed_reader_refuses_reads_and_is_released(store: Store) -> None:
    log = store.log("a")
    reader = log.reader()
    assert reader.park()
    reader.close()
    reader.close()
    assert not log.wakeups.parked
    for call in (reader.read, reader.park):
        with pytest.raises(StoreClosed):
            call()


def test_reader_that_alternates_parking_and_reading_sees_every_record_once(store: Store) -> None:
    """Appends race with parking: the end of the log and the parked set are looked at under one lock."""
    log, count = store.log("a"), 3000
    found: list[int] = []

    def follow(topics: str | None, into: list[int]) -> None:
        with log.reader(topics=topics) as reader:
            while len(into) < count:
                assert reader.wait(10)
                into += [int(payload) for payload in reader.read().payloads()]

    filtered: list[int] = []
    threads = [
        threading.Thread(target=follow, args=(None, found)),
        threading.Thread(target=follow, args=("t", filtered)),
    ]
    for thread in threads:
        thread.start()
    for number in range(count):
        log.append(b"%d" % number, topic="t")
    for thread in threads:
        thread.join()
    assert found == filtered == list(range(count))
