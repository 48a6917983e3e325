"""Copies of a store in use, whose files are of different moments: `inspect --deep` and a view accept them and report
their state.

A copy takes time, and the owner continues: files copied later are newer. Every moment of a recorded run is combined
with later ones, so that there are copies from the middle of each append, roll, seal and stop.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.crash_oracle import Promises
from tests.support.power_loss import Disk, Image, Loss
from tests.support.seeds import told_on_failure
from tests.support.specimen import FOLDER
from tests.support.stores import LOG, value_of
from tests.support.workload import LOG_NAME, Content, Workload, crash_config
from timestone import Ack, CorruptLog, CorruptRecord, LogView, view
from timestone.repair.inspection import EXIT_TORN, inspect_store
from timestone.repair.inspection_report import LogReport
from timestone_cli.output.explanations import explanations

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]
APART = (1, 2, 3, 5, 8, 13, 30, 60)
"""Number of operations of the owner between the two halves of a copy."""


def steps(work: Workload) -> None:
    for number in range(6):
        ack = Ack.SYNCED if number % 2 else Ack.WRITTEN
        work.append_many(ack, 2 + number % 3, topic=f"devices/{number}")
        work.wait_for_seals()
    work.reopen()
    work.append_many(Ack.SYNCED, 3, topic="devices/1")


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Image, int]]:
    """Return the files after each operation, and the offset below which all records were synced then."""
    work = Workload(tmp_path_factory.mktemp("run") / "store", crash_config(segment_entries=5))
    work.run(steps)
    disk, promises, found = Disk(work.recorder), Promises(), []
    for number, operation in enumerate(work.recorder.operations):
        disk.apply(number, operation)
        promises.note(operation)
        found.append((disk.image(random.Random(0), Loss.NOTHING), promises.synced))
    global EXPECTED
    EXPECTED = [content for attempt in work.attempts for content in attempt.contents]
    return found


EXPECTED: list[Content] = []


def is_index(path: Path) -> bool:
    return ".index" in path.name


def mixed(first: Image, then: Image, *, index_first: bool) -> Image:
    """Write a copy whose indexes, or all other files, are of the first moment, and the rest of the second."""
    files = {path: data for path, data in first.files.items() if is_index(path) == index_first}
    files |= {path: data for path, data in then.files.items() if is_index(path) != index_first}
    return Image(then.directories, files)


def copies(moments: list[tuple[Image, int]], *, index_first: bool) -> Iterable[tuple[int, int, Image, int]]:
    """Return each copy once, with the most records that were synced before one like it: most operations change no file
    that differs between the two halves."""
    found: dict[tuple[Any, ...], tuple[int, int, Image, int]] = {}
    for number, (first, synced) in enumerate(moments):
        for apart in APART:
            if number + apart < len(moments) and first.files:
                image = mixed(first, moments[number + apart][0], index_first=index_first)
                same = frozenset(image.directories), frozenset(image.files.items())
                if any(is_index(path) for path in image.files) and (
                    same not in found or synced >= found[same][-1]
                ):
                    found[same] = number, number + apart, image, synced
    return found.values()


def readable(log: LogView) -> dict[int, Content]:
    """Return everything that a reader gets, stepping over corrupt records."""
    found: dict[int, Content] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            batch = log.read(offset)
        except CorruptRecord as error:
            offset = error.next_offset
            continue
        except CorruptLog:
            break  # its segment was made after the copy of the segments
        found |= {record.offset: Content(record.payload, record.topic) for record in batch}
        offset = batch.next_offset
    return found


def look(root: Path) -> tuple[int, LogReport, dict[int, Content]]:
    report = inspect_store(root, deep=True)
    (log,) = report.logs
    sentences = list(explanations(report))
    assert all("Next: " in sentence for sentence in sentences)
    if report.exit_code:
        assert any("a store in use" in sentence for sentence in sentences)
    if not (root / FOLDER / "topics").exists():
        assert "topics" in log.error or log.topics_reason == "the topic dictionary is missing"
        return report.exit_code, log, {}
    assert not log.error
    with view(root) as found:
        records = readable(found.log(LOG_NAME))
    for offset, content in records.items():
        # The dictionary may be older than the index: then the copy lacks the names of new topics, and reports it.
        told = log.topic_names_lost or any(one.lost_records or one.damaged_offsets for one in log.segments)
        assert content.payload == EXPECTED[offset].payload
        assert content.topic == EXPECTED[offset].topic or (told and content.topic is None)
    return report.exit_code, log, records


@pytest.mark.timeout(600)
def test_copy_of_indexes_before_segments_has_all_records_synced_before_it(
    moments: list[tuple[Image, int]], quick_directory: Path
) -> None:
    count = 0
    for first, then, image, synced in copies(moments, index_first=True):
        root = quick_directory / f"{first} {then}"
        image.write(root)
        with told_on_failure(first=first, then=then):
            code, log, records = look(root)
            assert not [segment for segment in log.segments if segment.damaged_offsets]
            orphans = [segment for segment in log.segments if segment.state == "orphan"]
            assert all(segment.reason == "the index is missing" for segment in orphans)
            assert code <= EXIT_TORN or orphans
            assert set(range(synced)) <= set(records)
            assert not log.topic_names_lost
        count += 1
    assert count > 200


@pytest.mark.timeout(600)
def test_copy_of_segments_before_indexes_reports_its_missing_records(
    moments: list[tuple[Image, int]], quick_directory: Path
) -> None:
    lacking = 0
    for first, then, image, _ in copies(moments, index_first=False):
        root = quick_directory / f"{first} {then}"
        image.write(root)
        with told_on_failure(first=first, then=then):
            _, log, records = look(root)
            for segment in log.segments:
                if segment.damaged_offsets:
                    assert segment.missing_bytes > 0
                    # Records without bytes can be read wherever their segment ends.
                    readable_all_the_same = set(segment.damaged_offsets) & set(records)
                    assert not any(records[offset].payload for offset in readable_all_the_same)
                    lacking += 1
    assert lacking > 30, "the two halves are of different moments"


@pytest.mark.timeout(120)
def test_copies_made_beside_a_writer_can_be_read(quick_directory: Path) -> None:
    root = quick_directory / "store"
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.support.writer", root],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdin and writer.stdout
    writer.stdout.readline()
    while not list(root.glob(f"{LOG}-0/*.index")):
        time.sleep(0.01)
    try:
        for number, order in enumerate(["index segment topics", "segment index topics"] * 6):
            copy = quick_directory / f"copy{number}"
            (copy / f"{LOG}-0").mkdir(parents=True)
            subprocess.run(["cp", root / "LOCK", copy], check=True)
            end = inspect_store(root).logs[0].end_offset
            for kind in order.split():
                subprocess.run(f"cp {root}/{LOG}-0/*{kind} {copy}/{LOG}-0", shell=True, check=True)
            report = inspect_store(copy, deep=True)
            assert report.copied_from_pid == writer.pid
            assert f"names process {writer.pid}, which runs here" in next(explanations(report))
            if order.startswith("index"):
                (log,) = report.logs
                reasons = {found.reason for found in log.segments if found.state == "orphan"}
                assert report.exit_code <= EXIT_TORN or reasons == {"the index is missing"}, (
                    log.missing, log.topics_reason, log.topic_names_lost,
                    [(one.base_offset, one.state, one.reason, one.lost_durable) for one in log.segments],
                )  # fmt: skip
                with view(copy) as found:
                    records = [record.payload for record in found.log(LOG).reader("earliest")]
                assert records == [value_of(offset) for offset in range(len(records))]
                assert len(records) >= end
    finally:
        writer.stdin.close()
        writer.wait(20)
        writer.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="splice is a call of Linux")
def test_copy_is_not_corrupt_when_records_arrive_between_its_holes_and_its_contents(
    quick_directory: Path,
) -> None:
    """`cp` on a memory file system: the kernel takes what the file has no page for as a hole, all other pages by
    reference, and copies their contents later."""
    root, copy = quick_directory / "store", quick_directory / "copy"
    with timestone.open(root, min_free_bytes=0) as store, ExitStack() as opened:
        log = store.log(LOG)
        log.append_many([value_of(offset) for offset in range(100)])
        (copy / log.folder.name).mkdir(parents=True)
        index = next(log.folder.glob("*.index"))
        source, target = os.pipe()
        opened.callback(os.close, source)
        with index.open("rb") as file:
            taken = os.splice(file.fileno(), target, index.stat().st_size)
        os.close(target)
        log.append_many(
            [value_of(offset) for offset in range(100, 300)]
        )  # the page of entries is full with 128
        with (copy / log.folder.name / index.name).open("wb") as written:
            while piece := os.read(source, taken):
                written.write(piece)
        for path in [*log.folder.glob("*.segment"), log.folder / "topics"]:
            shutil.copy(path, copy / log.folder.name)
    assert inspect_store(copy, deep=True).exit_code <= EXIT_TORN
    with view(copy) as found:
        assert [record.payload for record in found.log(LOG).reader("earliest")] == list(
            map(value_of, range(300))
        )


def test_stopped_store_is_not_treated_as_a_copy(quick_directory: Path) -> None:
    """The process that closed it may still run, and its pid stays in the LOCK."""
    root = quick_directory / "store"
    work = Workload(root, crash_config())
    work.run(lambda work: work.append(Ack.SYNCED))
    assert inspect_store(root).copied_from_pid is None
