"""Segments are read once, when they are needed, and a listing reuses those of an earlier one."""

from pathlib import Path

import pytest

from tests.support.segments import make_segment
from timestone.reading.listed_segments import ListedSegments
from timestone.segment import Segment

BASES = (0, 2, 4)


class Folder:
    """Three segments of two records, and which of them were looked at."""

    def __init__(self, path: Path) -> None:
        self.there = {base: make_segment(path, [b"x", b"y"], base_offset=base) for base in BASES}
        self.looked_at: list[int] = []

    def look(self, base: int) -> Segment:
        self.looked_at.append(base)
        if base not in self.there:
            raise FileNotFoundError(base)
        return self.there[base]


@pytest.fixture
def folder(quick_directory: Path) -> Folder:
    return Folder(quick_directory)


def test_segments_are_read_once_and_when_needed(folder: Folder) -> None:
    listed = ListedSegments(BASES, {4: folder.there[4]}, folder.look)
    assert len(listed) == 3
    assert folder.looked_at == []
    assert listed[1] is listed[-2] is folder.there[2]
    assert folder.looked_at == [2]
    assert listed.seen().keys() == {2, 4}
    assert listed[:2] == (folder.there[0], folder.there[2])
    assert list(listed) == list(folder.there.values())
    assert folder.looked_at == [2, 0]


def test_missing_segment_is_looked_up_each_time(folder: Folder) -> None:
    listed = ListedSegments(BASES, {}, folder.look)
    del folder.there[2]
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            listed[1]
    assert folder.looked_at == [2, 2]
    assert listed[0].base_offset == 0


def test_listing_reuses_segments_of_an_earlier_one(folder: Folder) -> None:
    earlier = ListedSegments(BASES, {}, folder.look)
    first = earlier[0]
    assert not ListedSegments((*BASES, 6), {0: first}, folder.look).has_lost(earlier)
    assert ListedSegments(BASES[1:], {}, folder.look).has_lost(earlier), "it has gone"
    assert ListedSegments(BASES, {0: folder.there[2]}, folder.look).has_lost(earlier), "it has other files"
    assert ListedSegments(BASES, {0: first, 2: folder.there[2]}, folder.look).has_lost(earlier), (
        "it was found"
    )
