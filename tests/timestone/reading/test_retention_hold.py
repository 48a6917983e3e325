"""A pin keeps retention away from what its reader has not committed, within a limit."""

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
def test_pin_without_a_limit_that_makes_sense_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"a pin needs a limit|is -1; it goes from 0"):
        Pin(**limits)


@pytest.mark.parametrize("limit", [math.inf, math.nan, 1.5, True, "1 GiB"])
def test_limit_is_a_whole_number_so_no_pin_is_for_ever(limit: Any) -> None:
    with pytest.raises(TypeError, match=f"max_bytes is {limit!r}; it has to be a whole number"):
        Pin(max_bytes=limit)


def test_one_limit_is_enough() -> None:
    assert Pin(max_age_ms=1).max_bytes == 0
    assert Pin(max_bytes=1).max_age_ms == 0


def pinned(place: ExpiringStore, log: Log, offset: int, **limits: int) -> None:
    place.store.commit_readers({ReaderId("a", 0, "billing"): offset}, pin=Pin(**limits))


def test_pin_holds_what_its_reader_has_not_committed(place: ExpiringStore) -> None:
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


def test_the_slowest_of_many_pins_counts(place: ExpiringStore) -> None:
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
    one = disk_bytes(log.history.segments[0])
    pinned(place, log, 1, max_bytes=2 * one)
    with caplog.at_level(logging.WARNING):
        assert log.apply_retention() == 2
    assert bases(log) == [8, 12, 16], "retention keeps the last, the pin two more"
    assert "reader 'billing' has read up to offset 1 and loses what is below 8" in caplog.text
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


def test_nothing_goes_while_pins_cannot_be_read(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 4)
    place.seal(log)
    place.store.documents.put_many("readers", {"a-0/billing": b"no JSON"})
    place.clock.advance(2 * HOUR_MS)
    with pytest.raises(CorruptLog, match="a-0/billing"):
        log.apply_retention()
    assert bases(log) == [0]


def test_what_a_pin_holds_is_looked_at_again_because_its_reader_may_be_elsewhere(
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
