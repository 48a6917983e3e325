"""The scrubber finds damage in sealed segments, reports it, and stores its progress."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for
from timestone import CorruptRecord, LogConfig, Store
from timestone.format.damage_report import SPACE
from timestone.repair.inspection import EXIT_CLEAN, EXIT_CORRUPT, EXIT_UNCLOSED, inspect_store
from timestone.upkeep.scrubbing import Scrubber

DAY_MS = 86_400_000


class Place:
    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.clock = StepClock()
        self.settings = settings
        self.store = self._opened()

    def _opened(self) -> Store:
        log = LogConfig(segment_entries=10)
        return timestone.open(
            self.path, ack="written", clock=self.clock, log=log, min_free_bytes=0, **self.settings
        )

    def fill(self, log: str, count: int) -> None:
        there = self.store.log(log)
        for number in range(count):
            there.append(b"%05d" % number)

    def reopen(self) -> Store:
        for name in self.store.log_names():
            self.store.log(*name).roll()
        self.store.close()
        self.store = self._opened()
        return self.store

    def flip(self, log: str, base: int, position: int, suffix: str = "segment") -> None:
        path = self.path / f"{log}-0" / f"{base:020d}.{suffix}"
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)


@pytest.fixture
def place(quick_directory: Path) -> Iterator[Place]:
    place = Place(quick_directory / "data")
    place.fill("a", 25)
    place.fill("b", 12)
    place.reopen()
    yield place
    place.store.close()


def finish(scrubber: Scrubber) -> list[float]:
    """Run a whole pass; the waits between its slices."""
    waits: list[float] = []
    while scrubber._passes.begun or not waits:
        wait_s = scrubber.run()
        assert wait_s is not None
        waits.append(wait_s)
    return waits


def test_scrubber_finds_no_damage_in_an_undamaged_store(place: Place) -> None:
    assert place.store.scrub() == []
    assert place.store.damage() == []


def test_log_deleted_during_a_pass_is_skipped(place: Place) -> None:
    scrubber = Scrubber(place.store)
    assert scrubber.run() is not None
    place.store.delete_log("b")
    finish(scrubber)
    assert place.store.damage() == []


def test_damage_is_logged_stored_and_reported_by_inspection(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.flip("a", 10, 5 * 3)
    place.flip("b", 0, 4096 + 32 * 7, "index")
    found = place.store.scrub()
    assert [(one.log, one.base_offset, one.first, one.end) for one in found] == [
        ("a", 10, 13, 14),
        ("b", 0, 7, 8),
    ]
    assert "damaged: a-0, segment 10: offset 13: the bytes do not match their checksum" in caplog.text
    with pytest.raises(CorruptRecord):
        place.store.log("a").record(13)
    assert place.store.log("a").record(14).payload == b"00014"
    assert place.reopen().damage() == found
    report = inspect_store(place.path)
    assert (report.exit_code, list(report.damage)) == (EXIT_CORRUPT, found)
    assert json.loads(json.dumps(report.to_json()))["damage"][0]["first"] == 13
    assert [one.log for one in inspect_store(place.path, log="b").damage] == ["b"]
    deep = inspect_store(place.path, deep=True)
    assert (deep.exit_code, deep.damage) == (EXIT_CORRUPT, ())


def test_stored_damage_is_removed_when_the_segment_verifies_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.flip("a", 10, 5)
    place.store.scrub()
    place.flip("a", 10, 5)
    assert place.store.scrub() == []
    assert "sound again" in caplog.text
    assert inspect_store(place.path).exit_code in (EXIT_CLEAN, EXIT_UNCLOSED)


def test_stored_damage_of_a_deleted_segment_is_removed(place: Place) -> None:
    place.flip("a", 0, 5)
    place.store.scrub()
    log = place.store.log("a")
    log.configure(retention_bytes=1)
    log.apply_retention()
    assert inspect_store(place.path).damage == ()
    assert place.store.scrub() == []
    assert place.store.damage() == []


def test_missing_files_are_damage(place: Place) -> None:
    (place.path / "a-0" / f"{10:020d}.segment").unlink()
    (found,) = place.store.scrub()
    assert (found.first, found.end, found.reason) == (10, 20, "its files are missing")


def test_background_pass_reads_at_most_at_the_configured_rate(quick_directory: Path) -> None:
    place = Place(quick_directory / "data", scrub_bytes_per_s=10_000, scrub_interval_ms=DAY_MS)
    place.fill("a", 25)
    place.reopen()
    place.flip("a", 10, 5)
    scrubber = Scrubber(place.store)
    *waits, last = finish(scrubber)
    read_bytes = sum(path.stat().st_size for path in (place.path / "a-0").iterdir() if path.name != "topics")
    assert 0.9 * read_bytes < sum(waits) * 10_000 <= read_bytes
    assert last == DAY_MS / 1000
    assert len(place.store.damage()) == 1
    place.store.close()


def test_growing_segments_are_not_scrubbed(place: Place) -> None:
    place.fill("a", 3)
    growing = place.store.log("a").segment_list.segments[-1]
    assert growing.trailer is None
    place.flip("a", growing.base_offset, 4096, "index")
    assert place.store.scrub() == []


def test_pass_continues_where_the_last_process_stopped(place: Place) -> None:
    scrubber = Scrubber(place.store)
    while scrubber._at is None or scrubber._at[2] != 10:
        scrubber.run()
    scrubber.close()
    place.flip("a", 0, 5)
    place.flip("a", 20, 5)
    place.reopen()
    finish(Scrubber(place.store))
    assert [one.base_offset for one in place.store.damage()] == [20], "the first two were checked before"
    finish(Scrubber(place.store))
    assert [one.base_offset for one in place.store.damage()] == [0, 20]


def test_next_pass_waits_for_its_time_over_restarts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(Scrubber(place.store))
    place.clock.advance(3 * DAY_MS)
    store = place.reopen()
    expected: list[float] = []
    monkeypatch.setattr(store.maintenance, "expect", lambda task, after_s: expected.append(after_s))
    Scrubber(store).expect()
    place.clock.advance(10 * DAY_MS)
    Scrubber(store).expect()
    assert expected[0] == pytest.approx(4 * 86400, abs=1)
    assert expected[1] == 60


@pytest.mark.parametrize(
    "document", [b"rubbish", b"[]", b'{"at": 5}', b'{"at": ["a", "b", "c"]}', b'{"ended_us": "x"}']
)
def test_pass_begins_at_the_start_when_its_state_is_not_valid(place: Place, document: bytes) -> None:
    place.store.documents.put_many(SPACE, {"pass": document})
    place.flip("a", 0, 5)
    scrubber = Scrubber(place.store)
    scrubber.expect()
    finish(scrubber)
    assert [one.base_offset for one in place.store.damage()] == [0]


def test_interval_of_zero_disables_the_scrubber(quick_directory: Path) -> None:
    place = Place(quick_directory / "data", scrub_bytes_per_s=0)
    assert place.store.maintenance._due == {}
    place.store.close()


def test_background_pass_runs_without_a_call(quick_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timestone.upkeep.scrubbing._FIRST_S", 0.01)
    place = Place(quick_directory / "data", scrub_bytes_per_s=0)  # or its pass is over before there is damage
    place.fill("a", 25)
    place.store.close()
    place.flip("a", 10, 5)
    place.settings = {}
    place.store = place._opened()
    wait_for(place.store.damage)
    place.store.close()


def test_segment_that_cannot_be_opened_temporarily_is_not_damage(
    quick_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    place = Place(quick_directory / "data", files=files)
    place.fill("a", 25)
    place.reopen()
    files.fail("open", errno.EMFILE, path=f"{10:020d}.segment")
    assert place.store.scrub() == []
    assert "segment 10 could not be checked" in caplog.text
    place.store.close()


def test_catalogue_that_cannot_be_written_does_not_end_the_pass(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place.flip("a", 0, 5)
    place.flip("b", 0, 5)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(place.store.documents, "put_many", refuse)
    finish(Scrubber(place.store))
    assert "a-0, segment 0: offset 1" in caplog.text
    assert "b-0, segment 0: offset 1" in caplog.text
    assert "the findings of the scrubber could not be stored" in caplog.text


def test_damage_is_returned_and_stored_later_when_the_disk_is_full(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.flip("a", 0, 5)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    scrubber = Scrubber(place.store)
    with monkeypatch.context() as full:
        full.setattr(place.store.documents, "put_many", refuse)
        assert [(one.log, one.first, one.end) for one in place.store.scrub()] == [("a", 1, 2)]
        finish(scrubber)
    assert not place.store.damage()
    place.flip("b", 0, 5)
    scrubber.scrub()
    assert [(one.log, one.first) for one in place.store.damage()] == [("a", 1), ("b", 1)]
    place.flip("a", 0, 5)
    with monkeypatch.context() as full:
        full.setattr(place.store.documents, "put_many", refuse)
        assert [one.log for one in place.store.scrub()] == ["b"], "a is sound again"
