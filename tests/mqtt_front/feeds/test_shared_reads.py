"""Feeds with the same filters read each batch once, and nothing else than each would have read by itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from mqtt_front.feeds.shared_reads import SharedReads
from timestone.errors import OffsetOutOfRange, StoreClosed
from timestone.log import Log
from timestone.reader import Reader
from timestone.reading.batch import Batch
from timestone.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with timestone.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def log(store: Store) -> Log:
    log = store.log("mqtt")
    log.append_many([b"1", b"2", b"3"], topics=["a", "b", "a"])
    return log


def read(reads: SharedReads, reader: Reader, max_records: int = 100) -> Batch:
    return reads.read(reader, max_records=max_records, max_bytes=1 << 20, max_scan=1 << 16)


def test_readers_at_the_same_place_get_the_same_batch_and_move_behind_it(log: Log) -> None:
    reads, readers = SharedReads(), [log.reader("earliest", topics=["a"]) for _ in range(3)]
    batches = [read(reads, one) for one in readers]
    assert batches[0].payloads() == [b"1", b"3"]
    assert batches[1] is batches[2] is batches[0]
    assert [one.offset for one in readers] == [3, 3, 3]


@pytest.mark.parametrize(
    ("start", "topics", "max_records", "expected"),
    [
        (0, ["b"], 100, [b"2"]),
        (0, None, 100, [b"1", b"2", b"3"]),
        (1, ["a"], 100, [b"3"]),
        (0, ["a"], 1, [b"1"]),
        (0, ["a", "b"], 100, [b"1", b"2", b"3"]),
    ],
    ids=["other topics", "all topics", "another place", "less room", "more topics"],
)
def test_other_readers_get_what_is_theirs(
    start: int, topics: list[str] | None, max_records: int, expected: list[bytes], log: Log
) -> None:
    reads = SharedReads()
    read(reads, log.reader(0, topics=["a"]))
    assert read(reads, log.reader(start, topics=topics), max_records).payloads() == expected


def test_what_was_appended_since_is_read(log: Log) -> None:
    reads, first, second = SharedReads(), log.reader(0, topics=["a"]), log.reader(0, topics=["a"])
    read(reads, first)
    log.append(b"4", topic="a")
    assert read(reads, second).payloads() == [b"1", b"3", b"4"]


def test_many_filters_are_read_each_and_not_all_kept(log: Log) -> None:
    reads = SharedReads()
    for number in range(30):
        assert read(reads, log.reader(0, topics=["a", f"other/{number}"])).payloads() == [b"1", b"3"]
    assert len(reads._batches) < 10


def test_logs_are_told_apart(log: Log, store: Store) -> None:
    reads, other = SharedReads(), store.log("other")
    other.append_many([b"4", b"5", b"6"], topics=["a", "b", "a"])
    assert read(reads, log.reader(0, topics=["a"])).payloads() == [b"1", b"3"]
    assert read(reads, other.reader(0, topics=["a"])).payloads() == [b"4", b"6"]


def test_readers_of_many_filters_read_by_themselves(log: Log) -> None:
    reads, topics = SharedReads(), ["a", *(f"other/{number}" for number in range(100))]
    first, second = (read(reads, log.reader(0, topics=topics)) for _ in range(2))
    assert first is not second and first.payloads() == second.payloads() == [b"1", b"3"]
    assert reads.last is None


def test_reader_of_a_closed_store_gets_no_batch_of_another(log: Log, store: Store) -> None:
    reads, first, second = SharedReads(), log.reader(0, topics=["a"]), log.reader(0, topics=["a"])
    read(reads, first)
    store.close()
    with pytest.raises(StoreClosed):
        read(reads, second)
    assert second.offset == 0


def test_failed_read_is_not_shared(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, readers = SharedReads(), [log.reader(0, topics=["a"]) for _ in range(2)]
    with monkeypatch.context() as deleted:
        deleted.setattr(log, "_start_offset", 2)
        with pytest.raises(OffsetOutOfRange):
            read(reads, readers[0])
    assert read(reads, readers[1]).payloads() == [b"1", b"3"]
