import gc
from pathlib import Path

import pytest

from tests.support.expiring_store import expiring_store
from tests.support.quick_directory import open_below
from tests.support.segments import make_segment
from timestone.format import names
from timestone.reading.segment_cache import SegmentCache
from timestone.segment import Segment


@pytest.fixture
def open_segments() -> SegmentCache:
    return SegmentCache(2)


@pytest.fixture
def segments(quick_directory: Path, open_segments: SegmentCache) -> list[Segment]:
    return [
        make_segment(quick_directory, [b"x"], base_offset=base, open_segments=open_segments)
        for base in range(4)
    ]


def touch(segment: Segment) -> None:
    segment.read(0, max_records=1, max_bytes=1)


def held(folder: Path) -> list[int]:
    """The base offsets of the segments whose files are open."""
    return [int(Path(name).stem) for name in open_below(folder) if name.endswith(".segment")]


@pytest.mark.slow
def test_only_the_most_recently_read_segments_stay_open(
    segments: list[Segment], open_segments: SegmentCache, quick_directory: Path
) -> None:
    for segment in segments:
        touch(segment)
    assert held(quick_directory) == [2, 3]
    touch(segments[2])
    touch(segments[0])
    assert held(quick_directory) == [0, 2]
    open_segments.clear()


@pytest.mark.slow
def test_evicted_segment_is_closed_and_can_be_opened_again(
    segments: list[Segment], open_segments: SegmentCache, quick_directory: Path
) -> None:
    touch(segments[0])
    open_segments.forget(segments[0])
    assert held(quick_directory) == []
    touch(segments[0])
    assert held(quick_directory) == [0]
    open_segments.clear()


def test_clear_closes_all_segments(
    segments: list[Segment], open_segments: SegmentCache, quick_directory: Path
) -> None:
    for segment in segments[:2]:
        touch(segment)
    open_segments.clear()
    assert held(quick_directory) == []
    touch(segments[1])  # the same segment as last time is opened again nevertheless
    assert held(quick_directory) == [1]
    open_segments.clear()


def test_failed_open_closes_each_file_once(tmp_path: Path) -> None:
    """A reader met a segment between the renames of its two files. The failed open closed the one open descriptor, and
    the destructor of the object closed the same number again when it belonged to another file: the one being
    written."""
    with expiring_store(tmp_path / "data") as place:
        log = place.log()
        place.fill(log, 5)
        segment = log.segment_list.segments[0]
        place.store.open_segments.clear()
        segment.index_path.rename(names.deleted_path(segment.index_path))
        place.files.closed.clear()
        with pytest.raises(FileNotFoundError):
            segment.pair()
        gc.collect()
        assert len(place.files.closed) == 1
