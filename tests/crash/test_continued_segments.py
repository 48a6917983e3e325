"""A close leaves a small segment unsealed, and the next owner appends to it: kills and power losses at any operation.

TIMESTONE_POWER_LOSS_IMAGES=20 TIMESTONE_SEED=random pytest tests/crash/test_continued_segments.py
"""

import contextlib
import errno
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles, SimulatedKill
from tests.support.power_loss import Disk, Loss, images
from tests.support.recording_files import Noted, RecordingFiles
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.step_clock import BOOT_ID, NEXT_BOOT_ID, START_US, StepClock
from tests.support.waiting import wait_for_seals
from timestone import Log, LogConfig, LogView, Store, StoreConfig
from timestone.disk.files import Files
from timestone.errors import CorruptRecord
from timestone.repair.inspection import EXIT_CLEAN, inspect_store

pytestmark = pytest.mark.crash

IMAGES = rounds(1, "TIMESTONE_POWER_LOSS_IMAGES")
DAY_MS = 86_400_000
SEGMENT, INDEX = f"{0:020d}.segment", f"{0:020d}.index"


def opened(
    root: Path,
    files: Files | None = None,
    *,
    boot_id: bytes = BOOT_ID,
    clock: StepClock | None = None,
    **log: int,
) -> Store:
    config = StoreConfig(min_free_bytes=0, sync_interval_ms=10**9, log=LogConfig(**log))  # type: ignore[arg-type]
    store = Store(root, config, files=files, clock=clock or StepClock(START_US, boot_id))
    store.maintenance.stop()
    return store


def payload(offset: int) -> bytes:
    return b"%04d" % offset * (offset % 7)


def append(log: Log, count: int) -> None:
    for _ in range(count):
        log.append(payload(log.end_offset))


def segments(log: Log) -> list[tuple[int, int, bool]]:
    """Return base, end and whether it is sealed, of each segment."""
    return [(one.base_offset, one.end_offset, one.trailer is not None) for one in log.segment_list.segments]


def check(log: Log | LogView, end_offset: int) -> None:
    records = list(log.reader("earliest"))
    assert [record.offset for record in records] == list(range(log.end_offset))
    assert all(record.payload == payload(record.offset) for record in records)
    assert log.end_offset >= end_offset


def test_many_short_runs_leave_one_segment(quick_directory: Path) -> None:
    root = quick_directory / "store"
    for number in range(100):
        with opened(root) as store:
            assert store.recoveries == ()
            assert store.log("a").append(payload(number)) == number
    assert sorted(path.name for path in (root / "a-0").iterdir()) == [INDEX, SEGMENT, "topics"]
    assert (root / "a-0" / INDEX).stat().st_size == 4096 + 100 * 32, "no space stays reserved"
    with opened(root) as store:
        check(store.log("a"), 100)
        assert (store.log("a").end_offset, store.log("a").epoch) == (100, 0)


def test_run_without_an_append_writes_nothing_to_the_log(quick_directory: Path) -> None:
    with opened(quick_directory / "store") as store:
        append(store.log("a"), 3)
    files = FaultyFiles()
    with opened(quick_directory / "store", files) as store:
        check(store.log("a"), 3)
    writing = {"create", "pwrite", "pwritev", "truncate", "fdatasync", "reserve", "rename", "unlink"}
    assert [call for call in files.calls if call[0] in writing and "a-0" in str(call[1])] == []


def test_view_follows_a_segment_over_close_and_continuation(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with opened(root) as store:
        append(store.log("a"), 5)
        view = timestone.view(root)
        log = view.log("a")
        check(log, 5)
    for end in (5, 8, 11):
        assert (log.refresh(), log.synced_offset) == (end, end), "nothing is open"
        check(log, end)
        with timestone.view(root) as another:
            assert (another.log("a").end_offset, another.log("a").synced_offset) == (end, end)
        with opened(root) as store:
            assert (log.refresh(), log.synced_offset) == (end, end)
            append(store.log("a"), 3)
            assert log.refresh() == end + 3
            check(log, end + 3)
    view.close()


def test_closed_store_is_clean(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with opened(root) as store:
        append(store.log("a"), 5)
    report = inspect_store(root, deep=True)
    assert report.exit_code == EXIT_CLEAN
    assert [segment.state for segment in report.logs[0].segments] == ["closed"]
    config = StoreConfig(recovery="strict")  # type: ignore[arg-type]
    with Store(root, config) as store:
        check(store.log("a"), 5)


@pytest.mark.parametrize("size", [65_536, 1], ids=["many records", "many bytes"])
def test_close_seals_a_segment_that_is_not_small(quick_directory: Path, size: int) -> None:
    with opened(quick_directory / "store") as store:
        store.log("a").append_many([bytes(16 << 20)] if size == 1 else [b"x"] * size)
    with opened(quick_directory / "store") as store:
        assert segments(store.log("a")) == [(0, size, True)]
        store.log("a").append(b"x")
        assert segments(store.log("a"))[1:] == [(size, size + 1, False)]


def test_segment_of_another_boot_is_sealed_by_the_first_append(quick_directory: Path) -> None:
    """Its header has the boot id by which a later open decides whether records may be lost."""
    root = quick_directory / "store"
    with opened(root) as store:
        append(store.log("a"), 3)
    with opened(root, boot_id=NEXT_BOOT_ID) as store:
        log = store.log("a")
        assert segments(log) == [(0, 3, False)]
        append(log, 2)
        wait_for_seals(log)
        assert segments(log) == [(0, 3, True), (3, 5, False)]
        assert (log.end_offset, log.epoch) == (5, 0)


def test_continued_segment_is_rolled_by_its_limits(quick_directory: Path) -> None:
    root, clock = quick_directory / "store", StepClock()
    for _ in range(3):
        with opened(root, clock=clock, segment_entries=5, segment_age_ms=DAY_MS) as store:
            append(store.log("a"), 2)
    with opened(root, clock=clock) as store:
        assert segments(store.log("a")) == [(0, 5, True), (5, 6, False)]
        clock.advance(DAY_MS)
        append(store.log("a"), 1)
        wait_for_seals(store.log("a"))
        assert segments(store.log("a"))[1:] == [(5, 6, True), (6, 7, False)]


def test_retention_seals_and_deletes_a_segment_of_short_runs_by_its_first_record(
    quick_directory: Path,
) -> None:
    root, clock = quick_directory / "store", StepClock()
    for _ in range(24):
        with opened(root, clock=clock, retention_ms=DAY_MS) as store:
            append(store.log("a"), 1)
            assert store.log("a").apply_retention() == 0
            assert segments(store.log("a")) == [(0, store.log("a").end_offset, False)]
        clock.advance(DAY_MS // 24)
    with opened(root, clock=clock) as store:
        log = store.log("a")
        assert log.apply_retention() == 0
        wait_for_seals(log)
        assert segments(log) == [(0, 24, True)], "its first record is a day old"
        clock.advance(22 * DAY_MS // 24)
        assert log.apply_retention() == 0, "its last one is not"
        clock.advance(DAY_MS // 24)
        assert log.apply_retention() == 1
        assert (log.start_offset, log.append(b"")) == (24, 24)


def test_damaged_record_of_a_closed_segment_is_reported(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with opened(root) as store:
        append(store.log("a"), 6)
    index = root / "a-0" / INDEX
    data = bytearray(index.read_bytes())
    data[4096 + 2 * 32 + 8] ^= 1
    index.write_bytes(data)
    with opened(root) as store:
        assert "damaged" in str(store.recoveries)
        with pytest.raises(CorruptRecord):
            store.log("a").record(2)
        assert [store.log("a").record(offset).payload for offset in (1, 3, 5)] == [
            payload(1),
            payload(3),
            payload(5),
        ]
        assert store.log("a").append(b"") >= 6


@pytest.mark.parametrize("position", [512, 1024])
def test_closed_segment_is_verified_when_a_checkpoint_is_damaged(
    quick_directory: Path, position: int
) -> None:
    root = quick_directory / "store"
    with opened(root) as store:
        append(store.log("a"), 6)
    index = root / "a-0" / INDEX
    data = bytearray(index.read_bytes())
    data[position + 8] ^= 1
    index.write_bytes(data)
    with opened(root) as store:
        check(store.log("a"), 6)
        assert store.log("a").append(payload(6)) == 6


@pytest.mark.parametrize("operation", ["fdatasync", "truncate", "pwrite"])
def test_segment_is_sealed_when_it_cannot_be_closed(
    quick_directory: Path, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    store = opened(quick_directory / "store", files)
    append(store.log("a"), 4)
    files.fail(operation, errno.EIO, path="a-0")
    with caplog.at_level(logging.WARNING, "timestone"):
        store.close()
    assert "is sealed instead of closed" in caplog.text
    with opened(quick_directory / "store") as store:
        assert store.recoveries == ()
        assert segments(store.log("a")) == [(0, 4, True)]
        check(store.log("a"), 4)


def test_append_is_refused_and_works_again_when_the_segment_cannot_be_opened(quick_directory: Path) -> None:
    with opened(quick_directory / "store") as store:
        append(store.log("a"), 4)
    files = FaultyFiles()
    with opened(quick_directory / "store", files) as store:
        fault = files.fail("open", errno.EMFILE, path="index", forever=True)
        with pytest.raises(OSError, match="index"):
            store.log("a").append(payload(4))
        fault.lift()
        append(store.log("a"), 1)
        assert segments(store.log("a")) == [(0, 5, False)]
        check(store.log("a"), 5)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_acknowledged_records_are_kept_when_killed_at_each_operation(
    quick_directory: Path, moment: str
) -> None:
    """From the open of a closed log over an append to the close."""
    # The first operation opens LOCK, and a kill after it would leave the descriptor open in this process.
    number, done = int(moment == "after"), False
    while not done:
        number += 1
        root = quick_directory / f"killed {number}"
        with opened(root) as begun:
            append(begun.log("a"), 3)
        files = FaultyFiles()
        files.kill(number, moment)
        synced = 3
        store: Store | None = None
        with contextlib.suppress(SimulatedKill):
            store = opened(root, files)
            append(store.log("a"), 1)
            synced = 4
            store.close()
        done = not files.dead
        files.abandon()
        if store is not None:
            store.abandon()
            store.documents.close()
        with told_on_failure(operation=number):
            with timestone.view(root) as view:
                check(view.log("a"), synced)
            for _ in range(2):
                with opened(root) as again:
                    end_offset = again.log("a").end_offset
                    check(again.log("a"), synced)
                    assert (end_offset <= 5, again.log("a").epoch) == (True, 0), "a kill leaves no offset out"
                    assert again.log("a").append(payload(end_offset)) == end_offset
        shutil.rmtree(root)
    assert number > 10


def recorded(root: Path) -> RecordingFiles:
    """Record runs of a store that each append to the segment of the one before; note the end that was acknowledged."""
    root.mkdir(parents=True)
    recorder = RecordingFiles(root)
    clock = StepClock()
    for _ in range(3):
        store = opened(root, recorder, clock=clock)
        for _ in range(2):
            log = store.log("a")
            log.append(payload(log.end_offset))
            recorder.note(log.end_offset)
        store.close()
    return recorder


def moments(recorder: RecordingFiles) -> Iterator[tuple[int, Disk, int]]:
    disk, synced = Disk(recorder), 0
    for number, operation in enumerate(recorder.operations):
        disk.apply(number, operation)
        if isinstance(operation, Noted):
            synced = operation.value
        yield number, disk, synced


@pytest.mark.timeout(600)
def test_synced_records_are_kept_when_the_power_fails_at_any_operation(quick_directory: Path) -> None:
    recorder = recorded(quick_directory / "run" / "store")
    seed, root, checked = run_seed("continued"), quick_directory / "image", 0
    for number, disk, synced in moments(recorder):
        for loss, _, left in images(disk, seed, number, IMAGES):
            with told_on_failure(TIMESTONE_SEED=seed, moment=number, loss=loss.name):
                left.write(root)
                if root.exists():
                    check_image(root, synced, loss)
            shutil.rmtree(root, ignore_errors=True)
            checked += 1
    print(f"{checked} images of {len(recorder.operations)} operations, seed {seed}")


def check_image(root: Path, synced: int, loss: Loss) -> None:
    """Check what the next owner finds, and that a second one finds what the first has appended."""
    boot_id = BOOT_ID if loss is Loss.NOTHING else NEXT_BOOT_ID
    for _ in range(2):
        with opened(root, boot_id=boot_id) as store:
            if ("a", 0) not in store.log_names():
                assert synced == 0
                return
            log = store.log("a")
            found = [record.offset for record in log.reader("earliest")]
            assert found[:synced] == list(range(synced))
            assert all(record.payload == payload(record.offset) for record in log.reader("earliest"))
            if loss is Loss.NOTHING:
                assert found == list(range(log.end_offset)), "a kill leaves no offset out"
            following = log.append(payload(log.end_offset))
            assert following >= synced
            if loss is not Loss.NOTHING and log.epoch == 0:
                assert following <= synced + 1
            synced = following + 1 if log.epoch == 0 else synced
