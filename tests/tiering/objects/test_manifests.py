"""The manifests of a log: the newest is found, the next is committed once."""

from dataclasses import replace

import pytest

from tests.tiering.objects.test_manifest import PLACE, manifest, segment
from timestone_tiering.buckets import folder_bucket as module
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import DamagedObject, ObjectMissing, PrefixInUse
from timestone_tiering.objects.layout import Version
from timestone_tiering.objects.manifest import CHAPTER_SEGMENTS, SEGMENTS_MOST, Manifest, StoredObject
from timestone_tiering.objects.manifests import LogObjects


def versioned(generation: int, number: int) -> Manifest:
    return replace(manifest(), version=Version(generation, number))


def test_newest_is_the_greatest_version_and_none_without_any(bucket: FolderBucket) -> None:
    objects = LogObjects(bucket, PLACE)
    assert objects.newest() is None
    for one in (versioned(1, 0), versioned(2, 3), versioned(1, 99), versioned(2, 10)):
        objects.commit(one)
    assert objects.newest() == versioned(2, 10)
    assert list(objects.versions(after=Version(1, 99))) == [Version(2, 3), Version(2, 10)]


def test_commit_again_is_fine_and_of_another_is_refused(bucket: FolderBucket) -> None:
    objects = LogObjects(bucket, PLACE)
    objects.commit(versioned(1, 0))
    objects.commit(versioned(1, 0))
    with pytest.raises(PrefixInUse, match="written by another store"):
        objects.commit(replace(versioned(1, 0), written_us=99))
    assert objects.newest() == versioned(1, 0)


def test_newest_looks_again_when_the_manifest_was_deleted_in_between(bucket: FolderBucket) -> None:
    class Moving(FolderBucket):
        def read(self, name: str) -> bytes:
            if name == PLACE.manifest(Version(1, 0)):
                LogObjects(bucket, PLACE).commit(versioned(1, 1))
                raise ObjectMissing(name)
            return super().read(name)

    LogObjects(bucket, PLACE).commit(versioned(1, 0))
    assert LogObjects(Moving(bucket._root), PLACE).newest() == versioned(1, 1)


def test_a_damaged_newest_manifest_is_an_error_not_an_older_state(bucket: FolderBucket) -> None:
    objects = LogObjects(bucket, PLACE)
    objects.commit(versioned(1, 0))
    bucket.create(PLACE.manifest(Version(1, 1)), b"torn")
    with pytest.raises(DamagedObject):
        objects.newest()


def test_shortened_moves_the_oldest_segments_to_a_chapter(bucket: FolderBucket) -> None:
    objects = LogObjects(bucket, PLACE)
    count = SEGMENTS_MOST + 1
    many = tuple(segment(10 * number, 10 * number + 10) for number in range(count))
    whole = Manifest(PLACE, Version(2, 1), created_us=1, written_us=1, start=0, end=10 * count, segments=many)
    short = objects.shortened(whole, 2)
    assert objects.shortened(short, 2) == short
    assert len(short.segments) == count - CHAPTER_SEGMENTS
    assert (short.segment_count, short.size_bytes) == (whole.segment_count, whole.size_bytes)
    objects.commit(short)
    reader = LogObjects(bucket, PLACE)
    found = reader.newest()
    assert found == short
    assert tuple(reader.segments(found)) == many
    assert [one.base for one in reader.segments(found.starting_at(55))][:2] == [50, 60]


def test_a_chapter_that_is_not_what_was_uploaded_is_refused(bucket: FolderBucket) -> None:
    objects = LogObjects(bucket, PLACE)
    (chapter,) = manifest().chapters
    bucket.write(objects.name_of(chapter.object), [b"x" * chapter.object.size_bytes])
    with pytest.raises(DamagedObject):
        objects.segments(manifest())


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 20])
def test_pieces_are_those_that_were_uploaded(
    bucket: FolderBucket, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 8)
    objects, data = LogObjects(bucket, PLACE), bytes(range(size))
    one = StoredObject.of("segments/x", data, None)
    bucket.write(objects.name_of(one), [data])
    assert b"".join(objects.pieces(one)) == objects.read(one) == data
    for other in {data[:-1], data[:-1] + b"X", data + b"X"} - {data}:
        bucket.write(objects.name_of(one), [other])
        with pytest.raises(DamagedObject, match="segments/x"):
            objects.read(one)
    bucket.delete([objects.name_of(one)])
    with pytest.raises(ObjectMissing):
        objects.read(one)
