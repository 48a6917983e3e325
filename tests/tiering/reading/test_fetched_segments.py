"""Segments of a bucket in a local folder: fetched once, checked, evicted by their bytes."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.buckets import FaultyBucket, HangingBucket, Killed
from tests.support.waiting import wait_for
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import BucketUnavailable, DamagedObject
from timestone_tiering.objects.manifest import Manifest, StoredSegment
from timestone_tiering.objects.manifests import LogObjects
from timestone_tiering.reading.fetched_segments import FetchedSegments
from timestone_tiering.reading.shared_segments import SharedSegments

UNLIMITED = 1 << 40


def cache_of(tmp_path: Path, limit_bytes: int = UNLIMITED) -> FetchedSegments:
    return FetchedSegments(tmp_path / "cache", limit_bytes)


def test_callers_at_the_same_time_fetch_a_segment_once(
    stored: Manifest, faulty: FaultyBucket, tmp_path: Path
) -> None:
    cache, objects = cache_of(tmp_path), LogObjects(faulty, stored.place)
    barrier = threading.Barrier(8)

    def use(_: int) -> list[str]:
        barrier.wait()
        with cache.use(objects, stored.segments[0]) as folder:
            return sorted(os.listdir(folder))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(use, range(8)))
    assert found == [[f"{0:020d}.index", f"{0:020d}.segment"]] * 8
    assert len(faulty.calls) == 2


def test_the_least_recently_used_segment_is_evicted_when_the_folder_is_full(
    stored: Manifest, bucket: FolderBucket, tmp_path: Path
) -> None:
    one, two, three = stored.segments
    cache = cache_of(tmp_path, one.size_bytes + two.size_bytes + 100)
    objects = LogObjects(bucket, stored.place)
    for segment in (one, two, one, three):
        with cache.use(objects, segment):
            pass
    assert [cache.holds(objects, segment) for segment in stored.segments] == [True, False, True]
    assert len(os.listdir(tmp_path / "cache")) == 2
    assert cache.status().cached_bytes == one.size_bytes + three.size_bytes


def test_segments_in_use_stay_although_they_are_larger_than_the_limit(
    stored: Manifest, bucket: FolderBucket, tmp_path: Path
) -> None:
    cache, objects = cache_of(tmp_path, 1), LogObjects(bucket, stored.place)
    one, two, _ = stored.segments
    with cache.use(objects, one) as first, cache.use(objects, two) as second:
        assert len(os.listdir(first)) == len(os.listdir(second)) == 2
    assert os.listdir(tmp_path / "cache") == []


@pytest.mark.parametrize("call", range(2))
def test_a_killed_fetch_leaves_nothing_that_counts(
    stored: Manifest, faulty: FaultyBucket, tmp_path: Path, call: int
) -> None:
    cache, objects = cache_of(tmp_path), LogObjects(faulty, stored.place)
    faulty.fail_at, faulty.error = call, Killed
    with pytest.raises(Killed), cache.use(objects, stored.segments[0]):
        pass
    # A process that is really killed removes nothing.
    left = cache.folder_of(objects, stored.segments[0]).with_suffix(".0123abcd.tmp")
    left.mkdir()
    (left / f"{0:020d}.segment").write_bytes(b"half")
    again = cache_of(tmp_path)
    assert os.listdir(tmp_path / "cache") == []
    with again.use(objects, stored.segments[0]) as folder:
        assert len(os.listdir(folder)) == 2


def test_what_an_earlier_process_has_fetched_is_used_after_a_check(
    stored: Manifest, faulty: FaultyBucket, tmp_path: Path
) -> None:
    objects = LogObjects(faulty, stored.place)
    with cache_of(tmp_path).use(objects, stored.segments[0]):
        pass
    with cache_of(tmp_path).use(objects, stored.segments[0]) as folder:
        assert len(faulty.calls) == 2
    index = folder / f"{0:020d}.index"
    damaged = bytearray(index.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    index.write_bytes(damaged)
    with cache_of(tmp_path).use(objects, stored.segments[0]):
        assert len(faulty.calls) == 4
        assert index.read_bytes() != damaged
    index.unlink()
    with cache_of(tmp_path).use(objects, stored.segments[0]):
        assert index.exists()


@pytest.mark.parametrize("kind", [FetchedSegments, SharedSegments])
def test_what_is_not_a_segment_is_reported_and_left_alone(
    stored: Manifest, bucket: FolderBucket, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    kind: type[FetchedSegments],
) -> None:  # fmt: skip
    objects, place = LogObjects(bucket, stored.place), tmp_path / "cache"
    segments = place if kind is FetchedSegments else place / "segments"
    for name in ("photos", "photos.tmp"):
        (segments / name).mkdir(parents=True)
        (segments / name / "holiday").write_bytes(bytes(1000))
    (segments / ".DS_Store").write_bytes(b"a file")
    (segments / "dangling").symlink_to("nowhere")
    kind(place, UNLIMITED).folder_of(objects, stored.segments[0]).write_bytes(
        b"a file in the place of a segment"
    )
    cache = kind(place, 1)
    for segment in stored.segments:
        with cache.use(objects, segment) as folder:
            assert len(os.listdir(folder)) == 2
    assert {".DS_Store", "dangling", "photos", "photos.tmp"} <= set(os.listdir(segments))
    assert os.listdir(segments / "photos") == os.listdir(segments / "photos.tmp") == ["holiday"]
    if kind is FetchedSegments:  # the other kind lists the folder before each fetch
        for name in (".DS_Store", "dangling", "photos", "photos.tmp"):
            assert f"{segments / name}: ignored: it is not a segment of the bucket" in caplog.messages


@pytest.mark.parametrize("change", ["truncated", "another byte", "longer"])
def test_an_object_with_other_bytes_is_refused_and_not_kept(
    stored: Manifest, bucket: FolderBucket, tmp_path: Path, change: str
) -> None:
    name = tmp_path / "bucket" / (stored.place.prefix + stored.segments[1].segment.name)
    data = name.read_bytes()
    name.write_bytes({"truncated": data[:-1], "another byte": b"X" + data[1:], "longer": data + b"X"}[change])
    cache, objects = cache_of(tmp_path), LogObjects(bucket, stored.place)
    with (
        pytest.raises(DamagedObject, match=r"segment: (expected \d+ bytes, got|its bytes are not those)"),
        cache.use(objects, stored.segments[1]),
    ):
        pass
    assert os.listdir(tmp_path / "cache") == []
    assert cache.status().cached_segments == 0


def test_one_caller_waits_for_a_bucket_that_does_not_answer_and_the_others_go_on(
    stored: Manifest, bucket: FolderBucket, tmp_path: Path
) -> None:
    hanging = HangingBucket(bucket)
    cache, objects = cache_of(tmp_path), LogObjects(hanging, stored.place)
    one, two, three = stored.segments
    with cache.use(objects, three):
        pass
    hanging.hang()
    hanging.outcome = BucketUnavailable("away")

    def use(segment: StoredSegment) -> str:
        try:
            with cache.use(objects, segment):
                return "read"
        except BucketUnavailable as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(use, one)
        wait_for(lambda: hanging.waiting == 1)
        hanging.release()
        assert first.result() == "away"
        hanging.hang()
        asking = pool.submit(use, one)
        wait_for(lambda: hanging.waiting == 1)
        assert [use(two), use(one), use(three)] == ["away", "away", "read"]
        hanging.outcome = None
        hanging.release()
        assert asking.result() == "read"
    assert use(two) == "read"


def test_a_fetch_that_leaves_too_little_space_is_refused(
    stored: Manifest, bucket: FolderBucket, tmp_path: Path
) -> None:
    cache = FetchedSegments(tmp_path / "cache", UNLIMITED, min_free_bytes=1 << 60)
    with (
        pytest.raises(OSError, match="No space left"),
        cache.use(LogObjects(bucket, stored.place), stored.segments[0]),
    ):
        pass
