import gc
from pathlib import Path

import pytest

from tests.support.expiring_store import expiring_store
from tests.support.quick_directory import open_below
from tests.support.segments import make_segment
from timestone.format import names
from timestone.reading.segment_cache import OpenSegments
from timestone.segment import Segment


@pytest.fixture
def open_segments() -> OpenSegments:
    return OpenSegments(2)


@pytest.fixture
def segments(quick_directory: Path, open_segments: OpenSegments) -> list[Segment]:
    return [
        make_segment(quick_directory, [b"x"], base_offset=base, open_segments=open_segments)
        for base in range(4)
    ]


def touch(segment: Segment) -> None:
    segment.read(0, max_records=1, max_bytes=1)


def held(folder: Path) -> list[int]:
    """The base offsets of the segments whose files are open."""
    return [int(Path(name).stem) for name in open_below(folder) if name.endswith(".segment")]


def test_only_the_most_recently_read_segments_stay_open(
    segments: list[Segment], open_segments: OpenSegments, quick_directory: Path
) -> None:
    for segment in segments:
        touch(segment)
    assert held(quick_directory) == [2, 3]
    touch(segments[2])
    touch(segments[0])
    assert held(quick_directory) == [0, 2]
    open_segments.clear()


def test_forgotten_segment_is_closed_and_may_come_back(
    segments: list[Segment], open_segments: OpenSegments, quick_directory: Path
) -> None:
    touch(segments[0])
    open_segments.forget(segments[0])
    assert held(quick_directory) == []
    touch(segments[0])
    assert held(quick_directory) == [0]
    open_segments.clear()


def test_cleared_everything_is_closed(
    segments: list[Segment], open_segments: OpenSegments, quick_directory: Path
) -> None:
    for segment in segments[:2]:
        touch(segment)
    open_segments.clear()
    assert held(quick_directory) == []
    touch(segments[1])  # the same segment as last time is opened again all the same
    assert held(quick_directory) == [1]
    open_segments.clear()


def test_pair_that_cannot_be_opened_closes_nothing_twice(tmp_path: Path) -> None:
    """A reader met a segment between the renames of its two files. What was open of it was closed by the failure
    and once more when the object went, by when the number belonged to another file: the one being written."""
    with expiring_store(tmp_path / "data") as place:
        log = place.log()
        place.fill(log, 5)
        segment = log.history.segments[0]
        place.store.open_segments.clear()
        segment.index_path.rename(names.deleted_path(segment.index_path))
        place.files.closed.clear()
        with pytest.raises(FileNotFoundError):
            segment.pair()
        gc.collect()
        assert len(place.files.closed) == 1
