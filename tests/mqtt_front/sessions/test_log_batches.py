"""Batches of a log from an offset on, across missing offsets."""

import pytest

from mqtt_front.sessions.log_batches import batches_since
from tests.support.waiting import wait_for
from timestone.log import Log
from timestone.store import Store


@pytest.fixture
def log(store: Store) -> Log:
    log = store.log("mqtt")
    for number in range(10):
        log.append(b"%d" % number, topic=f"t/{number % 2}")
    return log


def offsets(log: Log, since: int, topic: str | None = None) -> list[int]:
    return [offset for batch in batches_since(log, since, topic) for offset in batch.offsets.tolist()]


def test_batches_have_all_records_from_an_offset_on_of_all_topics_or_one(log: Log) -> None:
    assert offsets(log, 7) == [7, 8, 9]
    assert offsets(log, 3, "t/0") == [4, 6, 8]
    assert offsets(log, 10) == offsets(log, 99) == []


def test_batches_skip_offsets_deleted_by_retention(log: Log) -> None:
    log.roll()
    log.append(b"new", topic="t/0")
    log.configure(retention_bytes=1)
    wait_for(lambda: log.apply_retention() or log.start_offset == 10)  # once the first segment is sealed
    assert offsets(log, 0) == [10]
