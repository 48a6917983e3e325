"""One segment as seen by a process that does not own its log."""

from pathlib import Path

import pytest

from tests.support.segments import LOG_ID, make_segment
from timestone.disk.files import Files
from timestone.format import names
from timestone.reading.segment_cache import SegmentCache
from timestone.recovery.segment_look import SegmentLooks

BASE = 100


@pytest.fixture
def looks(quick_directory: Path) -> SegmentLooks:
    return SegmentLooks(Files(), quick_directory, LOG_ID, SegmentCache(8))


def test_look_at_a_growing_segment_counts_valid_records_and_continues_from_there(
    looks: SegmentLooks, quick_directory: Path
) -> None:
    make_segment(quick_directory, [b"a", b"b"], base_offset=BASE, sealed=False)
    first = looks.look(BASE)
    assert (first.segment.end_offset, first.durable_offset, first.epoch) == (BASE + 2, BASE, 0)
    assert looks.look(BASE, first.segment).segment is first.segment


def test_look_at_a_sealed_segment_reuses_known_facts(looks: SegmentLooks, quick_directory: Path) -> None:
    make_segment(quick_directory, [b"a", b"b"], base_offset=BASE)
    first = looks.look(BASE)
    assert (first.segment.trailer is not None, first.durable_offset) == (True, BASE + 2)
    assert looks.look(BASE, first.segment).segment is first.segment


def test_missing_index_or_that_of_another_segment_counts_as_absent(
    looks: SegmentLooks, quick_directory: Path
) -> None:
    make_segment(quick_directory, [b"a"], base_offset=BASE)
    other = names.index_path(quick_directory, BASE + 5)
    other.write_bytes(names.index_path(quick_directory, BASE).read_bytes())
    with pytest.raises(FileNotFoundError, match="that of base offset 100, not 105"):
        looks.look(BASE + 5)
    strange = SegmentLooks(Files(), quick_directory, LOG_ID + 1, SegmentCache(8))
    with pytest.raises(FileNotFoundError, match=f"another log, with the id {LOG_ID:016x}"):
        strange.look(BASE)
    with pytest.raises(FileNotFoundError, match="the index is missing"):
        looks.look(BASE + 7)
    assert [looks.is_served(base) for base in (BASE, BASE + 5, BASE + 7)] == [True, False, False]


def test_segment_that_is_gone_by_the_time_its_deletion_is_looked_for_is_not_lost(
    quick_directory: Path,
) -> None:
    """Of a replica that begins again: the renamed index, which proves the deletion, is the last file to go."""

    class Completing(Files):
        def names(self, folder: Path) -> list[str]:
            for path in folder.iterdir():
                path.unlink()
            return super().names(folder)

    make_segment(quick_directory, [b"a"], base_offset=BASE)
    index = names.index_path(quick_directory, BASE)
    index.rename(names.deleted_path(index))
    assert SegmentLooks(Completing(), quick_directory, LOG_ID, SegmentCache(8)).lost(BASE, BASE + 1) is None
