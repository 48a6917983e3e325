"""Reads of a segment that only the bucket has."""

import os
from pathlib import Path

import pytest

from tests.support.buckets import FaultyBucket
from tests.support.waiting import wait_for_seals
from tests.tiering.conftest import SEGMENT_RECORDS, upload_all, uploader_of
from timestone import Compression, HistoryUnavailable, LogConfig
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.segment_list import SegmentList
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import BucketUnavailable
from timestone_tiering.objects.manifest import Manifest
from timestone_tiering.objects.manifests import LogObjects
from timestone_tiering.reading.fetched_segments import FetchedSegments, dictionary_of
from timestone_tiering.reading.remote_segment import RemoteSegment

UNLIMITED = 1 << 40


def cache_of(tmp_path: Path, limit_bytes: int = UNLIMITED) -> FetchedSegments:
    return FetchedSegments(tmp_path / "cache", limit_bytes)


def remote(
    cache: FetchedSegments, objects: LogObjects, manifest: Manifest, store: Store
) -> list[RemoteSegment]:
    return [
        RemoteSegment(cache, objects, one, dictionary_of(manifest, one), store.files, SegmentCache(1))
        for one in manifest.segments
    ]


def payloads(segment: RemoteSegment) -> list[bytes]:
    run = segment.read(0, max_records=SEGMENT_RECORDS, max_bytes=1 << 20)
    starts = (run.entries["position"] - run.position).tolist()
    lengths = run.entries["length"].tolist()
    return [run.data[start : start + length] for start, length in zip(starts, lengths, strict=True)]


def test_a_segment_is_read_from_the_bucket_as_from_the_disk(
    stored: Manifest, faulty: FaultyBucket, store: Store, tmp_path: Path
) -> None:
    cache = cache_of(tmp_path)
    segments = remote(cache, LogObjects(faulty, stored.place), stored, store)
    assert faulty.calls == []
    assert [payloads(one) for one in segments] == [
        [b"record %d" % offset for offset in range(first, first + 10)] for first in (0, 10, 20)
    ]
    assert len(faulty.calls) == 6  # records and index of each
    faulty.fail_at, faulty.stays_away = len(faulty.calls), True
    for one in segments:
        one.release()
        assert len(payloads(one)) == SEGMENT_RECORDS
    status = cache.status()
    assert (status.fetched_segments, status.cached_segments, status.hits) == (3, 3, 3)
    assert status.fetched_bytes == status.cached_bytes == stored.size_bytes


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_compressed_segment_is_read_from_the_bucket(
    store: Store, bucket: FolderBucket, tmp_path: Path, dictionary: bool
) -> None:
    config = LogConfig(segment_entries=2000, compression=Compression.ZSTD, compression_dictionary=dictionary)
    log = store.log("telemetry", config=config)
    texts = [b'{"device":"d%d","temperature":%d}' % (n % 50, n % 7) for n in range(6001)]
    for first in range(0, 6001, 2000):
        log.append_many(texts[first : first + 2000], topic="t")
    wait_for_seals(log)
    log.apply_compression()
    uploader = uploader_of(store, log, bucket)
    upload_all(uploader)
    manifest = uploader.manifest
    assert manifest is not None and manifest.segments[-1].trailer.frames is not None
    assert bool(manifest.dictionaries) == dictionary
    cache = cache_of(tmp_path)
    segment_list = SegmentList(remote(cache, LogObjects(bucket, manifest.place), manifest, store))
    found = segment_list.read(4000, 6000, max_records=2000, max_bytes=1 << 30)
    assert found is not None
    assert found[1].data == b"".join(texts[4000:6000])


def test_an_open_segment_is_read_on_after_its_files_were_evicted(
    stored: Manifest, bucket: FolderBucket, store: Store, tmp_path: Path
) -> None:
    segment = remote(cache_of(tmp_path, 0), LogObjects(bucket, stored.place), stored, store)[0]
    assert segment.read(0, max_records=1, max_bytes=1).data == b"record 0"
    assert os.listdir(tmp_path / "cache") == []
    assert segment.read(9, max_records=1, max_bytes=1).data == b"record 9"


def test_a_bucket_that_is_away_is_an_error_with_the_offsets_and_the_next_read_tries_again(
    stored: Manifest, faulty: FaultyBucket, store: Store, tmp_path: Path
) -> None:
    segment = remote(cache_of(tmp_path), LogObjects(faulty, stored.place), stored, store)[1]
    faulty.fail_at, faulty.error = 0, BucketUnavailable
    with pytest.raises(HistoryUnavailable, match="offsets 10 to 19 are in a bucket") as caught:
        segment.read(0, max_records=1, max_bytes=1)
    assert (caught.value.first, caught.value.end) == (10, 20)
    assert segment.read(0, max_records=1, max_bytes=1).data == b"record 10"


def test_the_topics_of_a_segment_are_found_without_fetching_it(
    stored: Manifest, faulty: FaultyBucket, store: Store, tmp_path: Path
) -> None:
    cache = cache_of(tmp_path)
    segment = remote(cache, LogObjects(faulty, stored.place), stored, store)[2]
    summary = segment.topic_summary()
    assert summary is not None and summary["topic"].tolist() == [2]
    assert cache.status().fetched_segments == 0
    assert len(faulty.calls) == 1
    payloads(segment)
    again = remote(cache, LogObjects(faulty, stored.place), stored, store)[2]
    calls = len(faulty.calls)
    assert again.topic_summary() is not None
    assert len(faulty.calls) == calls
