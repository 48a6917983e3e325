"""Opening a store reports its progress when it takes long."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.killed_store import kill_store
from tests.support.stores import fill
from timestone.recovery.opening_progress import OpeningProgress


class Clock:
    """Half a second a look."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        self.now_s += 0.5
        return self.now_s


@pytest.fixture
def info(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="timestone"):
        yield caplog


def test_progress_is_reported_to_the_caller_each_time_after_one_second(
    info: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[str, int, int]] = []
    progress = OpeningProgress(Path("data"), lambda *values: told.append(values), Clock())
    progress("a-0", 1, 9)
    assert (told, info.messages) == ([], [])
    for done in range(2, 10):
        progress("a-0", done, 9)
    assert told == [("a-0", done, 9) for done in range(2, 10)]


def test_log_has_a_line_every_few_seconds(info: pytest.LogCaptureFixture) -> None:
    progress = OpeningProgress(Path("data"), None, Clock())
    for done in range(1, 14):
        progress("a-0", done, 20)
    assert info.messages == [
        "opening data: a-0, 2 of 20 segments scanned in 1 s",
        "opening data: a-0, 12 of 20 segments scanned in 6 s",
    ]


def test_line_has_the_number_of_logs_when_there_are_many(info: pytest.LogCaptureFixture) -> None:
    progress = OpeningProgress(Path("data"), None, Clock())
    for number in range(1, 4):
        progress.begin(number, 3)
        progress(f"log{number}-0", 1, 1)
    assert info.messages == ["opening data: log 2 of 3, log2-0, 1 of 1 segments scanned in 1 s"]


def test_store_reports_every_log_and_each_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for log, count in (("a", 30), ("b", 5)):
        fill(tmp_path / "data", count, log=log, segment_entries=10)
    files = FaultyFiles()
    killed = timestone.open(tmp_path / "data", ack="written", files=files)
    killed.log("b").append(b"unclosed")
    kill_store(killed, files)
    monkeypatch.setattr("timestone.recovery.opening_progress._PATIENCE_S", 0.0)
    told: list[tuple[str, int, int]] = []
    timestone.open(tmp_path / "data", progress=lambda *values: told.append(values)).close()
    assert [one for one in told if one[0] == "a-0"] == [("a-0", done, 3) for done in range(4)]
    assert told[-1] == ("b-0", 2, 2)
    assert len([one for one in told if one[0] == "b-0"]) == 4, "0, 1 and 2 looked at, and one repaired"
