from pathlib import Path

import pytest

import timestone
from timestone.config import LogConfig
from timestone.disk.catalog import CatalogRow
from timestone.disk.files import Files
from timestone.repair.inspection_report import LogReport
from timestone.repair.log_inspection import LogInspection


@pytest.fixture
def store(quick_directory: Path) -> Path:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("telemetry")
        log.append_many([b"x"] * 8, topic="a")
        log.roll()
        log.append_many([b"y"] * 3, topic="b")
    return quick_directory / "data"


def look(
    store: Path, row: CatalogRow | None = None, seen: list[tuple[str, int, int]] | None = None
) -> LogReport:
    def progress(log: str, done: int, count: int) -> None:
        if seen is not None:
            seen.append((log, done, count))

    return LogInspection(Files(), store, ("telemetry", 0), row, False, progress).report()


def test_log_is_reported_with_its_segments_and_progress(store: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    report = look(store, seen=seen)
    assert (report.start_offset, report.end_offset, report.records, report.topics) == (0, 11, 11, 2)
    assert [(one.base_offset, one.next_offset, one.state) for one in report.segments] == [
        (0, 8, "sealed"),
        (8, 11, "closed"),
    ]
    assert seen == [("telemetry-0", 1, 2), ("telemetry-0", 2, 2)]
    assert (report.error, report.missing, report.unborn) == ("", (), False)


def test_names_of_topics_are_not_read_when_they_are_not_wanted(store: Path) -> None:
    (store / "telemetry-0" / "topics").unlink()
    row = CatalogRow(LogConfig(), next_offset=11, epoch=1)
    whole = look(store, row)
    quick = LogInspection(Files(), store, ("telemetry", 0), row, False, None, topics=False).report()
    assert (whole.topic_names_lost, whole.topics_reason) == (2, "the topic dictionary is missing")
    assert (quick.topic_names_lost, quick.topics_reason) == (0, "")
    assert (quick.segments, quick.topics, quick.id) == (whole.segments, 2, whole.id)


def test_unreadable_file_is_an_error_in_the_report(store: Path) -> None:
    for path in (store / "telemetry-0").iterdir():
        path.unlink()
    row = CatalogRow(LogConfig(), next_offset=11, epoch=1)
    assert "topics" in look(store, row).error
    assert look(store).unborn, "the catalogue does not know it: it is just being made"


def test_log_without_segments_continues_at_the_offset_of_the_catalogue(store: Path) -> None:
    for path in (store / "telemetry-0").iterdir():
        if path.suffix in (".index", ".segment"):
            path.unlink()
    report = look(store, CatalogRow(LogConfig(), next_offset=11, epoch=1))
    assert (report.start_offset, report.end_offset, report.synced_offset, report.error) == (11, 11, 11, "")
