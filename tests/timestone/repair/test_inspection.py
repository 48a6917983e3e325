"""The findings of `inspect`, which needs only the files, takes no lock and changes nothing."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.expiring_store import HOUR_MS, ExpiringStore, expiring_store
from tests.support.faulty_files import FaultyFiles
from tests.support.specimen import FOLDER, INDEX, SEGMENT, Specimen, make_specimen
from timestone.errors import CorruptLog, NotAStore, UnknownLog
from timestone.kernel.entries import HEADER_BYTES, entry_position
from timestone.repair.inspection import (
    EXIT_CLEAN,
    EXIT_CORRUPT,
    EXIT_TORN,
    EXIT_UNCLOSED,
    EXIT_UNREADABLE,
    inspect_store,
)
from timestone.repair.inspection_report import StoreReport
from timestone.repair.salvage import salvage_store
from timestone.repair.salvage_report import EXIT_LOSSES
from timestone.upkeep.retention import CLOCK_KEY, SPACE


@pytest.fixture
def unclosed(quick_directory: Path) -> Specimen:
    return make_specimen(quick_directory / "made", closed=False, unsynced=3)


@pytest.fixture
def sealed(quick_directory: Path) -> Specimen:
    return make_specimen(quick_directory / "made", closed=True)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ExpiringStore]:
    with expiring_store(tmp_path / "data") as place:
        yield place


def inspect(specimen: Specimen, root: Path, *, deep: bool = False) -> StoreReport:
    specimen.write(root)
    files = FaultyFiles()
    report = inspect_store(root, deep=deep, files=files)
    assert files.calls == [], "nothing is changed"
    return report


def flip(position: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def test_clean_store_is_described(sealed: Specimen, quick_directory: Path) -> None:
    report = inspect(sealed, quick_directory / "data", deep=True)
    assert report.exit_code == EXIT_CLEAN
    assert report.owner_pid is None
    (log,) = report.logs
    assert (log.log, log.partition, log.start_offset, log.end_offset, log.synced_offset) == (
        "telemetry",
        0,
        0,
        8,
        8,
    )
    assert (log.records, log.topics, log.error) == (8, 3, "")
    (segment,) = log.segments
    assert (segment.base_offset, segment.next_offset, segment.records, segment.state) == (0, 8, 8, "sealed")
    assert segment.bytes == len(sealed.files[SEGMENT])
    times = [record.timestamp_us for record in sealed.records.values()]
    assert (segment.first_timestamp_us, segment.last_timestamp_us) == (min(times), max(times))


def test_unclosed_store_is_consistent(unclosed: Specimen, quick_directory: Path) -> None:
    report = inspect(unclosed, quick_directory / "data")
    assert report.exit_code == EXIT_UNCLOSED
    assert (report.logs[0].synced_offset, report.logs[0].end_offset) == (5, 8)


def test_torn_tail_has_its_own_exit_code(unclosed: Specimen, quick_directory: Path) -> None:
    report = inspect(unclosed.changed(SEGMENT, lambda data: data + b"torn"), quick_directory / "data")
    assert report.exit_code == EXIT_TORN
    assert report.logs[0].segments[0].lost_bytes == 4


def test_segment_without_its_index_is_corruption_also_after_it_was_put_aside(
    quick_directory: Path,
) -> None:
    """A thousand synced records without their index were called a torn tail, never acknowledged; and once they were in
    .lost files, the store was clean."""
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("a")
        for _ in range(3):
            log.append_many([b"x"] * 10)
            log.roll()
    index = quick_directory / "data" / "a-0" / f"{10:020d}.index"
    os.truncate(index, HEADER_BYTES - 100)
    report = inspect_store(quick_directory / "data")
    assert report.exit_code == EXIT_CORRUPT
    assert report.logs[0].missing == ((10, 20),)
    assert report.logs[0].segments[1].lost_durable == 10
    timestone.open(quick_directory / "data", min_free_bytes=0).close()
    after = inspect_store(quick_directory / "data")
    assert (after.logs[0].missing, after.exit_code) == (((10, 20),), EXIT_CORRUPT)


def test_damage_has_its_own_exit_code_and_names_the_offsets(
    unclosed: Specimen, quick_directory: Path
) -> None:
    report = inspect(unclosed.changed(INDEX, flip(entry_position(1) + 9)), quick_directory / "data")
    assert report.exit_code == EXIT_CORRUPT
    assert report.logs[0].segments[0].damaged_offsets == (1,)


def test_topics_of_a_segment_are_those_with_a_name(quick_directory: Path) -> None:
    """A segment without any topic was reported to have one: records without a topic have a row in the summary, too."""
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("a")
        log.append(b"x")
        log.roll()
        log.append_many([b"x", b"y"], topics=["t", "u"])
        log.roll()
    (found,) = inspect_store(quick_directory / "data").logs
    assert [segment.topics for segment in found.segments] == [0, 2]


@pytest.mark.parametrize("missing", [SEGMENT, INDEX], ids=["segment", "index"])
def test_half_a_pair_is_corruption(sealed: Specimen, quick_directory: Path, missing: Path) -> None:
    report = inspect(sealed.without(missing), quick_directory / "data")
    assert report.exit_code == EXIT_CORRUPT
    assert report.logs[0].segments[0].state == "orphan"


def test_unreadable_log_is_reported_with_the_others(sealed: Specimen, quick_directory: Path) -> None:
    damaged = sealed.with_file(Path("other-0/topics"), b"junk")
    report = inspect(damaged, quick_directory / "data")
    assert report.exit_code == EXIT_UNREADABLE
    assert [bool(log.error) for log in report.logs] == [True, False]


def test_interrupted_creation_of_a_log_is_not_a_fault(sealed: Specimen, quick_directory: Path) -> None:
    """Killed between the log's folder and its topic dictionary, a sound store was called unreadable: "No such file"."""
    sealed.write(quick_directory / "data")
    (quick_directory / "data" / "other-0").mkdir()
    report = inspect_store(quick_directory / "data")
    assert report.exit_code == EXIT_UNCLOSED
    assert [(log.log, log.unborn, log.error) for log in report.logs] == [
        ("other", True, ""),
        ("telemetry", False, ""),
    ]


def test_log_without_files_is_not_taken_for_a_new_one(sealed: Specimen, quick_directory: Path) -> None:
    for path in [path for path in sealed.files if path.parent == FOLDER]:
        sealed = sealed.without(path)
    sealed.write(quick_directory / "data")
    (quick_directory / "data" / FOLDER).mkdir()
    assert inspect_store(quick_directory / "data").exit_code == EXIT_UNREADABLE


def test_foreign_and_quarantined_files_are_listed(sealed: Specimen, quick_directory: Path) -> None:
    more = sealed.with_file(FOLDER / "notes.txt", b"").with_file(FOLDER / f"{SEGMENT.name}.lost", b"x")
    (log,) = inspect(more, quick_directory / "data").logs
    assert log.strangers == ("notes.txt",)
    assert log.put_aside == (f"{SEGMENT.name}.lost",)


def test_neither_lock_nor_catalogue_is_needed(sealed: Specimen, quick_directory: Path) -> None:
    bare = sealed.without(Path("LOCK")).without(Path("catalog.db"))
    report = inspect(bare, quick_directory / "data", deep=True)
    assert report.exit_code == EXIT_CLEAN, "the records are"
    assert report.notes[0].startswith("catalog.db is missing: it has the settings of the logs")


def test_damaged_catalogue_is_reported_with_the_next_step(sealed: Specimen, quick_directory: Path) -> None:
    catalogue = Path("catalog.db")
    page = 4096
    broken = sealed.changed(catalogue, lambda data: data[:page] + b"\xee" * page + data[2 * page :])
    report = inspect(broken, quick_directory / "data", deep=True)
    assert report.exit_code == EXIT_CORRUPT
    assert "catalog.db" in report.notes[0]
    assert "Next: " in report.notes[0]
    assert report.logs[0].records == 8, "the records do not need it"


def test_live_store_names_its_owner(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        store.log("a").append(b"x")
        report = inspect_store(quick_directory / "data", deep=True)
        assert report.owner_pid is not None
        assert report.logs[0].segments[0].state == "unclosed"
        assert report.exit_code == EXIT_CLEAN


def test_bytes_that_an_owner_is_writing_are_not_a_torn_tail(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("a")
        log.append(b"x")
        with next(log.folder.glob("*.segment")).open("ab") as segment:
            segment.write(b"half")
        report = inspect_store(quick_directory / "data")
        assert (report.logs[0].segments[0].state, report.exit_code) == ("torn", EXIT_CLEAN)


def test_one_log_can_be_chosen(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        for name, partition in (("a", 0), ("a", 1), ("b", 0)):
            store.log(name, partition).append(b"x")
    root = quick_directory / "data"
    assert [(log.log, log.partition) for log in inspect_store(root, log="a").logs] == [("a", 0), ("a", 1)]
    assert [(log.log, log.partition) for log in inspect_store(root, log="a-1").logs] == [("a", 1)]
    with pytest.raises(UnknownLog, match="'c' in this store; it has a-0, a-1, b-0"):
        inspect_store(root, log="c")


def test_progress_is_reported_segment_by_segment(sealed: Specimen, quick_directory: Path) -> None:
    sealed.write(quick_directory / "data")
    told: list[tuple[str, int, int]] = []
    inspect_store(quick_directory / "data", progress=lambda *step: told.append(step))
    assert told == [("telemetry-0", 1, 1)]


@pytest.mark.parametrize("what", ["missing", "empty", "file"])
def test_path_is_refused_when_it_is_not_a_store(quick_directory: Path, what: str) -> None:
    (quick_directory / "empty").mkdir()
    (quick_directory / "file").write_bytes(b"")
    with pytest.raises(NotAStore):
        inspect_store(quick_directory / what)


def test_missing_folder_of_a_log_is_reported_by_owner_view_and_inspection(tmp_path: Path) -> None:
    """The store could not be opened, and `inspect` called it clean, `salvage` saved."""
    root = tmp_path / "data"
    with timestone.open(root, min_free_bytes=0) as store:
        store.log("a").append(b"x")
        store.log("b").append_many([b"1", b"2"])
    shutil.rmtree(root / "b-0")
    report = inspect_store(root)
    assert report.exit_code == EXIT_CORRUPT
    assert (
        "b-0: the catalogue has this log, but its folder is missing. Next: bring the folder back"
        in report.notes[0]
    )
    assert inspect_store(root, log="a").exit_code == EXIT_CLEAN
    rescued = salvage_store(root, tmp_path / "rescued")
    assert (rescued.exit_code, rescued.notes) == (
        EXIT_LOSSES,
        ("b-0: its folder is missing; all of it is lost",),
    )
    with pytest.raises(CorruptLog, match="make an empty one, then the log continues at offset 2"):
        timestone.open(root)
    (root / "b-0").mkdir()
    with timestone.open(root, min_free_bytes=0) as store:
        assert store.log("b", create=False).append(b"3") == 2


def test_inspection_accepts_a_log_shortened_by_retention(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 6)
    log.reader(name="slow").commit(1)
    place.seal(log)
    place.clock.advance(2 * HOUR_MS)
    log.apply_retention()
    report = inspect_store(place.path)
    (found,) = report.logs
    assert (found.start_offset, found.end_offset, found.synced_offset, found.segments) == (6, 6, 6, ())
    assert found.strangers == ()
    assert report.exit_code == EXIT_CLEAN
    assert (report.readers[0].missed, report.readers[0].lag) == (5, 0)


def test_inspection_ignores_segments_deleted_during_it(place: ExpiringStore) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 13)

    def delete(folder: str, done: int, count: int) -> None:
        log.apply_retention()
        place.store.deleted_files.unlink_all()

    report = inspect_store(place.path, deep=True, progress=delete)
    assert report.exit_code == EXIT_CLEAN
    assert [segment.base_offset for segment in report.logs[0].segments] == [12]


def test_segments_that_are_old_only_by_their_timestamps_are_counted(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 9)
    place.clock.advance(HOUR_MS // 2)
    log = place.rebooted(b"another boot id!", off_ms=HOUR_MS)
    place.fill(log, 1)

    def found() -> int:
        (report,) = inspect_store(place.path, clock=place.clock).logs
        return report.age_unproven

    assert found() == 3
    place.store.documents.put_many(SPACE, {CLOCK_KEY: None})
    assert found() == 3
    place.clock.step(-HOUR_MS)
    assert found() == 0


def test_segments_that_are_old_are_not_counted_among_those_of_unproven_age(place: ExpiringStore) -> None:
    place.fill(place.log(retention_ms=HOUR_MS), 9)
    place.store.close()
    place.clock.advance(HOUR_MS)
    (report,) = inspect_store(place.path, clock=place.clock).logs
    assert (report.age_unproven, len(report.segments)) == (0, 3)
