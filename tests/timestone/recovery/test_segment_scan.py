"""What the files of a segment prove about themselves; a scan changes nothing."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from timestone.disk.files import Files
from timestone.errors import UnsupportedFormat
from timestone.index import SLOT_BYTES, SLOT_POSITIONS, IndexHeader
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES, entry_position
from timestone.recovery.segment_report import SegmentScan, State
from timestone.recovery.segment_scan import examine
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import WriteBatch

LOG_ID, BASE = 77, 1000
HEADER = IndexHeader(LOG_ID, BASE, 5, 2, bytes(range(1, 17)))
COUNT, SYNCED = 6, 4


def make(folder: Path, *, sealed: bool = False, topic: int = 3) -> SegmentWriter:
    """Six records of ten bytes, four of them flushed and noted as such."""
    writer = SegmentWriter(Files(), folder, HEADER)
    for number in range(COUNT):
        write_batch = WriteBatch([b"record %03d" % number], topic)
        writer.write(
            write_batch.stored,
            write_batch.entries(writer.seal, ordinal=number, position=10 * number, timestamp_us=number + 1),
        )
        if number + 1 == SYNCED:
            writer.flush(SYNCED)
            writer.note_synced(SYNCED, 10 * SYNCED)
    if sealed:
        writer.seal_files(50)
    writer.close()
    return writer


def look(folder: Path, **how: int | bool) -> SegmentScan:
    files = FaultyFiles()
    scan = examine(files, folder, BASE, LOG_ID, topic_count=int(how.pop("topic_count", 10)), **how)  # type: ignore[arg-type]
    assert files.calls == [], "looking changes nothing"
    return scan


def change(path: Path, position: int, data: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[position : position + len(data)] = data
    path.write_bytes(raw)


def test_whole_unclosed_segment_has_no_loss(quick_directory: Path) -> None:
    make(quick_directory)
    scan = look(quick_directory)
    assert (scan.state, scan.count, scan.watermark) == (State.UNCLOSED, COUNT, SYNCED)
    assert (scan.segment_bytes, scan.end_offset, scan.topic_count) == (60, BASE + COUNT, 4)
    assert (scan.first_timestamp_us, scan.last_timestamp_us) == (1, COUNT)
    assert not scan.loss_proven
    assert scan.header == HEADER


def test_sealed_segment_is_trusted_and_verified_on_request(quick_directory: Path) -> None:
    writer = make(quick_directory, sealed=True)
    assert look(quick_directory, deep=True).state is State.SEALED
    change(writer.segment_path, 15, b"?")
    assert look(quick_directory).state is State.SEALED
    scan = look(quick_directory, deep=True)
    assert (scan.state, scan.damaged, scan.count) == (State.DAMAGED, [1], COUNT)
    assert "offset 1001" in scan.reason


def test_segment_without_a_record_is_unclosed_and_empty(quick_directory: Path) -> None:
    SegmentWriter(Files(), quick_directory, HEADER).close()
    scan = look(quick_directory)
    assert (scan.state, scan.count, scan.unborn, scan.loss_proven) == (
        State.UNCLOSED,
        0,
        False,
        False,
    )


@pytest.mark.parametrize("ordinal", range(SYNCED, COUNT))
@pytest.mark.parametrize("what", ["entry", "bytes"])
def test_first_bad_record_above_the_checkpoint_is_the_torn_tail(
    quick_directory: Path, ordinal: int, what: str
) -> None:
    writer = make(quick_directory)
    if what == "entry":
        change(writer.index_path, entry_position(ordinal) + 3, b"?")
    else:
        change(writer.segment_path, ordinal * 10, b"?")
    scan = look(quick_directory)
    assert (scan.state, scan.count, scan.damaged) == (State.TORN, ordinal, [])
    assert scan.lost_bytes == 10 * (COUNT - ordinal)


@pytest.mark.parametrize("ordinal", range(SYNCED))
def test_bad_entry_below_the_checkpoint_is_damage_to_one_record(quick_directory: Path, ordinal: int) -> None:
    writer = make(quick_directory)
    change(writer.index_path, entry_position(ordinal) + 3, b"?")
    scan = look(quick_directory)
    assert (scan.state, scan.count, scan.damaged) == (State.DAMAGED, COUNT, [ordinal])
    assert scan.loss_proven


def test_only_records_above_the_checkpoint_are_read_by_default(quick_directory: Path) -> None:
    """The time to open after a crash depends on the unsynced part, not on the size of the log."""
    writer = make(quick_directory)
    change(writer.segment_path, 5, b"?")
    assert look(quick_directory).state is State.UNCLOSED
    assert look(quick_directory, deep=True).damaged == [0]


def test_bytes_behind_the_last_record_are_a_torn_append(quick_directory: Path) -> None:
    writer = make(quick_directory)
    writer.segment_path.write_bytes(writer.segment_path.read_bytes() + b"half a rec")
    scan = look(quick_directory)
    assert (scan.state, scan.count, scan.lost_bytes, scan.lost_count) == (
        State.TORN,
        COUNT,
        10,
        0,
    )
    assert not scan.loss_proven, "a killed process leaves just that"


def test_record_of_an_unknown_topic_was_not_durable(quick_directory: Path) -> None:
    """Names are flushed before the records that use them."""
    make(quick_directory)
    scan = look(quick_directory, topic_count=3)
    assert scan.count == SYNCED


def test_segment_before_a_durable_one_must_have_all_its_records(quick_directory: Path) -> None:
    writer = make(quick_directory)
    change(writer.index_path, entry_position(5) + 3, b"?")
    scan = look(quick_directory, expected_count=COUNT)
    assert (scan.state, scan.count, scan.damaged) == (State.DAMAGED, COUNT, [5])
    assert look(quick_directory).count == 5, "without the later segment it is a torn tail"


def test_records_rewritten_in_another_segment_are_not_served(quick_directory: Path) -> None:
    make(quick_directory)
    scan = look(quick_directory, most_count=5)
    assert (scan.state, scan.count, scan.lost_count, scan.loss_proven) == (
        State.UNCLOSED,
        5,
        0,
        False,
    )


def _no_index(writer: SegmentWriter) -> None:
    writer.index_path.unlink()


def _no_segment(writer: SegmentWriter) -> None:
    writer.segment_path.unlink()


def _others_index(writer: SegmentWriter) -> None:
    header = IndexHeader(LOG_ID + 1, BASE, 5, 2, bytes(16)).encode()
    change(writer.index_path, 0, header)


ORPHANS: dict[str, Callable[[SegmentWriter], None]] = {
    "no index": _no_index,
    "no segment": _no_segment,
    "index of another log": _others_index,
}


@pytest.mark.parametrize("damage", ORPHANS.values(), ids=ORPHANS)
def test_half_a_pair_serves_no_record_and_is_a_loss(
    quick_directory: Path, damage: Callable[[SegmentWriter], None]
) -> None:
    damage(make(quick_directory))
    scan = look(quick_directory)
    assert (scan.state, scan.count, scan.loss_proven) == (State.ORPHAN, 0, True)
    assert scan.reason


def _empty_segment_alone(folder: Path) -> None:
    (folder / f"{BASE:020d}.segment").write_bytes(b"")


def _empty_pair(folder: Path) -> None:
    _empty_segment_alone(folder)
    (folder / f"{BASE:020d}.index").write_bytes(b"")


def _reserved_pair(folder: Path) -> None:
    _empty_segment_alone(folder)
    (folder / f"{BASE:020d}.index").write_bytes(bytes(65536))


def _reserved_index_alone(folder: Path) -> None:
    (folder / f"{BASE:020d}.index").write_bytes(bytes(65536))


def _index_alone_with_a_torn_entry(folder: Path) -> None:
    """Recovery removes a segment whose only entry is not valid; the power fails again, and of the two files only the
    segment is gone."""
    writer = SegmentWriter(Files(), folder, HEADER)
    writer.close()
    change(writer.index_path, HEADER_BYTES, bytes(range(ENTRY_BYTES)))
    writer.segment_path.unlink()


def test_index_with_a_valid_first_entry_had_records(quick_directory: Path) -> None:
    writer = SegmentWriter(Files(), quick_directory, HEADER)
    writer.write_batch_at(WriteBatch([b"x"]), 9)
    writer.close()
    writer.segment_path.unlink()
    scan = look(quick_directory)
    assert (scan.state, scan.unborn, scan.loss_proven) == (State.ORPHAN, False, True)


def test_empty_file_of_a_rewritten_segment_had_records(quick_directory: Path) -> None:
    """Its index gone and its file emptied, a compressed segment was called one that had never held a record."""
    (quick_directory / f"{BASE:020d}.1.segment").write_bytes(b"")
    scan = look(quick_directory)
    assert (scan.state, scan.unborn, scan.loss_proven) == (State.ORPHAN, False, True)


UNBORN = {
    "segment": _empty_segment_alone,
    "both, empty": _empty_pair,
    "both, reserved": _reserved_pair,
    "index": _reserved_index_alone,
    "index, its entry torn": _index_alone_with_a_torn_entry,
}


@pytest.mark.parametrize("leave", UNBORN.values(), ids=UNBORN)
def test_interrupted_creation_is_not_a_loss(quick_directory: Path, leave: Callable[[Path], None]) -> None:
    leave(quick_directory)
    scan = look(quick_directory)
    assert scan.unborn
    assert (scan.state, scan.count, scan.loss_proven, scan.reason) == (
        State.UNCLOSED,
        0,
        False,
        "",
    )


def test_index_without_a_header_still_serves_its_records(quick_directory: Path) -> None:
    writer = make(quick_directory)
    change(writer.index_path, 20, b"?")
    scan = look(quick_directory)
    assert (scan.state, scan.count) == (State.DAMAGED, COUNT)
    assert scan.header is not None


def test_lost_checkpoints_are_reported_and_all_records_are_verified(quick_directory: Path) -> None:
    writer = make(quick_directory)
    for position in SLOT_POSITIONS:
        change(writer.index_path, position, bytes(SLOT_BYTES))
    change(writer.segment_path, 15, b"?")
    scan = look(quick_directory)
    assert (scan.watermark, scan.count) == (0, 1)
    assert scan.loss_proven


@pytest.mark.parametrize("version", [3, 2**32 - 1])
def test_newer_format_raises_unsupported_format(quick_directory: Path, version: int) -> None:
    writer = make(quick_directory)
    page = bytearray(writer.index_path.read_bytes()[:68])
    struct.pack_into("<I", page, 8, version)
    struct.pack_into("<I", page, 64, crc32c(bytes(page[:64])))
    change(writer.index_path, 0, bytes(page))
    with pytest.raises(UnsupportedFormat) as caught:
        look(quick_directory)
    assert (caught.value.path, caught.value.found) == (writer.index_path, version)


def test_length_beyond_the_file_allocates_nothing(quick_directory: Path) -> None:
    """An entry with a valid crc and an absurd length: what its writer meant is not there."""
    writer = make(quick_directory)
    for number, (position, length) in enumerate([(0xFFFFFFFF, 0xFFFFFFFF), (0, 2**31), (2**31, 1)]):
        raw = struct.pack("<IIqIHHI", position, length, 9, 3, 0, 0, 1)
        ordinal = SYNCED + number % 2
        salted = struct.pack("<QQI", LOG_ID, BASE, ordinal) + raw
        change(writer.index_path, entry_position(ordinal), raw + struct.pack("<I", crc32c(salted)))
        assert look(quick_directory).count <= ordinal


def test_room_is_the_reserved_space_of_the_index_file(quick_directory: Path) -> None:
    writer = make(quick_directory)
    writer.index_path.write_bytes(writer.index_path.read_bytes()[: HEADER_BYTES + 2 * ENTRY_BYTES + 7])
    scan = look(quick_directory)
    assert (scan.count, scan.loss_proven) == (2, True)
    assert "room for 2" in scan.reason
