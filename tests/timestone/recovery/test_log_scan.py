"""What a bad record means, and where the log continues, is told by the segments together."""

from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from timestone.config import SEGMENT_ENTRIES_MAX
from timestone.disk.files import Files
from timestone.format import names
from timestone.index import IndexHeader
from timestone.kernel.entries import entry_position
from timestone.recovery.log_scan import LogExamination, continuation, topics_in_use
from timestone.recovery.segment_report import Finding, State
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import Draft

LOG_ID, TOPIC = 77, 3
BOOT_ID, NEXT_BOOT_ID = bytes(range(1, 17)), bytes(range(2, 18))


def make(
    folder: Path, base: int, count: int, *, synced: int = 0, epoch: int = 0, sealed: bool = False
) -> None:
    """A segment of so many records, of which the first are flushed and noted as such."""
    writer = SegmentWriter(Files(), folder, IndexHeader(LOG_ID, base, 5, epoch, BOOT_ID))
    for number in range(count):
        writer.write_draft(Draft([b"record %03d" % number], TOPIC), 1000 + number)
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


def look(folder: Path, *bases: int) -> list[Finding]:
    files, seen = FaultyFiles(), list[tuple[int, int]]()
    examination = LogExamination(files, folder, LOG_ID, TOPIC + 1)
    findings = examination.run(bases, lambda done, count: seen.append((done, count)))
    assert files.calls == [], "looking changes nothing"
    assert seen == [(done, len(bases)) for done in range(len(bases) + 1)]
    return findings


def states(findings: list[Finding]) -> list[tuple[State, int]]:
    return [(finding.state, finding.count) for finding in findings]


def test_whole_segments_are_what_they_are_alone(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, sealed=True)
    make(quick_directory, 4, 3)
    findings = look(quick_directory, 0, 4)
    assert states(findings) == [(State.SEALED, 4), (State.UNCLOSED, 3)]
    assert topics_in_use(findings) == TOPIC + 1
    assert topics_in_use([]) == 0


def test_in_front_of_something_durable_a_bad_record_is_damage(quick_directory: Path) -> None:
    make(quick_directory, 0, 4)
    make(quick_directory, 4, 3, synced=1)
    damage(quick_directory, 0, 2)
    first, second = look(quick_directory, 0, 4)
    assert (first.state, first.count, first.damaged) == (State.DAMAGED, 4, [2])
    assert (second.state, second.count) == (State.UNCLOSED, 3)


def test_what_was_never_durable_goes_with_the_torn_tail_in_front_of_it(quick_directory: Path) -> None:
    make(quick_directory, 0, 4)
    make(quick_directory, 4, 3)
    damage(quick_directory, 0, 2)
    first, second = look(quick_directory, 0, 4)
    assert (first.state, first.count) == (State.TORN, 2)
    assert (second.state, second.never_durable, second.serves) == (State.ORPHAN, True, False)
    assert "follows a torn tail" in second.reason


def test_gap_between_epochs_is_meant_to_be(quick_directory: Path) -> None:
    make(quick_directory, 0, 4)
    make(quick_directory, 100, 3, epoch=1)
    assert states(look(quick_directory, 0, 100)) == [(State.UNCLOSED, 4), (State.UNCLOSED, 3)]


def test_records_that_were_written_again_count_in_the_later_epoch(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, synced=2)
    make(quick_directory, 2, 2, synced=2, epoch=1)
    assert states(look(quick_directory, 0, 2)) == [(State.UNCLOSED, 2), (State.UNCLOSED, 2)]


def test_rewrite_that_was_cut_short_is_superseded_by_what_it_was_made_from(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, synced=2)
    make(quick_directory, 2, 0, epoch=1)
    first, second = look(quick_directory, 0, 2)
    assert (first.state, first.count) == (State.UNCLOSED, 4)
    assert (second.state, second.superseded, second.loss_proven) == (State.ORPHAN, True, False)


def test_log_goes_on_behind_its_last_record_after_a_mere_kill(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, synced=2, epoch=6)
    findings = look(quick_directory, 0)
    assert continuation(findings, 0, 0, BOOT_ID) == (4, 6, False)
    assert continuation(findings, 9, 8, BOOT_ID) == (9, 8, False), "the catalogue may know more"
    assert continuation([], 9, 8, BOOT_ID) == (9, 8, False)


@pytest.mark.parametrize("boot_id", [NEXT_BOOT_ID, bytes(16)])
def test_log_jumps_to_the_ceiling_when_the_page_cache_may_be_another(
    quick_directory: Path, boot_id: bytes
) -> None:
    make(quick_directory, 0, 4, synced=2, epoch=6)
    (finding,) = look(quick_directory, 0)
    assert finding.checkpoint is not None
    assert continuation([finding], 0, 0, boot_id) == (finding.checkpoint.ceiling, 7, True)


def test_log_jumps_over_all_that_a_lost_index_could_have_had(quick_directory: Path) -> None:
    make(quick_directory, 0, 4, sealed=True)
    make(quick_directory, 4, 3)
    names.index_path(quick_directory, 4).unlink()
    findings = look(quick_directory, 0, 4)
    assert continuation(findings, 0, 0, BOOT_ID) == (4 + SEGMENT_ENTRIES_MAX, 1, True)


def test_log_jumps_over_records_that_a_segment_which_never_held_one_was_to_follow(
    quick_directory: Path,
) -> None:
    """The disk forgot the end of one segment and the creation of the next, and the system did not restart: a disk that
    was pulled out. The log continued where that segment was to begin, in the same epoch, so readers were told that what
    lies between is lost."""
    make(quick_directory, 0, 4, synced=4, epoch=6)
    names.segment_path(quick_directory, 7).touch()
    names.index_path(quick_directory, 7).touch()
    findings = look(quick_directory, 0, 7)
    assert findings[1].unborn
    checkpoint = findings[0].checkpoint
    assert checkpoint is not None
    assert continuation(findings, 0, 0, BOOT_ID) == (checkpoint.ceiling, 7, True)
    assert continuation(findings[1:], 0, 6, BOOT_ID) == (7, 6, False), "in front of it everything was deleted"
