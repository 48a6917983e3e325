"""Whole files and cut-off pieces of segments, and their positions."""

from pathlib import Path

import pytest

from timestone.disk.files import Files
from timestone.format import names
from timestone.index import IndexHeader
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES, NO_TOPIC
from timestone.kernel.entry_checksum import EntrySeal
from timestone.recovery.record_verifier import Proofs
from timestone.repair.segment_fragments import SegmentFragments, fragments_of, log_ids
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import WriteBatch

LOG_ID = 77
PAYLOADS = [b"record %d" % number for number in range(20)]


def write_pair(folder: Path, base: int, *, epoch: int = 0, seal: bool = True, log_id: int = LOG_ID) -> None:
    header = IndexHeader(log_id, base, 1, epoch, bytes(16))
    writer = SegmentWriter(Files(), folder, header)
    write_batch = WriteBatch(PAYLOADS, NO_TOPIC)
    writer.write(
        write_batch.stored,
        write_batch.entries(EntrySeal(log_id, base), ordinal=0, position=0, timestamp_us=5),
    )
    writer.flush(writer.count)
    writer.note_synced(writer.count, writer.size_bytes)
    if seal:
        writer.seal_files(6)
    writer.close()


def remains(folder: Path) -> dict[int, SegmentFragments]:
    return fragments_of(Files(), folder, LOG_ID, lambda count: None)


def proven(one: SegmentFragments) -> list[tuple[int, int]]:
    sources = one.entry_sources()
    byte_sources = one.byte_sources(sources)
    found = [(two.first, two.end) for source in sources for two in Proofs(source, byte_sources).proven]
    one.close()
    return found


def paths(folder: Path, base: int = 0) -> tuple[Path, Path]:
    return names.index_path(folder, base), names.segment_path(folder, base)


@pytest.mark.parametrize("seal", [True, False])
def test_fragments_have_the_pair_in_place(tmp_path: Path, seal: bool) -> None:
    write_pair(tmp_path, 100, epoch=3, seal=seal)
    one = remains(tmp_path)[100]
    assert proven(one) == [(100, 120)]
    assert one.own is not None
    assert one.own.header is not None
    assert one.own.header.epoch == 3
    assert (one.own.trailer is not None) == seal
    assert one.own.checkpoint is not None
    assert one.own.checkpoint.entry_count == 20


@pytest.mark.parametrize("suffix", [".lost", ".lost.3", ".tmp"])
def test_fragments_have_quarantined_files(tmp_path: Path, suffix: str) -> None:
    write_pair(tmp_path, 0)
    for path in paths(tmp_path):
        path.rename(path.with_name(path.name + suffix))
    one = remains(tmp_path)[0]
    assert proven(one) == [(0, 20)]
    assert (one.has_index, one.has_segment, one.own) == (False, False, None)


def cut_aside(folder: Path, count: int, *, keep_trailer: bool) -> None:
    """What a recovery leaves that has cut a segment behind `count` records."""
    index, segment = paths(folder)
    entries, data = index.read_bytes()[HEADER_BYTES:], segment.read_bytes()
    size = sum(map(len, PAYLOADS[:count]))
    index.with_name(index.name + ".lost").write_bytes(entries[count * ENTRY_BYTES :])
    segment.with_name(segment.name + ".lost").write_bytes(data[size:])
    for path in (index, segment):
        path.unlink()
    if keep_trailer:
        header = IndexHeader(LOG_ID, 0, 1, 0, bytes(16))
        writer = SegmentWriter(Files(), folder, header)
        write_batch = WriteBatch(PAYLOADS[:count], NO_TOPIC)
        writer.write(
            write_batch.stored,
            write_batch.entries(EntrySeal(LOG_ID, 0), ordinal=0, position=0, timestamp_us=5),
        )
        writer.seal_files(6)
        writer.close()


def test_quarantined_tail_begins_where_the_segment_was_cut(tmp_path: Path) -> None:
    write_pair(tmp_path, 0, seal=False)
    cut_aside(tmp_path, 13, keep_trailer=True)
    assert sorted(proven(remains(tmp_path)[0])) == [(0, 13), (13, 20)]


def test_position_of_a_quarantined_tail_is_found_by_trying(tmp_path: Path) -> None:
    """The sealed segment that it was cut from does not exist any more."""
    write_pair(tmp_path, 0, seal=False)
    cut_aside(tmp_path, 13, keep_trailer=False)
    assert proven(remains(tmp_path)[0]) == [(13, 20)]


def test_quarantined_tail_is_located_when_its_first_entries_are_torn(tmp_path: Path) -> None:
    write_pair(tmp_path, 0, seal=False)
    cut_aside(tmp_path, 13, keep_trailer=True)
    aside = tmp_path / f"{0:020d}.index.lost"
    aside.write_bytes(bytes(2 * ENTRY_BYTES) + aside.read_bytes()[2 * ENTRY_BYTES :])
    assert sorted(proven(remains(tmp_path)[0])) == [(0, 13), (15, 20)]


def test_empty_tail_is_not_a_fragment(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.index.lost").write_bytes(bytes(6400))
    (tmp_path / f"{0:020d}.segment.lost").write_bytes(b"garbage")
    one = remains(tmp_path)[0]
    assert one.entry_sources() == []


def test_deleted_segments_have_no_fragments(tmp_path: Path) -> None:
    for base in (0, 20, 40):
        write_pair(tmp_path, base)
    index, _ = paths(tmp_path, 20)
    index.rename(names.deleted_path(index))
    assert list(remains(tmp_path)) == [40]


def test_file_of_a_newer_version_is_reported_and_not_read(tmp_path: Path) -> None:
    write_pair(tmp_path, 0)
    index, _ = paths(tmp_path)
    page = bytearray(index.read_bytes())
    page[8] = 9
    page[64:68] = crc32c(page[:64]).to_bytes(4, "little")
    index.write_bytes(page)
    one = remains(tmp_path)[0]
    assert one.entry_sources() == []
    assert "format version 9" in one.notes[0]


def test_log_id_is_found_in_header_checkpoints_or_trailer(tmp_path: Path) -> None:
    write_pair(tmp_path, 0)
    write_pair(tmp_path, 20, seal=False)
    write_pair(tmp_path, 40, log_id=5)
    for path in (paths(tmp_path)[0], paths(tmp_path, 20)[0]):
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.write_bytes(data)
    assert log_ids(Files(), tmp_path, lambda count: None)[0] == LOG_ID
    (tmp_path / f"{60:020d}.index").write_bytes(b"short")
    assert set(log_ids(Files(), tmp_path, lambda count: None)) == {LOG_ID, 5}
