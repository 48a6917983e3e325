"""Segments of a dead owner are served at once and made durable before anything is written behind them."""

import errno
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from tests.support.killed_store import kill_store
from tests.support.specimen import FOLDER, INDEX, LOG_NAME, SEGMENT, Specimen, make_specimen
from tests.support.step_clock import NEXT_BOOT_ID, StepClock
from timestone.config import StoreConfig
from timestone.errors import LogFailed
from timestone.index import Checkpoint
from timestone.log import Log
from timestone.recovery.deferred_seals import DeferredSeals, may_wait
from timestone.recovery.segment_report import SegmentScan, State
from timestone.store import Store
from timestone.writing.segment_writer import RESERVE_OFFSETS

COUNT, SYNCED = 8, 5
WHOLE = SegmentScan(100, State.UNCLOSED, count=10, segment_bytes=500, segment_file_bytes=500)


class Held(FaultyFiles):
    """A disk that flushes no segment until it is released, so that deferred seals stay deferred."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def fdatasync(self, fd: int) -> None:
        if self._path(fd).endswith(".segment"):
            assert self.go_on.wait(10)
        super().fdatasync(fd)


@pytest.fixture(scope="module")
def specimen(tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    return make_specimen(
        tmp_path_factory.mktemp("made") / "store", closed=False, count=COUNT, unsynced=COUNT - SYNCED
    )


@contextmanager
def opened(root: Path, files: FaultyFiles, boot_id: bytes | None = None) -> Iterator[tuple[Store, Log]]:
    """The store, with nothing sealed before it is open."""
    config = StoreConfig(min_free_bytes=0, sync_interval_ms=10**9, sealed_at_open=0, tail_bytes=0)
    clock = StepClock() if boot_id is None else StepClock(boot_id=boot_id)
    store = Store(root, config, files=files, clock=clock)
    try:
        yield store, store.log(LOG_NAME)
    finally:
        if not files.dead:
            store.close()
        shutil.rmtree(root)


def _files(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_durable_records_end_at_the_checkpoint_of_the_first_deferred_segment() -> None:
    first = replace(WHOLE, checkpoint=Checkpoint(2, 7, 350, 2000))
    second = replace(WHOLE, base_offset=110, checkpoint=Checkpoint(2, 10, 500, 2000))
    assert DeferredSeals([first, second], lambda: None).synced_offset == 107
    assert DeferredSeals([WHOLE, second], lambda: None).synced_offset == 100


@pytest.mark.parametrize(
    "change",
    [
        {"state": State.TORN},
        {"state": State.DAMAGED},
        {"state": State.ORPHAN},
        {"state": State.SEALED},
        {"count": 0},
        {"reason": "no checkpoint holds"},
        {"superseded": True},
        {"segment_file_bytes": 501},
    ],
    ids=str,
)
def test_only_a_whole_segment_is_deferred(change: dict[str, object]) -> None:
    assert may_wait(WHOLE)
    assert not may_wait(replace(WHOLE, **change))  # type: ignore[arg-type]


def test_deferred_segment_is_served_and_not_reported_as_durable(
    specimen: Specimen, quick_directory: Path
) -> None:
    specimen.write(root := quick_directory / "store")
    files = Held()
    with opened(root, files) as (store, log):
        assert [str(recovered) for recovered in store.recoveries]
        assert {record.offset: record for record in log.reader("earliest")} == specimen.records
        assert (log.synced_offset, log.end_offset) == (SYNCED, COUNT)
        waited = log.has_deferred_seals
        files.go_on.set()
        assert log.sync() == COUNT
        assert (waited, log.has_deferred_seals) == (True, False)
        assert log.segment_list.segments[0].trailer is not None


def test_first_append_happens_after_the_deferred_seal(specimen: Specimen, quick_directory: Path) -> None:
    specimen.write(root := quick_directory / "store")
    files = FaultyFiles()
    with opened(root, files) as (_, log):
        assert log.append(b"next") == COUNT
        calls = [(operation, Path(path).name) for operation, path in files.calls]
        sealed = calls.index(("rename", INDEX.name))
        assert sealed < calls.index(("create", f"{COUNT:020d}.segment"))
        assert ("fdatasync", SEGMENT.name) in calls[:sealed]
        assert ("fdatasync", "topics") in calls[:sealed]


def test_only_so_many_logs_are_sealed_before_the_store_is_open(quick_directory: Path) -> None:
    root, files = quick_directory / "store", FaultyFiles()
    store = Store(root, StoreConfig(min_free_bytes=0, sync_interval_ms=10**9), files=files)
    for name in "abc":
        store.log(name).append(b"x", ack="written")
    kill_store(store, files)
    with Store(root, StoreConfig(min_free_bytes=0, sealed_at_open=1)) as store:
        assert not store.log("a").has_deferred_seals
        assert len(store.recoveries) == 3
        for name in "abc":
            assert [record.payload for record in store.log(name).reader("earliest")] == [b"x"]
    with Store(root, StoreConfig(recovery="strict")) as store:  # type: ignore[arg-type]
        assert store.recoveries == (), "closing has sealed the rest"


def test_failed_flush_of_a_deferred_segment_fails_the_log_and_loses_nothing(
    specimen: Specimen, quick_directory: Path
) -> None:
    """The records were written by the dead owner, so this process does not have them in memory: the log accepts no
    append behind them, and the next owner finds the marker and copies them."""
    specimen.write(root := quick_directory / "store")
    files = FaultyFiles()
    files.fail("fdatasync", errno.EIO, path=SEGMENT.name)
    with opened(root, files) as (_, log):
        with pytest.raises(LogFailed) as failed:
            log.append(b"next")
        assert failed.value.unsynced == range(SYNCED, COUNT)
        assert {record.offset: record for record in log.reader("earliest")} == specimen.records
        assert (root / FOLDER / "failed-flush").exists()
        left = quick_directory / "left"
        shutil.copytree(root, left)
    with opened(left, FaultyFiles()) as (_, log):
        assert log.append(b"next") == COUNT
        assert [record.offset for record in log.reader("earliest")] == [*range(COUNT + 1)]
        assert not (left / FOLDER / "failed-flush").exists()


def test_appends_continue_behind_flushed_segments_when_the_disk_is_too_full_to_seal(
    specimen: Specimen, quick_directory: Path
) -> None:
    specimen.write(root := quick_directory / "store")
    files = FaultyFiles()
    files.fail("create", errno.ENOSPC, path=".index.tmp", forever=True)
    with opened(root, files) as (_, log):
        assert log.append(b"next") == COUNT
        flushed = [Path(path).name for operation, path in files.calls if operation == "fdatasync"]
        assert {SEGMENT.name, INDEX.name} <= set(flushed)
        assert log.synced_offset == COUNT + 1


def test_jump_after_a_reboot_is_the_same_after_any_number_of_interruptions(
    specimen: Specimen, quick_directory: Path
) -> None:
    """The next offset is reported before anything with it is written, so the next process must compute the same one."""
    for life in range(3):
        specimen.write(root := quick_directory / f"store {life}")
        files = Held()
        with opened(root, files, NEXT_BOOT_ID) as (store, log):
            end_offset, epoch = log.end_offset, log.epoch
            specimen = replace(specimen, files=_files(root))
            files.dead = True
            files.go_on.set()
            kill_store(store, files)
        assert end_offset == RESERVE_OFFSETS
        assert epoch >= 1
    specimen.write(root := quick_directory / "store")
    with opened(root, FaultyFiles(), NEXT_BOOT_ID) as (_, log):
        assert log.append(b"next") == RESERVE_OFFSETS
        assert {record.offset for record in log.reader("earliest")} == {*range(COUNT), RESERVE_OFFSETS}


def test_settings_changed_before_the_seal_are_kept(specimen: Specimen, quick_directory: Path) -> None:
    """The jump after a reboot is noted in the catalogue beside the log's settings, as they are by then."""
    specimen.write(root := quick_directory / "store")
    with opened(root, FaultyFiles(), NEXT_BOOT_ID) as (_, log):
        log.configure(retention_bytes=10**9)
        log.sync()
        shutil.copytree(root, quick_directory / "left")
    with opened(quick_directory / "left", FaultyFiles(), NEXT_BOOT_ID) as (_, log):
        assert log.config.retention_bytes == 10**9
