"""The last record of a log, and readers that wait for the next."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.kernels import compiled_only
from timestone.errors import StoreClosed
from timestone.kernel.entries import NO_TOPIC
from timestone.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with timestone.open(tmp_path / "data") as opened:
        yield opened


@compiled_only
def test_last_record_is_known_without_a_read_if_it_was_appended_by_itself(store: Store) -> None:
    log = store.log("a")
    log.append_many([b"1", b"2"], topic="t", ack="written")
    assert [log.single(offset) for offset in range(3)] == [None] * 3
    log.append(b"3", topic="t", headers=[("name", b"value")], ack="written")
    single = log.single(2)
    assert single is not None
    offset, topic_id, flags, header_length, stored = single
    assert (offset, log.topic_name(topic_id), flags, stored[header_length:]) == (2, "t", 0, b"3")
    log.append(b"4", ack="written")
    assert (log.single(2), log.single(3)) == (None, (3, NO_TOPIC, 0, 0, b"4"))
    log._tail._budget.lend(1 << 40)  # all the memory there is
    assert log.single(3) is None
    log._tail._budget.lend(-(1 << 40))
    log.append(b"5", ack="written")
    store.close()
    assert log.single(4) is None


@pytest.mark.parametrize("topics", ["t", None])
def test_reader_is_parked_at_the_end_and_woken_once(store: Store, topics: str | None) -> None:
    log = store.log("a")
    reader = log.reader(topics=topics)
    woken: list[int] = []
    reader.on_wake = lambda reader, first_offset: woken.append(first_offset)
    for number in range(3):
        assert reader.park()
        log.append(b"x", topic="t", ack="written")
        log.append(b"x", topic="t", ack="written")
        assert not reader.park(), "it has not read them"
        assert woken == [2 * one for one in range(number + 1)]
        reader.seek("latest")
    store.close()
    with pytest.raises(StoreClosed):
        reader.park()
