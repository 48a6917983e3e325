"""An append takes effect completely or not at all, for any error of the disk during it."""

import errno
import gc
import os
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from tests.support.interruption import interrupted_at
from tests.support.kernels import compiled_only
from tests.support.power_loss import Disk, Loss
from tests.support.recording_files import RecordingFiles, Renamed
from timestone.disk.files import Files
from timestone.format import names
from timestone.index import Checkpoint, IndexHeader
from timestone.kernel import loops
from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES
from timestone.reading.stored_bytes import StoredBytes
from timestone.recovery.segment_report import State
from timestone.recovery.segment_scan import examine
from timestone.writing import segment_writer
from timestone.writing.segment_writer import RESERVE_OFFSETS, FailedFlush, HalfWritten, SegmentWriter
from timestone.writing.write_batch import WriteBatch

LOG_ID, BASE = 77, 1000
HEADER = IndexHeader(LOG_ID, BASE, 5, 2, bytes(range(16)))


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def writer(files: FaultyFiles, quick_directory: Path) -> Iterator[SegmentWriter]:
    writer = SegmentWriter(files, quick_directory, HEADER)
    yield writer
    writer.close()


def append(writer: SegmentWriter, payloads: list[bytes]) -> None:
    writer.write_batch_at(WriteBatch(payloads), 9)


def found_count(folder: Path) -> int:
    scan = examine(Files(), folder, BASE, LOG_ID)
    assert not scan.damaged
    return scan.count


def latest(folder: Path) -> Checkpoint:
    checkpoint = Checkpoint.latest(names.index_path(folder, BASE).read_bytes()[:HEADER_BYTES], LOG_ID, BASE)
    assert checkpoint is not None
    return checkpoint


def test_new_segment_is_empty_and_durable(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter
) -> None:
    assert (writer.count, writer.size_bytes, writer.end_offset) == (0, 0, BASE)
    operations = [operation for operation, _ in files.calls]
    assert operations[-3:] == ["fdatasync", "sync_directory", "pwrite"]  # the zeros need not be durable
    assert IndexHeader.decode(writer.index_path.read_bytes()[:HEADER_BYTES], writer.index_path) == HEADER
    assert found_count(quick_directory) == 0


def test_segment_has_only_the_bytes_of_the_records(writer: SegmentWriter) -> None:
    append(writer, [b"one", b"", b"three"])
    append(writer, [b"four"])
    assert writer.segment_path.read_bytes() == b"onethreefour"
    assert (writer.count, writer.end_offset) == (4, BASE + 4)


def test_append_is_two_system_calls_for_any_size(files: FaultyFiles, writer: SegmentWriter) -> None:
    before = len(files.calls)
    append(writer, [b"x"] * 1000)
    assert [operation for operation, _ in files.calls[before:]] == ["pwrite", "pwrite"]


SECOND_STEP = 2000
"""More entries than the first 64 KiB of an index have room for."""


def test_index_space_is_written_once_before_entries_need_it(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter
) -> None:
    """Blocks that are only reserved are new to the file when entries come, and each flush of new blocks is a commit of
    the file system's journal."""
    operations = [operation for operation, _ in files.calls]
    assert operations.count("pwrite") == 3  # header page, checkpoint; once these are durable, zeros
    before = len(files.calls)
    append(writer, [b"x"] * SECOND_STEP)
    operations = [operation for operation, _ in files.calls[before:]]
    assert operations == ["reserve", "pwrite", "pwrite", "pwrite"]
    assert writer.index_path.read_bytes()[HEADER_BYTES + ENTRY_BYTES * SECOND_STEP :].strip(b"\0") == b""
    assert found_count(quick_directory) == SECOND_STEP


def test_append_has_no_effect_without_index_space(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter
) -> None:
    for operation in ("reserve", "pwrite"):
        files.fail(operation, errno.ENOSPC)
        with pytest.raises(OSError):
            append(writer, [b"x"] * SECOND_STEP)
        assert (writer.count, found_count(quick_directory)) == (0, 0)
    append(writer, [b"x"] * SECOND_STEP)
    assert found_count(quick_directory) == SECOND_STEP


MIB = 1 << 20


def blocks_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def allocations(files: FaultyFiles) -> int:
    return [operation for operation, _ in files.calls].count("allocate_ahead")


def test_large_segment_allocates_blocks_ahead_and_frees_unused_ones(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter
) -> None:
    append(writer, [bytes(MIB)])
    assert allocations(files) == 0
    append(writer, [bytes(100)])
    assert allocations(files) == 1
    append(writer, [bytes(MIB - 1000)])
    assert allocations(files) == 1
    assert writer.segment_path.stat().st_size == writer.size_bytes == 2 * MIB - 900
    writer.seal_files(10)
    assert blocks_bytes(writer.segment_path) <= 2 * MIB
    assert allocations(files) == 1
    assert found_count(quick_directory) == 3


def test_index_space_is_reserved_before_a_flush_begins(files: FaultyFiles, writer: SegmentWriter) -> None:
    """A reservation during a flush waits for it, and the append with it; zeros do not wait."""
    append(writer, [b"x"] * SECOND_STEP)
    writer.prepare_flush()
    before = len(files.calls)
    append(writer, [b"x"] * SECOND_STEP)
    assert {operation for operation, _ in files.calls[before:]} == {"pwrite"}
    writer.prepare_flush()
    reserved = files.counts["reserve"]
    writer.prepare_flush()
    assert files.counts["reserve"] == reserved, "there is enough"


def test_flush_does_not_fail_when_space_cannot_be_reserved(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter
) -> None:
    append(writer, [b"x"] * SECOND_STEP)
    files.fail("reserve", errno.ENOSPC, forever=True)
    writer.prepare_flush()
    writer.flush(SECOND_STEP)
    with pytest.raises(OSError, match="No space"):
        append(writer, [b"x"] * 2 * SECOND_STEP)
    assert found_count(quick_directory) == SECOND_STEP


def test_blocks_are_allocated_when_a_flush_begins_and_not_during_one(quick_directory: Path) -> None:
    """During one it would wait for the journal, and the append with it."""

    class Busy(FaultyFiles):
        def fdatasync_both(self, one: int, other: int) -> None:
            seen.append(allocations(self))
            append(writer, [bytes(3 * MIB)])
            seen.append(allocations(self))

    files, seen = Busy(), list[int]()
    writer = SegmentWriter(files, quick_directory, HEADER)
    append(writer, [bytes(MIB)])
    writer.flush(1)
    assert seen == [1, 1]
    append(writer, [b"x"])
    assert allocations(files) == 2
    writer.close()


@compiled_only
def test_append_is_not_prepared_when_it_would_reserve_space(writer: SegmentWriter) -> None:
    def is_prepared_for(payloads: list[bytes]) -> bool:
        return writer.write_prepared(WriteBatch(payloads), 9) is not None

    assert is_prepared_for([bytes(10)] * 100)
    assert not is_prepared_for([b""] * SECOND_STEP)
    assert not is_prepared_for([bytes(MIB + 1)])
    assert writer.count == 100, "nothing else was written"
    append(writer, [bytes(MIB + 1)])
    assert is_prepared_for([bytes(MIB)])
    assert not is_prepared_for([bytes(3 * MIB)])


MANY = [b"w" * 512] * 1025
"""More pieces than one system call takes."""


def test_plain_files_are_written_like_any_others(quick_directory: Path) -> None:
    for folder, files in (("plain", Files()), ("watched", FaultyFiles())):
        (quick_directory / folder).mkdir()
        writer = SegmentWriter(files, quick_directory / folder, HEADER)
        for payloads in ([b"a"], [b"bc", b"", b"d"], [b"x" * 600, b"y" * 600], [b""], [b"z" * 20_000], MANY):
            append(writer, payloads)
        assert (writer.count, writer.size_bytes) == (8 + 1025, 21_204 + 1025 * 512)
        assert found_count(quick_directory / folder) == 8 + 1025
        writer.close()
    for plain in (quick_directory / "plain").iterdir():
        assert plain.read_bytes() == (quick_directory / "watched" / plain.name).read_bytes()


@contextmanager
def full_disk_instead_of(path: Path) -> Iterator[None]:
    """The descriptor of an open file takes nothing for a while."""
    (fd,) = [
        int(fd.name)
        for fd in Path("/proc/self/fd").iterdir()
        if fd.is_symlink() and fd.resolve() == path.resolve()
    ]
    kept, full = os.dup(fd), os.open("/dev/full", os.O_RDWR)
    os.dup2(full, fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(kept)
        os.close(full)


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors have names in /proc on Linux")
def test_failed_write_of_plain_files_raises_like_any_other(quick_directory: Path) -> None:
    writer = SegmentWriter(Files(), quick_directory, HEADER)
    append(writer, [b"first"])
    with full_disk_instead_of(writer.segment_path), pytest.raises(OSError, match="No space left"):
        append(writer, [b"second"])
    append(writer, [b"other"])
    assert (writer.count, found_count(quick_directory)) == (2, 2)
    with full_disk_instead_of(writer.index_path), pytest.raises(HalfWritten, match=f"offset {BASE + 2} on"):
        append(writer, [b"third"])
    assert (writer.count, writer.size_bytes) == (2, 10)
    writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors have names in /proc on Linux")
@pytest.mark.skipif(loops.NAME != "native", reason="only the compiled kernel writes both files at once")
def test_entries_are_cleared_when_their_records_cannot_be_rewritten(quick_directory: Path) -> None:
    """The caller got an error, as if nothing had been appended, and the next recovery found the records."""
    with ExitStack() as stack:

        class Failing(SegmentWriter):
            def _write_again(self, stored: StoredBytes, entries: bytes) -> None:
                """The kernel has written a part of both files, and from now on the disk is full."""
                os.close(self._segment_fd)
                self._segment_fd = segment_fd
                os.pwrite(self._index_fd, entries, HEADER_BYTES + self.count * ENTRY_BYTES)
                os.pwrite(self._segment_fd, stored.joined(), self.size_bytes)
                stack.enter_context(full_disk_instead_of(self.segment_path))
                super()._write_again(stored, entries)

        writer = Failing(Files(), quick_directory, HEADER)
        append(writer, [b"first"])
        segment_fd, writer._segment_fd = writer._segment_fd, os.open(os.devnull, os.O_RDONLY)
        with pytest.raises(OSError, match="No space left"):
            append(writer, [b"second"])
    assert (writer.count, found_count(quick_directory)) == (1, 1)
    writer.close()


@pytest.mark.parametrize("errors", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_preallocation_is_not_repeated_when_the_disk_does_not_support_it(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter, errors: int
) -> None:
    files.fail("allocate_ahead", errors)
    for _ in range(5):
        append(writer, [bytes(MIB)])
    assert allocations(files) == 1
    assert found_count(quick_directory) == 5


def test_preallocation_stops_when_the_disk_is_nearly_full(quick_directory: Path) -> None:
    class Full(FaultyFiles):
        def free_bytes(self, path: Path) -> int:
            return 15 * MIB

    files = Full()
    writer = SegmentWriter(files, quick_directory, HEADER)
    for _ in range(5):
        append(writer, [bytes(MIB)])
    assert allocations(files) == 0
    writer.close()


@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize("written_bytes", [0, 1, 31, 32, 33, 100, 319])
def test_partly_written_entries_are_cleared(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter, count: int, written_bytes: int
) -> None:
    """Ten entries of which three are on the disk: those three are valid, and a recovery would believe them."""
    append(writer, [b"before"])
    files.fail(
        "pwrite", errno.ENOSPC, path=".index", written_bytes=min(written_bytes, count * ENTRY_BYTES - 1)
    )
    with pytest.raises(OSError, match="No space"):
        append(writer, [b"refused"] * count)
    assert (writer.count, writer.size_bytes) == (1, len(b"before"))
    assert found_count(quick_directory) == 1
    append(writer, [b"after"])
    assert found_count(quick_directory) == 2
    assert writer.segment_path.read_bytes()[: writer.size_bytes] == b"beforeafter"


@pytest.mark.parametrize("written_bytes", range(0, 20, 3))
def test_partly_written_records_have_no_effect(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter, written_bytes: int
) -> None:
    append(writer, [b"before"])
    files.fail("pwrite", errno.ENOSPC, path=".segment", written_bytes=written_bytes)
    with pytest.raises(OSError, match="No space"):
        append(writer, [b"refused, and rather long"])
    append(writer, [b"after"])
    assert found_count(quick_directory) == 2
    assert writer.segment_path.read_bytes()[: writer.size_bytes] == b"beforeafter"


def test_failure_to_clear_entries_is_reported(files: FaultyFiles, writer: SegmentWriter) -> None:
    files.fail("pwrite", errno.EIO, path=".index", forever=True)
    with pytest.raises(HalfWritten, match="1000") as caught:
        append(writer, [b"x"] * 3)
    assert isinstance(caught.value.__cause__, OSError)


def test_full_disk_is_detected_before_a_byte_is_written(files: FaultyFiles, writer: SegmentWriter) -> None:
    files.fail("reserve", errno.ENOSPC)
    room = (64 * 1024 - HEADER_BYTES) // ENTRY_BYTES
    with pytest.raises(OSError, match="No space"):
        append(writer, [b"x"] * (room + 1))
    assert writer.segment_path.read_bytes() == b""
    append(writer, [b"x"] * (room + 1))
    assert writer.count == room + 1


def test_index_is_always_reserved_ahead_of_its_entries(files: FaultyFiles, writer: SegmentWriter) -> None:
    for _ in range(40):
        append(writer, [b""] * 700)
        assert writer.index_path.stat().st_size >= HEADER_BYTES + writer.count * ENTRY_BYTES
    assert files.counts["reserve"] <= 7, "it doubles"


@pytest.mark.parametrize("operation", ["reserve", "pwrite", "fdatasync", "sync_directory"])
def test_failed_creation_of_a_segment_leaves_no_files(
    files: FaultyFiles, quick_directory: Path, operation: str
) -> None:
    files.fail(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        SegmentWriter(files, quick_directory, HEADER)
    assert files.names(quick_directory) == []
    SegmentWriter(files, quick_directory, HEADER).close()


def test_segment_is_created_over_the_files_of_a_failed_attempt(
    files: FaultyFiles, quick_directory: Path
) -> None:
    failing = [files.fail("reserve", errno.EIO), files.fail("unlink", errno.EIO, forever=True)]
    with pytest.raises(OSError, match="Input/output"):
        SegmentWriter(files, quick_directory, HEADER)
    for fault in failing:
        fault.lift()
    writer = SegmentWriter(files, quick_directory, HEADER)
    append(writer, [b"x"])
    assert found_count(quick_directory) == 1
    writer.close()


def test_checkpoint_covers_flushed_records(quick_directory: Path, writer: SegmentWriter) -> None:
    append(writer, [b"one", b"two"])
    assert latest(quick_directory).entry_count == 0
    writer.flush(2)
    writer.note_synced(2, 6)
    assert (latest(quick_directory).entry_count, latest(quick_directory).segment_bytes) == (2, 6)
    assert writer.synced_count == 2


def test_one_of_two_checkpoints_is_always_durable(quick_directory: Path, writer: SegmentWriter) -> None:
    """A slot that was not flushed yet is written again in its place. Were the other one taken, a power loss could tear
    both, and with them the ceiling below which offsets were shown."""
    writer.flush(0)
    writer.note_synced(0, 0)
    unflushed = writer.checkpoint.position
    for _ in range(3):
        writer.note_synced(0, 0)
        assert writer.checkpoint.position == unflushed
    writer.flush(0)
    writer.note_synced(0, 0)
    assert writer.checkpoint.position != unflushed


def test_ceiling_is_raised_durably_before_offsets_above_it_are_shown(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter
) -> None:
    before = len(files.calls)
    writer.raise_ceiling(BASE + RESERVE_OFFSETS)
    assert len(files.calls) == before, "nothing to do below it"
    writer.raise_ceiling(BASE + RESERVE_OFFSETS + 1)
    assert [operation for operation, _ in files.calls[before:]] == ["pwrite", "fdatasync"]
    assert latest(quick_directory).ceiling == BASE + 2 * RESERVE_OFFSETS + 1


def test_next_flush_makes_a_higher_ceiling_durable(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.prepare_flush()
    assert latest(quick_directory).ceiling == BASE + RESERVE_OFFSETS, "far enough"
    monkeypatch.setattr(segment_writer, "_CEILING_LOW_OFFSETS", RESERVE_OFFSETS)
    append(writer, [b"x"])
    writer.prepare_flush()
    assert latest(quick_directory).ceiling == BASE + 1 + RESERVE_OFFSETS
    writer.flush(1)
    before = len(files.calls)
    writer.raise_ceiling(BASE + 1 + RESERVE_OFFSETS)
    assert len(files.calls) == before


def test_ceiling_is_used_only_after_a_flush(
    files: FaultyFiles, writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "_CEILING_LOW_OFFSETS", RESERVE_OFFSETS + 1)
    append(writer, [b"x"])
    writer.prepare_flush()
    before = len(files.calls)
    writer.raise_ceiling(BASE + 1 + RESERVE_OFFSETS)
    assert [operation for operation, _ in files.calls[before:]] == ["pwrite", "fdatasync"]


@pytest.mark.parametrize("operation", ["pwrite", "fdatasync"])
def test_failed_raise_of_the_ceiling_can_be_repeated(
    files: FaultyFiles, writer: SegmentWriter, operation: str
) -> None:
    """In memory it is raised already: a second try would believe itself, and offsets could be given out twice."""
    files.fail(operation, errno.EIO)
    with pytest.raises(FailedFlush):
        writer.raise_ceiling(BASE + RESERVE_OFFSETS + 1)


def test_seal_truncates_bytes_of_a_failed_append(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter
) -> None:
    append(writer, [b"kept"])
    files.fail("pwrite", errno.ENOSPC, path=".index")
    with pytest.raises(OSError, match="No space"):
        append(writer, [b"refused"])
    trailer = writer.seal_files(50)
    assert (trailer.entry_count, trailer.segment_bytes, trailer.sealed_us) == (1, 4, 50)
    assert writer.segment_path.read_bytes() == b"kept"
    assert examine(Files(), quick_directory, BASE, LOG_ID, deep=True).state is State.SEALED


def test_both_files_of_an_empty_segment_are_removed(
    files: FaultyFiles, quick_directory: Path, writer: SegmentWriter
) -> None:
    writer.remove_empty()
    assert files.names(quick_directory) == []


def test_segment_under_a_temporary_name_is_not_listed_until_it_is_renamed(
    files: FaultyFiles, quick_directory: Path
) -> None:
    writer = SegmentWriter(files, quick_directory, HEADER, suffix=".tmp")
    append(writer, [b"x"])
    writer.flush(1)
    assert all(name.endswith(".tmp") for name in files.names(quick_directory))
    writer.take_name()
    assert found_count(quick_directory) == 1
    assert [operation for operation, _ in files.calls[-4:]] == ["rename", "sync_directory"] * 2
    writer.close()


def test_power_loss_never_leaves_a_new_index_with_the_segment_that_it_did_not_replace(
    quick_directory: Path,
) -> None:
    """The disk may keep either rename without the other, and have nothing of the old segment after a failed flush."""
    root = quick_directory / "log"
    root.mkdir()
    recorder = RecordingFiles(root)
    old = SegmentWriter(recorder, root, HEADER)
    append(old, [b"old"])
    new = SegmentWriter(recorder, root, HEADER, suffix=".tmp")
    append(new, [b"old", b"new"])
    new.flush(2)
    new.note_synced(2, new.size_bytes)
    new.take_name()
    old.close()
    new.close()
    disk = Disk(recorder)
    for number, operation in enumerate(recorder.operations):
        disk.apply(number, operation)
        for seed in range(200 if isinstance(operation, Renamed) else 0):
            image = quick_directory / "image"
            disk.image(random.Random(seed), Loss.SECTORS).write(image)
            if names.index_path(image, BASE).exists():
                assert not examine(Files(), image, BASE, LOG_ID).damaged, (operation, seed)
            shutil.rmtree(image)


def test_interrupted_creation_removes_no_file_of_a_later_writer(tmp_path: Path) -> None:
    """The files of the writer that came after it were gone once the exception was forgotten."""

    def create() -> None:
        SegmentWriter(Files(), tmp_path, HEADER).close()

    point, error = 1, interrupted_at(1, create)
    while error is not None:
        later = SegmentWriter(Files(), tmp_path, HEADER)
        error = None
        gc.collect(0)  # it is young; a full collection takes seconds in the whole suite
        assert later.segment_path.exists() and later.index_path.exists(), f"interrupted at point {point}"
        later.close()
        segment_writer.remove_unborn(Files(), later.index_path, later.segment_path)
        point += 1
        error = interrupted_at(point, create)
    assert point > 50
