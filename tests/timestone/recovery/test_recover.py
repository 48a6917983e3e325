"""The actions of recovery: it keeps verified data, puts the rest aside, and reports both."""

import errno
import os
import shutil
import signal
from pathlib import Path

import pytest

import timestone
from tests.support.child_process import in_child
from tests.support.faulty_files import FaultyFiles
from tests.support.killed_store import kill_store
from tests.support.specimen import FOLDER, INDEX, SEGMENT, TOPICS, Specimen, look, make_specimen
from tests.support.step_clock import NEXT_BOOT_ID, StepClock
from tests.support.waiting import wait_for_seals
from tests.support.workload import Workload, crash_config
from timestone.config import Ack, Compression, LogConfig, Recovery
from timestone.disk.catalog import Catalog
from timestone.errors import CorruptLog, LogFailed
from timestone.kernel.entries import entry_position
from timestone.writing import segment_writer
from timestone.writing.segment_writer import RESERVE_OFFSETS

COUNT, DURABLE = 8, 5


@pytest.fixture
def specimen(quick_directory: Path) -> Specimen:
    return make_specimen(quick_directory / "store", closed=False, count=COUNT, unsynced=COUNT - DURABLE)


def names(root: Path) -> set[str]:
    return {path.name for path in (root / FOLDER).iterdir()}


def test_whole_log_continues_at_the_next_offset_after_a_kill(
    specimen: Specimen, quick_directory: Path
) -> None:
    found = specimen.look(quick_directory / "again")
    assert found.records == specimen.records
    assert found.next_offset == COUNT
    assert found.told, "it says that the log was not closed"
    assert not [name for name in found.files if "lost" in name]


def test_another_boot_jumps_to_the_ceiling_and_into_the_next_epoch(
    specimen: Specimen, quick_directory: Path
) -> None:
    """After a power loss it is not known which of the lost offsets readers have seen."""
    root = quick_directory / "again"
    found = specimen.look(root, boot_id=NEXT_BOOT_ID)
    assert found.records == specimen.records
    assert found.next_offset == RESERVE_OFFSETS


def test_offsets_are_assigned_once_when_the_store_is_opened_many_times(
    specimen: Specimen, quick_directory: Path
) -> None:
    root = quick_directory / "again"
    specimen.write(root)
    seen = []
    for boot_id in (NEXT_BOOT_ID, NEXT_BOOT_ID, b"a third boot...."):
        found = look(root, boot_id=boot_id)
        seen.append(found.next_offset)
        assert {offset: found.records[offset] for offset in specimen.records} == specimen.records
    assert seen == sorted(set(seen))
    assert seen[0] == RESERVE_OFFSETS


def test_torn_tail_is_cut_and_kept(specimen: Specimen, quick_directory: Path) -> None:
    root = quick_directory / "again"
    torn = specimen.changed(SEGMENT, lambda data: data + b"half of a record")
    found = torn.look(root)
    assert found.records == specimen.records
    assert f"{SEGMENT.name}.lost" in found.files


def test_quarantined_bytes_are_the_bytes_that_were_cut(specimen: Specimen, quick_directory: Path) -> None:
    root = quick_directory / "again"
    specimen.changed(SEGMENT, lambda data: data + b"half of a record").write(root)
    look(root)
    assert (root / FOLDER / f"{SEGMENT.name}.lost").read_bytes() == b"half of a record"
    shutil.rmtree(root)


def test_second_loss_does_not_overwrite_the_quarantine_of_the_first(
    specimen: Specimen, quick_directory: Path
) -> None:
    lost = FOLDER / f"{SEGMENT.name}.lost"
    torn = specimen.changed(SEGMENT, lambda data: data + b"second").with_file(lost, b"first")
    root = quick_directory / "again"
    torn.write(root)
    look(root)
    assert (root / lost).read_bytes() == b"first"
    assert (root / FOLDER / f"{SEGMENT.name}.lost.2").read_bytes() == b"second"
    shutil.rmtree(root)


def test_damaged_record_is_served_as_corrupt_and_no_offset_is_assigned_twice(
    specimen: Specimen, quick_directory: Path
) -> None:
    def damage(data: bytes) -> bytes:
        at = entry_position(2) + 1
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    found = specimen.changed(INDEX, damage).look(quick_directory / "again")
    assert found.corrupt == {2}
    assert set(found.records) == set(specimen.records) - {2}
    assert found.next_offset >= COUNT


@pytest.mark.parametrize("missing", [SEGMENT, INDEX], ids=["segment", "index"])
def test_half_a_pair_is_put_aside_and_nothing_is_deleted(
    specimen: Specimen, quick_directory: Path, missing: Path
) -> None:
    kept = INDEX if missing == SEGMENT else SEGMENT
    root = quick_directory / "again"
    specimen.without(missing).write(root)
    found = look(root)
    assert found.records == {}
    assert found.next_offset >= COUNT
    assert (root / FOLDER / f"{kept.name}.lost").read_bytes() == specimen.files[kept]
    shutil.rmtree(root)


@pytest.mark.parametrize("leftover", [f"{INDEX.name}.tmp", f"{SEGMENT.name}.tmp", "topics.tmp"])
def test_unfinished_copy_is_removed(specimen: Specimen, quick_directory: Path, leftover: str) -> None:
    found = specimen.with_file(FOLDER / leftover, b"unfinished").look(quick_directory / "again")
    assert found.records == specimen.records
    assert leftover not in found.files


def test_strict_mode_refuses_any_repair_and_changes_nothing(
    specimen: Specimen, quick_directory: Path
) -> None:
    root = quick_directory / "again"
    specimen.changed(SEGMENT, lambda data: data + b"torn").write(root)
    with pytest.raises(CorruptLog, match="strict"):
        look(root, recovery=Recovery.STRICT)
    assert (root / SEGMENT).read_bytes() == specimen.files[SEGMENT] + b"torn"
    assert names(root) == {INDEX.name, SEGMENT.name, "topics"}
    shutil.rmtree(root)


def test_strict_mode_refuses_after_a_failed_flush_and_keeps_the_marker(
    quick_directory: Path,
) -> None:
    root = quick_directory / "again"
    make_specimen(quick_directory / "store", closed=True).with_file(FOLDER / "failed-flush", b"").write(root)
    with pytest.raises(CorruptLog, match=r"failed-flush: .*strict"):
        look(root, recovery=Recovery.STRICT)
    assert (root / FOLDER / "failed-flush").exists()
    assert look(root).told is False
    assert not (root / FOLDER / "failed-flush").exists()
    shutil.rmtree(root)


def test_strict_mode_opens_a_closed_store(quick_directory: Path) -> None:
    closed = make_specimen(quick_directory / "store", closed=True)
    found = closed.look(quick_directory / "again", recovery=Recovery.STRICT)
    assert found.records == closed.records
    assert not found.told


@pytest.mark.parametrize(
    "operation", ["create", "pwrite", "fdatasync", "rename", "sync_directory", "truncate"]
)
def test_recovery_serves_verified_records_or_reports_the_reason_when_it_cannot_write(
    specimen: Specimen, quick_directory: Path, operation: str
) -> None:
    root = quick_directory / "again"
    specimen.changed(SEGMENT, lambda data: data + b"torn").write(root)
    files = FaultyFiles()
    files.fail(operation, 28, path="telemetry-0", forever=True)
    try:
        store = timestone.open(root, min_free_bytes=0, files=files, clock=StepClock())
    except (LogFailed, OSError) as error:
        refused: Exception | None = error
    else:
        refused = None
        assert {record.offset: record for record in store.log("telemetry").reader()} == specimen.records
        store.close()
    if refused is not None:
        assert operation in ("fdatasync", "sync_directory")
        assert "telemetry-0" in str(refused)
    found = look(root)
    assert found.records == specimen.records
    assert found.next_offset == COUNT
    shutil.rmtree(root)


def test_torn_name_at_the_end_of_the_dictionary_is_cut_and_kept(
    specimen: Specimen, quick_directory: Path
) -> None:
    root = quick_directory / "again"
    specimen.changed(TOPICS, lambda data: data + b"torn").write(root)
    found = look(root)
    assert found.records == specimen.records
    assert (root / TOPICS).read_bytes() == specimen.files[TOPICS]
    assert (root / FOLDER / "topics.lost").read_bytes() == b"torn"
    shutil.rmtree(root)


def test_damaged_header_of_the_dictionary_is_rewritten_from_the_index(
    specimen: Specimen, quick_directory: Path
) -> None:
    root = quick_directory / "again"
    specimen.changed(TOPICS, lambda data: bytes(512) + data[512:]).write(root)
    found = look(root)
    assert found.records == specimen.records
    assert (root / TOPICS).read_bytes()[:12] == specimen.files[TOPICS][:12]
    shutil.rmtree(root)


def test_folder_with_a_failed_fsync_is_copied_before_it_counts_as_durable(
    specimen: Specimen, quick_directory: Path
) -> None:
    """An fsync failed and the process ended; in the same boot, asking the same pages again would prove nothing."""
    root = quick_directory / "again"
    specimen.with_file(FOLDER / "failed-flush", b"").write(root)
    inode = (root / SEGMENT).stat().st_ino, (root / TOPICS).stat().st_ino
    found = look(root)
    assert found.records == specimen.records
    assert "failed-flush" not in found.files
    assert (root / SEGMENT).stat().st_ino != inode[0]
    assert (root / TOPICS).stat().st_ino != inode[1]
    shutil.rmtree(root)


def test_records_of_a_failed_fsync_are_served_but_not_durable_when_they_cannot_be_copied(
    specimen: Specimen, quick_directory: Path
) -> None:
    """A flush failed, the owner died, and the next one had no room to copy the records concerned: it flushed the same
    pages successfully, reported all as synced, and a power loss took them. Now it waits, and so do appends."""
    root = quick_directory / "again"
    specimen.with_file(FOLDER / "failed-flush", b"").write(root)
    files = FaultyFiles()
    full = files.fail("create", errno.ENOSPC, path=".tmp", forever=True)
    with timestone.open(root, files=files, min_free_bytes=0, clock=StepClock()) as store:
        log = store.log("telemetry")
        assert {record.offset: record for record in log.reader("earliest")} == specimen.records
        assert (log.synced_offset, log.end_offset) == (specimen.durable, COUNT)
        for refused in (log.sync, lambda: log.append(b"next")):
            with pytest.raises(OSError, match="No space"):
                refused()
        assert "failed-flush" in files.names(root / FOLDER)
        full.lift()
        assert log.append(b"next") == COUNT
        assert log.synced_offset == COUNT + 1
        assert "failed-flush" not in files.names(root / FOLDER)
    shutil.rmtree(root)


def test_failed_flush_of_a_recovery_is_remembered_by_the_next_one(
    specimen: Specimen, quick_directory: Path
) -> None:
    root = quick_directory / "again"
    specimen.write(root)
    files = FaultyFiles()
    files.fail("fdatasync", 5, path=".segment")
    with pytest.raises(LogFailed):
        timestone.open(root, min_free_bytes=0, files=files, clock=StepClock())
    assert (root / FOLDER / "failed-flush").exists()
    found = look(root)
    assert found.records == specimen.records
    assert "failed-flush" not in found.files
    shutil.rmtree(root)


@pytest.mark.parametrize("path", [".segment", ".index", "topics"])
def test_failed_flush_of_a_recovery_is_not_repeated_when_it_cannot_be_marked(
    specimen: Specimen, quick_directory: Path, path: str
) -> None:
    """As a file system does that becomes read-only with its first error: the second flush, of pages that the kernel
    calls clean, was believed."""
    root = quick_directory / "again"
    specimen.write(root)
    files = FaultyFiles()
    files.fail("create", errno.EROFS, forever=True)
    files.fail("fdatasync", errno.EIO, path=path)
    with pytest.raises(LogFailed):
        timestone.open(root, min_free_bytes=0, files=files, clock=StepClock())
    shutil.rmtree(root)


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("refusing", ["folder", "catalogue"])
def test_appends_are_refused_when_a_torn_tail_cannot_be_put_aside(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch, refusing: str, dies: bool
) -> None:
    """The torn segment before it was sealed, or a durable segment followed, and at the next open the missing records
    came back behind a hole, or took durable ones with them."""
    work = Workload(quick_directory / "store", crash_config(segment_entries=2))
    work.start()
    with monkeypatch.context() as patch:
        patch.setattr(work.store.sealer, "put", lambda log: None)  # it flushes
        for _ in range(3):
            work.append_many(Ack.WRITTEN, 2)
    kill_store(work.store, work.files)
    torn = work.root / FOLDER / f"{0:020d}.segment"
    torn.write_bytes(torn.read_bytes()[:-10])
    clock = StepClock(boot_id=NEXT_BOOT_ID)
    files = FaultyFiles()
    with monkeypatch.context() as patch:
        if refusing == "catalogue":
            patch.setattr(Catalog, "put_logs", refuse)
        else:
            patch.setattr(files, "rename", refuse)
        store = timestone.open(work.root, files=files, min_free_bytes=0, clock=clock)
        log = store.log("telemetry")
        assert [record.offset for record in log.reader("earliest")] == [0]
        for refused in (log.sync, lambda: log.append(b"next")):
            with pytest.raises(OSError, match=r"refused|catalogue"):
                refused()
        if dies:
            kill_store(store, files)
            store.open_segments.clear()
    if dies:
        store = timestone.open(work.root, min_free_bytes=0, clock=clock)
        log = store.log("telemetry")
    later = log.append(b"next")
    assert later > 5
    store.close()
    with timestone.open(work.root, recovery="strict") as again:
        assert [record.offset for record in again.log("telemetry").reader("earliest")] == [0, later]


def refuse(*_: object) -> None:
    raise OSError(errno.EIO, "refused")


def test_an_unfinished_half_of_a_pair_is_not_damage_while_it_cannot_be_quarantined(
    specimen: Specimen, quick_directory: Path
) -> None:
    """The evidence was removed, and the next open reported its offsets as lost."""
    root = quick_directory / "again"
    half = specimen.with_file(FOLDER / f"{COUNT:020d}.segment", b"its index has no name yet")
    half.with_file(FOLDER / f"{COUNT:020d}.index.tmp", b"").write(root)
    files = FaultyFiles()
    files.fail("rename", errno.EIO, path=".lost", forever=True)
    timestone.open(root, files=files, min_free_bytes=0, clock=StepClock()).close()
    assert f"{COUNT:020d}.segment" in names(root)
    timestone.open(root, min_free_bytes=0, clock=StepClock()).close()
    assert f"{COUNT:020d}.segment.lost" in names(root)
    assert not [name for name in names(root) if name.endswith((".tmp", ".missing"))]
    shutil.rmtree(root)


def test_recovery_logs_one_sentence_for_each_action(specimen: Specimen, quick_directory: Path) -> None:
    root = quick_directory / "again"
    specimen.changed(SEGMENT, lambda data: data + b"torn").write(root)
    with timestone.open(root, min_free_bytes=0, clock=StepClock()) as store:
        (recovered,) = store.recoveries
        text = str(recovered)
        assert text.startswith("telemetry-0: ")
        assert f"kept {COUNT} records" in text
        assert "4 bytes" in text
    shutil.rmtree(root)


def test_open_after_a_kill_reads_only_unsynced_records(quick_directory: Path) -> None:
    root = quick_directory / "big"

    def run(pipe: int) -> None:
        store = timestone.open(root, min_free_bytes=0, log=LogConfig(segment_bytes=2**30))
        log = store.log("telemetry")
        for _ in range(40):
            log.append_many([bytes(1000)] * 1000, ack="written")
        log.sync()
        log.append(b"last", ack="written")
        os.kill(os.getpid(), signal.SIGKILL)

    in_child(run)
    read = 0

    class Counting(FaultyFiles):
        def pread(self, fd: int, length_bytes: int, position: int) -> bytes:
            nonlocal read
            data = super().pread(fd, length_bytes, position)
            read += len(data)
            return data

    with timestone.open(root, min_free_bytes=0, files=Counting()) as store:
        assert store.log("telemetry").end_offset == 40_001
    assert read < 20 * 2**20, "of 40 MB"


def test_offsets_of_a_lost_index_of_a_large_segment_are_not_reused(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next offset was the base offset and the usual reserve; this segment had more records than that, and a
    reader had seen them."""
    monkeypatch.setattr(segment_writer, "RESERVE_OFFSETS", 1000)
    root, left = quick_directory / "store", quick_directory / "left"
    with timestone.open(root, ack="written", min_free_bytes=0, tail_bytes=0) as store:
        shown = store.log("a").append_many([b"x"] * 1010).stop
        shutil.copytree(root, left)
    (left / "a-0" / f"{0:020d}.index").unlink()
    with timestone.open(left, min_free_bytes=0) as store:
        assert store.log("a").append(b"next") >= shown


@pytest.mark.parametrize("operation", ["create", "rename"])
def test_segment_served_unsealed_was_flushed_and_counts_as_durable(
    specimen: Specimen, quick_directory: Path, operation: str
) -> None:
    """On a disk too full for the new index the store opened with the index that the dead owner had not flushed,
    reported all of it as synced, and a power loss took it."""
    root = quick_directory / "again"
    specimen.write(root)
    files = FaultyFiles()
    files.fail(operation, errno.ENOSPC, path=".index", forever=True)
    with timestone.open(root, files=files, min_free_bytes=0, clock=StepClock()) as store:
        log = store.log("telemetry")
        assert log.synced_offset == log.end_offset == COUNT
        assert log.segment_list.segments[0].trailer is None
        flushed = [Path(path).name for operation, path in files.calls if operation == "fdatasync"]
        assert {INDEX.name, SEGMENT.name} <= set(flushed)


def test_compressed_segment_with_a_damaged_trailer_is_served_when_nothing_can_be_written(
    quick_directory: Path,
) -> None:
    """Without the trailer, the records were looked for in the file that compression has replaced."""
    root = quick_directory / "data"
    config = LogConfig(segment_entries=3, compression=Compression.ZSTD)
    with timestone.open(root, min_free_bytes=0, delete_delay_ms=0) as store:
        log = store.log("a", config=config)
        log.append_many([b"%d" % number * 50 for number in range(6)], topic="t")
        log.roll()
        wait_for_seals(log)
        log.apply_compression()
        store.deleted_files.unlink_all()
    for index in (root / "a-0").glob("*.index"):
        content = bytearray(index.read_bytes())
        content[-60] ^= 1
        index.write_bytes(content)
    files = FaultyFiles()
    files.fail("create", errno.ENOSPC, path=".index", forever=True)
    with timestone.open(root, files=files, min_free_bytes=0) as store:
        log = store.log("a")
        for topics in (None, "t"):
            assert [record.payload[:1] for record in log.reader("earliest", topics=topics)] == [
                b"%d" % number for number in range(6)
            ]
        assert log.record(4).payload == b"4" * 50
    with timestone.open(root, min_free_bytes=0) as store:
        assert len(list(store.log("a").reader("earliest"))) == 6
        assert all(segment.trailer is not None for segment in store.log("a").segment_list.segments)
        assert store.recoveries, "it was sealed again"


def test_segment_that_cannot_be_flushed_is_not_durable(specimen: Specimen, quick_directory: Path) -> None:
    root = quick_directory / "again"
    specimen.write(root)
    files = FaultyFiles()
    files.fail("create", errno.ENOSPC, path=".index", forever=True)
    files.fail("fdatasync", errno.EIO, path=INDEX.name)
    with pytest.raises(LogFailed):
        timestone.open(root, files=files, min_free_bytes=0, clock=StepClock())
