"""Copies of manifests on the local disk: what a start without the bucket knows."""

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from timestone.reading.segment_cache import SegmentCache
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import HistoryDiverged
from timestone_tiering.objects.layout import Version
from timestone_tiering.objects.manifest import Manifest
from timestone_tiering.objects.manifests import LogObjects
from timestone_tiering.reading.fetched_segments import FetchedSegments
from timestone_tiering.reading.histories import Histories


@pytest.fixture
def histories(store: Store, tmp_path: Path) -> Histories:
    fetched = FetchedSegments(tmp_path / "cache", 1 << 30)
    return Histories(tmp_path / "copies", fetched, store.files, SegmentCache(4))


def test_a_copy_says_what_the_manifest_said_and_is_not_confirmed(
    histories: Histories, stored: Manifest, bucket: FolderBucket, tmp_path: Path
) -> None:
    assert histories.known(bucket, stored.place) is None
    noted = histories.note(LogObjects(bucket, stored.place), stored, stored.start)
    known = histories.known(bucket, stored.place)
    assert known is not None
    assert (noted.confirmed, known.confirmed) == (True, False)
    assert (known.start, known.end, known.segments) == (0, 30, noted.segments)
    assert len(os.listdir(tmp_path / "copies")) == 1


def test_only_the_newest_copy_is_kept(
    histories: Histories, stored: Manifest, bucket: FolderBucket, tmp_path: Path
) -> None:
    objects = LogObjects(bucket, stored.place)
    first = histories.note(objects, stored, 0)
    newer = replace(stored.starting_at(10), version=Version(2, 0))
    second = histories.note(objects, newer, 20)
    assert (second.start, len(second.segments)) == (20, 1)
    assert second.segments[0] is first.segments[2], "its open files are used again"
    assert [name[17:27] for name in os.listdir(tmp_path / "copies")] == ["0000000002"]
    known = histories.known(bucket, stored.place)
    assert known is not None and known.start == 10


def test_the_copy_has_the_segments_of_chapters(
    histories: Histories, stored: Manifest, bucket: FolderBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timestone_tiering.objects.manifests.SEGMENTS_MOST", 2)
    monkeypatch.setattr("timestone_tiering.objects.manifests.CHAPTER_SEGMENTS", 2)
    objects = LogObjects(bucket, stored.place)
    short = objects.shortened(stored, 1)
    assert len(short.segments) == 1
    histories.note(objects, short, 0)
    bucket.delete([objects.name_of(short.chapters[0].object)])
    known = histories.known(bucket, stored.place)
    assert known is not None and len(known.segments) == 3


def test_a_damaged_copy_is_reported_and_not_used(
    histories: Histories,
    stored: Manifest,
    bucket: FolderBucket,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    histories.note(LogObjects(bucket, stored.place), stored, 0)
    (copy,) = (tmp_path / "copies").iterdir()
    copy.write_bytes(copy.read_bytes()[:-9])
    with caplog.at_level(logging.WARNING):
        assert histories.known(bucket, stored.place) is None
    assert f"{copy}: not used" in caplog.text


def test_a_manifest_that_is_older_than_the_copy_is_refused(
    histories: Histories, stored: Manifest, bucket: FolderBucket
) -> None:
    objects = LogObjects(bucket, stored.place)
    histories.note(objects, replace(stored, version=Version(1, 9)), 0)
    with pytest.raises(HistoryDiverged, match=r"it lacks .*0000000001-0000000009\.json\.zst"):
        histories.note(objects, stored, 0)
