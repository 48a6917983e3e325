"""The meaning of a bad record, and the next offset of a log, follow from all its segments together."""

from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from timestone.config import SEGMENT_ENTRIES_MAX
from timestone.disk.files import Files
from timestone.format import names
from timestone.index import IndexHeader
from timestone.kernel.entries import entry_position
from timestone.recovery.log_scan import continuation, scan_log, topics_in_use
from timestone.recovery.segment_report import SegmentScan, State
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import WriteBatch

LOG_ID, TOPIC = 77, 3
BOOT_ID, NEXT_BOOT_ID = bytes(range(1, 17)), bytes(range(2, 18))


def make(
    folder: Path, base: int, count: int, *, synced: int = 0, epoch: int = 0, sealed: bool = False
) -> None:
    """A segment of so many records, of which the first are flushed and noted as such."""
    writer = SegmentWriter(Files(), folder, IndexHeader(LOG_ID, base, 5, epoch, BOOT_ID))
    for number in range(count):
        writer.write_batch_at(WriteBatch([b"record %03d" % number], TOPIC), 1000 + number)
        if number + 1 == synced:
            writer.flush(synced)
            writer.note_synced(synced, 10 * synced)
    if sealed:
        writer.seal_files(50)
    writer.close()


def damage(folder: Path, base: int, ordinal: int) -> None:
    path = names.index_path(folder, base)
    raw = bytearray(path.read_bytes())
    raw[entry_position(ordinal)] ^= 1
    path.write_bytes(raw)


def look(folder: Path, *bases: int) -> list[SegmentScan]:
    files, seen = FaultyFiles(), list[tuple[int, int]]()
    scans = scan_log(files, folder, bases, LOG_ID, TOPIC + 1, lambda done, count: seen.append((done, count)))
    assert files.calls == [], "looking changes nothing"
    assert seen == [(done, len(bases)) for done in range(len(bases) + 1)]
    return scans


def states(scans: list[SegmentScan]) -> list[tuple[State, int]]:
    return [(scan.state, scan.count) for scan in scans]


def test_whole_segments_keep_their_own_reports(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, sealed=True)
    make(quick_directory, 4, 3)
    scans = look(quick_directory, 0, 4)
    assert states(scans) == [(State.SEALED, 4), (State.UNCLOSED, 3)]
    assert topics_in_use(scans) == TOPIC + 1
    assert topics_in_use([]) == 0


def test_bad_record_before_a_durable_one_is_damage(quick_directory: Path) -> None:
    make(quick_directory, 0, 4)
    make(quick_directory, 4, 3, synced=1)
    damage(quick_directory, 0, 2)
    first, second = look(quick_directory, 0, 4)
    assert (first.state, first.count, first.damaged) == (State.DAMAGED, 4, [2])
    assert (second.state, second.count) == (State.UNCLOSED, 3)


def test_segment_that_was_never_durable_is_cut_with_the_torn_tail_before_it(quick_directory: Path) -> None:
    make(quick_directory, 0, 4)
    make(quick_directory, 4, 3)
    damage(quick_directory, 0, 2)
    first, second = look(quick_directory, 0, 4)
    assert (first.state, first.count) == (State.TORN, 2)
    assert (second.state, second.never_durable, second.serves) == (State.ORPHAN, True, False)
    assert "follows a torn tail" in second.reason


def test_gap_between_epochs_is_not_a_loss(quick_directory: Path) -> None:
    make(quick_directory, 0, 4)
    make(quick_directory, 100, 3, epoch=1)
    assert states(look(quick_directory, 0, 100)) == [(State.UNCLOSED, 4), (State.UNCLOSED, 3)]


def test_rewritten_records_are_served_from_the_later_epoch(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, synced=2)
    make(quick_directory, 2, 2, synced=2, epoch=1)
    assert states(look(quick_directory, 0, 2)) == [(State.UNCLOSED, 2), (State.UNCLOSED, 2)]


def test_interrupted_failover_is_superseded_by_its_source(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, synced=2)
    make(quick_directory, 2, 0, epoch=1)
    first, second = look(quick_directory, 0, 2)
    assert (first.state, first.count) == (State.UNCLOSED, 4)
    assert (second.state, second.superseded, second.loss_proven) == (State.ORPHAN, True, False)


def test_log_continues_after_its_last_record_when_only_killed(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, synced=2, epoch=6)
    scans = look(quick_directory, 0)
    assert continuation(scans, 0, 0, BOOT_ID) == (4, 6, False)
    assert continuation(scans, 9, 8, BOOT_ID) == (9, 8, False), "the catalogue may know more"
    assert continuation([], 9, 8, BOOT_ID) == (9, 8, False)


@pytest.mark.parametrize("boot_id", [NEXT_BOOT_ID, bytes(16)])
def test_log_jumps_to_the_ceiling_when_the_page_cache_may_be_lost(
    quick_directory: Path, boot_id: bytes
) -> None:
    make(quick_directory, 0, 4, synced=2, epoch=6)
    (scan,) = look(quick_directory, 0)
    assert scan.checkpoint is not None
    assert continuation([scan], 0, 0, boot_id) == (scan.checkpoint.ceiling, 7, True)


def test_log_jumps_over_all_possible_offsets_of_a_lost_index(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, sealed=True)
    make(quick_directory, 4, 3)
    names.index_path(quick_directory, 4).unlink()
    scans = look(quick_directory, 0, 4)
    assert continuation(scans, 0, 0, BOOT_ID) == (4 + SEGMENT_ENTRIES_MAX, 1, True)


def test_log_jumps_over_missing_records_before_an_empty_segment(
    quick_directory: Path,
) -> None:
    """The disk lost the end of one segment and the creation of the next, and the system did not restart: a disk that
    was pulled out. The log continued at the base offset of the lost segment, in the same epoch, so readers got
    OffsetsLost for the gap."""
    make(quick_directory, 0, 4, synced=4, epoch=6)
    names.segment_path(quick_directory, 7).touch()
    names.index_path(quick_directory, 7).touch()
    scans = look(quick_directory, 0, 7)
    assert scans[1].unborn
    checkpoint = scans[0].checkpoint
    assert checkpoint is not None
    assert continuation(scans, 0, 0, BOOT_ID) == (checkpoint.ceiling, 7, True)
    assert continuation(scans[1:], 0, 6, BOOT_ID) == (7, 6, False), "in front of it everything was deleted"
