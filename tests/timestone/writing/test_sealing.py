"""A growing index becomes a sealed one, completely or not at all."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import wait_for_seals
from timestone.disk.files import Files
from timestone.format import names
from timestone.index import TRAILER_BYTES, TRAILER_MAGIC, Checkpoint, IndexHeader, Trailer
from timestone.kernel.entries import HEADER_BYTES, NO_TOPIC, entry_position
from timestone.kernel.entry_checksum import EntrySeal
from timestone.recovery.segment_report import State
from timestone.recovery.segment_scan import examine
from timestone.writing.sealing import SegmentFacts, read_entries, seal_in_place, seal_index
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import WriteBatch

LOG_ID, BASE = 77, 1000
HEADER = IndexHeader(LOG_ID, BASE, 5, 2, bytes(range(16)))
TOPICS = [3, NO_TOPIC, 3, 1]


@pytest.fixture
def writer(quick_directory: Path) -> Iterator[SegmentWriter]:
    writer = SegmentWriter(Files(), quick_directory, HEADER)
    write_batch = WriteBatch([b"one", b"", b"three", b"4"], TOPICS, header_lengths=[1, 0, 0, 0])
    writer.write(write_batch.stored, write_batch.entries(writer.seal, ordinal=0, position=0, timestamp_us=9))
    writer.flush(4)
    yield writer
    writer.close()


def seal(writer: SegmentWriter, folder: Path, files: Files | None = None, count: int = 4) -> Trailer:
    return seal_index(files or Files(), HEADER, folder, SegmentFacts(count, 9), 50)


@contextmanager
def opened(path: Path, files: Files) -> Iterator[int]:
    """A growing index, as its writer has it."""
    fd = files.open(path, write=True)
    try:
        yield fd
    finally:
        files.close(fd)


def seal_where_it_is(
    writer: SegmentWriter, folder: Path, files: Files | None = None, count: int = 4
) -> Trailer:
    files = files or Files()
    with opened(writer.index_path, files) as fd:
        return seal_in_place(files, fd, HEADER, count=count, segment_bytes=9, now_us=50)


@pytest.mark.parametrize("way", [seal, seal_where_it_is])
def test_sealed_index_has_the_same_entries_a_summary_and_a_trailer(
    writer: SegmentWriter, quick_directory: Path, way: Callable[[SegmentWriter, Path], Trailer]
) -> None:
    growing = writer.index_path.read_bytes()
    trailer = way(writer, quick_directory)
    sealed = writer.index_path.read_bytes()
    assert sealed[HEADER_BYTES : entry_position(4)] == growing[HEADER_BYTES : entry_position(4)]
    assert Trailer.decode(sealed[-TRAILER_BYTES:], writer.index_path) == trailer
    assert len(sealed) == trailer.file_bytes
    assert (trailer.entry_count, trailer.segment_bytes, trailer.headed_count) == (4, 9, 1)
    assert (trailer.first_timestamp_us, trailer.last_timestamp_us, trailer.sealed_us) == (9, 9, 50)
    summary = np.frombuffer(sealed[entry_position(4) : -TRAILER_BYTES], dtype="<u4").reshape(-1, 3)
    assert summary.tolist() == [[1, 1, 3], [3, 2, 0], [NO_TOPIC, 1, 1]]
    assert examine(Files(), quick_directory, BASE, LOG_ID, deep=True).state is State.SEALED


def test_sealed_index_keeps_the_checkpoint_and_the_ceiling(
    writer: SegmentWriter, quick_directory: Path
) -> None:
    ceiling = writer.checkpoint.ceiling
    seal(writer, quick_directory)
    checkpoint = Checkpoint.latest(writer.index_path.read_bytes()[:HEADER_BYTES], LOG_ID, BASE)
    assert checkpoint is not None
    assert (checkpoint.entry_count, checkpoint.segment_bytes, checkpoint.ceiling) == (4, 9, ceiling)


def test_seal_flushes_then_renames_then_flushes_the_folder(
    writer: SegmentWriter, quick_directory: Path
) -> None:
    files = FaultyFiles()
    seal(writer, quick_directory, files)
    assert [operation for operation, _ in files.calls][-3:] == ["fdatasync", "rename", "sync_directory"]


def test_index_that_is_sealed_in_place_is_cut_once_its_trailer_is_durable(
    writer: SegmentWriter, quick_directory: Path
) -> None:
    files = FaultyFiles()
    seal_where_it_is(writer, quick_directory, files)
    assert [operation for operation, _ in files.calls] == ["pwrite", "fdatasync", "truncate", "fdatasync"]


@pytest.mark.parametrize("count", [1900, 1919, 1920])
def test_trailer_never_ends_a_file_that_is_not_sealed(quick_directory: Path, count: int) -> None:
    """An index has room for 1,920 entries at first: for any number of free places, room is made before the trailer is
    written."""
    files = FaultyFiles()
    writer = SegmentWriter(files, quick_directory, HEADER)
    write_batch = WriteBatch([b""] * count, 0)
    writer.write(write_batch.stored, write_batch.entries(writer.seal, ordinal=0, position=0, timestamp_us=9))
    files.fail("truncate", errno.EIO, path=".index")
    with pytest.raises(OSError, match="Input/output"):
        writer.seal_files(50)
    raw = writer.index_path.read_bytes()
    assert raw.rstrip(b"\0").find(TRAILER_MAGIC) > 0
    assert raw[-TRAILER_BYTES:] == bytes(TRAILER_BYTES)
    scan = examine(Files(), quick_directory, BASE, LOG_ID, topic_count=1, deep=True)
    assert (scan.state, scan.count, scan.reason) == (State.UNCLOSED, count, "")
    writer.seal_files(50)
    writer.close()
    scan = examine(Files(), quick_directory, BASE, LOG_ID, topic_count=1, deep=True)
    assert (scan.state, scan.count, scan.reason) == (State.SEALED, count, "")


@pytest.mark.parametrize(("operation", "nth"), [("pwrite", 1), ("fdatasync", 1), ("truncate", 1)])
@pytest.mark.parametrize("written_bytes", [None, 20])
def test_failed_seal_in_place_leaves_a_growing_index_and_can_be_repeated(
    writer: SegmentWriter, quick_directory: Path, operation: str, nth: int, written_bytes: int | None
) -> None:
    growing = writer.index_path.read_bytes()
    files = FaultyFiles()
    files.fail(
        operation, errno.ENOSPC, nth=nth, written_bytes=written_bytes if operation == "pwrite" else None
    )
    with pytest.raises(OSError, match="No space"):
        seal_where_it_is(writer, quick_directory, files)
    assert writer.index_path.read_bytes()[: entry_position(4)] == growing[: entry_position(4)]
    scan = examine(Files(), quick_directory, BASE, LOG_ID, topic_count=4, deep=True)
    assert (scan.state, scan.count, scan.reason) == (State.UNCLOSED, 4, "")
    seal_where_it_is(writer, quick_directory, files)
    assert examine(Files(), quick_directory, BASE, LOG_ID, deep=True).state is State.SEALED


def test_seal_in_place_can_be_repeated_when_its_last_flush_failed(
    writer: SegmentWriter, quick_directory: Path
) -> None:
    files = FaultyFiles()
    files.fail("fdatasync", errno.EIO, nth=2)
    with pytest.raises(OSError, match="Input/output"):
        seal_where_it_is(writer, quick_directory, files)
    trailer = seal_where_it_is(writer, quick_directory, files)
    assert writer.index_path.stat().st_size == trailer.file_bytes
    assert examine(Files(), quick_directory, BASE, LOG_ID, deep=True).state is State.SEALED


def test_truncated_index_is_not_sealed_in_place(writer: SegmentWriter, quick_directory: Path) -> None:
    with opened(writer.index_path, Files()) as fd:
        os.ftruncate(fd, entry_position(3))
    with pytest.raises(OSError, match="ends after 3 of its 4 entries"):
        seal_where_it_is(writer, quick_directory)
    assert writer.index_path.stat().st_size == entry_position(3)


def test_reader_of_a_growing_index_continues_when_the_index_is_sealed(quick_directory: Path) -> None:
    """Its mapping continues behind the new end of the file; an access there would end the program."""
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("a")
        log.append_many([b"%d" % number for number in range(1000)], ack="synced")
        view = timestone.view(quick_directory / "data")
        readers = [log.reader("earliest"), view.log("a").reader("earliest")]
        assert [len(reader.read(max_records=500)) for reader in readers] == [500, 500]
        log.roll()
        log.append(b"next", ack="synced")
        wait_for_seals(log)
        for reader in readers:
            rest = [record.payload for record in reader.read(max_records=500)]
            assert rest == [b"%d" % number for number in range(500, 1000)]
        view.close()


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync", "rename"])
def test_failed_seal_leaves_the_growing_index_and_can_be_repeated(
    writer: SegmentWriter, quick_directory: Path, operation: str
) -> None:
    growing = writer.index_path.read_bytes()
    files = FaultyFiles()
    files.fail(operation, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        seal(writer, quick_directory, files)
    assert writer.index_path.read_bytes() == growing
    seal(writer, quick_directory, files)
    assert files.names(quick_directory) == [writer.index_path.name, writer.segment_path.name]
    assert examine(Files(), quick_directory, BASE, LOG_ID, deep=True).state is State.SEALED


def test_failed_seal_that_cannot_be_undone_can_be_repeated(
    writer: SegmentWriter, quick_directory: Path
) -> None:
    files = FaultyFiles()
    faults = [files.fail("fdatasync", errno.EIO), files.fail("unlink", errno.EIO)]
    with pytest.raises(OSError, match="Input/output"):
        seal(writer, quick_directory, files)
    for fault in faults:
        fault.lift()
    seal(writer, quick_directory, files)
    assert examine(Files(), quick_directory, BASE, LOG_ID, deep=True).state is State.SEALED


def test_entries_are_read_in_chunks_and_stop_where_the_file_ends(writer: SegmentWriter) -> None:
    files = Files()
    fd = files.open(writer.index_path)
    assert [(first, len(chunk)) for first, chunk in read_entries(files, fd, 4)] == [(0, 4)]
    assert sum(len(chunk) for _, chunk in read_entries(files, fd, 100_000)) == (65536 - HEADER_BYTES) // 32
    files.close(fd)


def test_damaged_entries_keep_their_ordinal_and_are_not_in_the_summary(
    writer: SegmentWriter, quick_directory: Path
) -> None:
    raw = bytearray(writer.index_path.read_bytes())
    raw[entry_position(2) + 16] ^= 255  # the topic of the third record
    writer.index_path.write_bytes(raw)
    trailer = seal_index(Files(), HEADER, quick_directory, SegmentFacts(4, 9), 50, recovered=True)
    assert trailer.recovered
    sealed = names.index_path(quick_directory, BASE).read_bytes()
    assert sealed[HEADER_BYTES : entry_position(4)] == bytes(raw[HEADER_BYTES : entry_position(4)])
    summary = np.frombuffer(sealed[entry_position(4) : -TRAILER_BYTES], dtype="<u4").reshape(-1, 3)
    assert summary[:, 0].tolist() == [1, 3, NO_TOPIC]
    assert summary[:, 1].sum() == 3
    assert EntrySeal(LOG_ID, BASE).salt_crc == writer.seal.salt_crc
