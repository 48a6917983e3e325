"""A pin keeps records that its reader has not committed from retention, within a limit."""

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.expiring_store import HOUR_MS, MINUTE_MS, ExpiringStore, bases, disk_bytes, expiring_store
from timestone import CorruptLog, Log, Pin, ReaderId


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ExpiringStore]:
    with expiring_store(tmp_path / "data") as place:
        yield place


@pytest.mark.parametrize(
    "limits", [{}, {"max_bytes": 0}, {"max_age_ms": -1}, {"max_bytes": -1, "max_age_ms": 5}]
)
def test_pin_is_refused_without_a_valid_limit(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"invalid pin: expected a limit|expected at least 0, got -1"):
        Pin(**limits)


def test_pin_limits_may_have_units() -> None:
    assert Pin(max_age_ms="7d", max_bytes="1 GiB") == Pin(max_age_ms=604_800_000, max_bytes=1 << 30)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [math.inf, math.nan, 1.5, True])
def test_pin_limit_is_refused_when_it_is_not_a_whole_number(limit: Any) -> None:
    with pytest.raises(TypeError, match=f"invalid max_bytes: expected a whole number, got {limit!r}"):
        Pin(max_bytes=limit)


def test_pin_with_one_limit_is_accepted() -> None:
    assert Pin(max_age_ms=1).max_bytes == 0
    assert Pin(max_bytes=1).max_age_ms == 0


def pinned(place: ExpiringStore, log: Log, offset: int, **limits: int) -> None:
    place.store.commit_readers({ReaderId("a", 0, "billing"): offset}, pin=Pin(**limits))


def test_pin_holds_uncommitted_records(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 12)
    place.seal(log)
    pinned(place, log, 5, max_bytes=1 << 30)
    place.clock.advance(2 * HOUR_MS)
    assert log.apply_retention() == 1
    assert bases(log) == [4, 8], "the segment that its offset lies in stays whole"
    place.store.commit_readers({ReaderId("a", 0, "audit"): 0})
    assert log.apply_retention() == 0
    pinned(place, log, 8, max_bytes=1 << 30)
    assert log.apply_retention() == 1
    log = place.killed()
    assert log.apply_retention() == 0, "another process knows the pin"
    place.store.forget_readers([ReaderId("a", 0, "billing")])
    assert log.apply_retention() == 1
    assert (log.start_offset, log.end_offset) == (12, 12)


def test_retention_waits_for_the_slowest_of_many_pins(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 12)
    place.seal(log)
    place.store.commit_readers(
        {ReaderId("a", 0, "x"): 8, ReaderId("a", 0, "y"): 4}, pin=Pin(max_bytes=1 << 30)
    )
    place.store.commit_readers({ReaderId("a", 0, "z"): 0})
    place.clock.advance(2 * HOUR_MS)
    assert log.apply_retention() == 1
    assert bases(log) == [4, 8]


def test_forgotten_pin_holds_no_more_than_its_bytes(
    place: ExpiringStore, caplog: pytest.LogCaptureFixture
) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 20, size=1000)
    place.seal(log)
    one = disk_bytes(log.segment_list.segments[0])
    pinned(place, log, 1, max_bytes=2 * one)
    with caplog.at_level(logging.WARNING):
        assert log.apply_retention() == 2
    assert bases(log) == [8, 12, 16], "retention keeps the last, the pin two more"
    assert "reader 'billing' has read up to offset 1 and loses the offsets below 8" in caplog.text
    caplog.clear()
    assert log.apply_retention() == 0
    assert caplog.text == ""
    place.fill(log, 40, size=1000)
    place.seal(log)
    log.apply_retention()
    assert bases(log) == [48, 52, 56]
    (lag,) = log.lags()
    assert (lag.lag, lag.missed) == (12, 47)


def test_forgotten_pin_holds_nothing_older_than_its_age(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 4)
    place.seal(log)
    place.clock.advance(5 * HOUR_MS)
    place.fill(log, 4)
    place.seal(log)
    pinned(place, log, 0, max_age_ms=6 * HOUR_MS)
    place.clock.advance(30 * MINUTE_MS)
    assert log.apply_retention() == 0
    place.clock.advance(31 * MINUTE_MS)
    assert log.apply_retention() == 1
    place.clock.advance(5 * HOUR_MS)
    assert log.apply_retention() == 1


def test_retention_deletes_nothing_while_pins_cannot_be_read(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 4)
    place.seal(log)
    place.store.documents.put_many("readers", {"a-0/billing": b"no JSON"})
    place.clock.advance(2 * HOUR_MS)
    with pytest.raises(CorruptLog, match="a-0/billing"):
        log.apply_retention()
    assert bases(log) == [0]


def test_retention_reads_pins_again_because_readers_commit_in_other_processes(
    place: ExpiringStore,
) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 12)
    pinned(place, log, 0, max_bytes=1 << 30)
    again_s = log.retention.run()
    assert again_s is not None
    assert 0 < again_s <= 60
    with timestone.view(place.path) as view:
        view.commit_readers({ReaderId("a", 0, "billing"): 12})
    assert log.retention.run() is None
    assert bases(log) == [8]
