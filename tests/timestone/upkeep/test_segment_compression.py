"""The compressed copy of a segment is verified record by record before it replaces the segment."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compressed import expected, fill, forget_tail, open_compressed, read_all
from tests.support.faulty_files import FaultyFiles
from timestone.compressed.frame_table import FRAME_BYTES
from timestone.compressed.zstd import FrameEncoder
from timestone.store import Store
from timestone.upkeep.segment_check import NotProven
from timestone.upkeep.segment_compression import CompressedCopy


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def store(quick_directory: Path, files: FaultyFiles) -> Iterator[Store]:
    with open_compressed(quick_directory / "store", files, segment_entries=4000) as store:
        fill(store.log("a"), 4010, batch=500)
        forget_tail(store)
        yield store


def present(store: Store) -> set[str]:
    return {path.name for path in (store.path / "a-0").iterdir()}


def test_copy_has_the_same_records_in_fewer_bytes(store: Store, files: FaultyFiles) -> None:
    log = store.log("a")
    segment = log.segment_list.segments[0]
    old = segment.trailer
    assert old is not None
    assert old.segment_bytes > FRAME_BYTES, "the test wants more than one frame"
    copy = CompressedCopy(files, segment, FrameEncoder(3))
    done = list(copy.slices())
    assert sum(done[: -(-old.segment_bytes // FRAME_BYTES) // 4 + 1]) >= old.segment_bytes
    assert log.rewrites.replace(segment, copy.replacement, copy.trailer)
    copy.close()
    new = log.segment_list.segments[0].trailer
    assert new is not None
    assert new == copy.trailer
    assert new.frames is not None
    assert (new.generation, new.segment_bytes, new.frames.frame_bytes) == (1, old.segment_bytes, FRAME_BYTES)
    assert (
        new.stored_bytes == log.segment_list.segments[0].segment_path.stat().st_size < old.segment_bytes / 5
    )
    assert read_all(log) == expected(0, 4010)


def test_segment_is_not_compressed_when_a_record_is_damaged(store: Store, files: FaultyFiles) -> None:
    segment = store.log("a").segment_list.segments[0]
    content = bytearray(segment.segment_path.read_bytes())
    content[1000] ^= 1
    segment.segment_path.write_bytes(content)
    before = present(store)
    copy = CompressedCopy(files, segment, FrameEncoder(3))
    with pytest.raises(NotProven, match="the bytes do not match their checksum"):
        list(copy.slices())
    copy.close()
    assert present(store) == before
    assert segment.segment_path.read_bytes() == content


def test_compression_detects_a_bit_flipped_while_writing(
    store: Store, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, write = store.log("a").segment_list.segments[0], files.pwrite

    def write_damaged(fd: int, data: bytes, position: int) -> int:
        damaged = bytearray(data)
        if len(damaged) > 1000 and position == 0:
            damaged[900] ^= 1
        return write(fd, damaged, position)

    monkeypatch.setattr(files, "pwrite", write_damaged)
    copy = CompressedCopy(files, segment, FrameEncoder(3))
    with pytest.raises(NotProven):
        list(copy.slices())
    copy.close()
    assert segment.segment_path.exists()


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync", "sync_directory", "open"])
def test_compression_leaves_the_segment_and_no_other_files_when_the_disk_refuses(
    store: Store, files: FaultyFiles, operation: str
) -> None:
    segment, before = store.log("a").segment_list.segments[0], present(store)
    for nth in (1, 2):
        fault = files.fail(operation, errno.ENOSPC, nth=nth)
        with (
            contextlib.suppress(OSError),
            contextlib.closing(CompressedCopy(files, segment, FrameEncoder(3))) as copy,
        ):
            list(copy.slices())
        assert fault.hits == 1 or (operation, nth) == ("sync_directory", 2), "only the commit does that"
        fault.lift()
        assert present(store) == before
    assert read_all(store.log("a")) == expected(0, 4010)
