"""Uploading one segment: its files as they are."""

from pathlib import Path

import pytest

from tests.support.waiting import wait_for_seals
from tests.tiering.conftest import SEGMENT_RECORDS
from timestone import Compression, LogConfig
from timestone.log import Log
from timestone.segment import Segment
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.objects.layout import LogPlace
from timestone_tiering.objects.manifests import LogObjects
from timestone_tiering.uploading.upload import (
    SegmentChanged,
    SegmentFiles,
    topics_needed,
    upload_dictionary,
    upload_segment,
    upload_topics,
)


def objects_of(log: Log, bucket: FolderBucket) -> LogObjects:
    return LogObjects(bucket, LogPlace(log.id, log.name, log.partition))


def nothing(size_bytes: int) -> None:
    """No pace."""


def first_segment(log: Log) -> Segment:
    return log.segment_list.segments[0]


def test_segment_and_index_are_uploaded_as_they_lie(store: Store, log: Log, bucket: FolderBucket) -> None:
    objects, segment = objects_of(log, bucket), first_segment(log)
    paced: list[int] = []
    source = SegmentFiles(store.files, segment)
    stored = upload_segment(objects, 4, source, paced.append)
    source.close()
    assert objects.read(stored.segment) == segment.segment_path.read_bytes()
    assert objects.read(stored.index) == segment.index_path.read_bytes()
    assert (stored.base, stored.end, stored.epoch) == (0, SEGMENT_RECORDS, log.epoch)
    assert "-0000000004-" in stored.segment.name
    assert sum(paced) == stored.size_bytes


def test_files_that_were_rewritten_or_deleted_are_refused(store: Store, log: Log) -> None:
    segment = first_segment(log)
    log.configure(compression="zstd")
    assert log.apply_compression() == 3
    with pytest.raises(SegmentChanged):
        SegmentFiles(store.files, segment)
    compressed = first_segment(log)
    SegmentFiles(store.files, compressed).close()
    compressed.index_path.unlink()
    with pytest.raises(SegmentChanged):
        SegmentFiles(store.files, compressed)


def test_open_files_are_uploaded_whole_when_their_names_go(
    store: Store, log: Log, bucket: FolderBucket
) -> None:
    segment = first_segment(log)
    expected = segment.segment_path.read_bytes()
    source = SegmentFiles(store.files, segment)
    log.configure(retention_bytes=1)
    assert log.apply_retention() == 3
    stored = upload_segment(objects_of(log, bucket), 1, source, nothing)
    source.close()
    assert objects_of(log, bucket).read(stored.segment) == expected


def test_topics_are_uploaded_as_the_dictionary_has_them(log: Log, bucket: FolderBucket) -> None:
    objects = objects_of(log, bucket)
    both = [upload_topics(objects, 1, log.topics, first, end) for first, end in ((0, 1), (1, 3))]
    data = b"".join(objects.read(one.object) for one in both)
    on_disk = (log.folder / "topics").read_bytes()[512:]
    assert on_disk.startswith(data) and len(data) > 0


def test_topics_needed_covers_each_id_of_the_segment(store: Store) -> None:
    log = store.log("plain")
    log.append_many([b"x"] * SEGMENT_RECORDS)
    log.append_many([b"x"] * SEGMENT_RECORDS, topics=[f"t/{n}" for n in range(SEGMENT_RECORDS)])
    log.append(b"x")
    wait_for_seals(log)
    assert [topics_needed(one) for one in log.segment_list.sealed()] == [0, SEGMENT_RECORDS]
    damaged = log.segment_list.sealed()[1]
    size = damaged.index_path.stat().st_size
    with damaged.index_path.open("r+b") as file:
        file.seek(size - 130)  # in the summary, in front of the trailer
        file.write(b"\xff\xff")
    assert topics_needed(damaged) == SEGMENT_RECORDS


def test_dictionaries_are_uploaded_by_number(tmp_path: Path, store: Store, bucket: FolderBucket) -> None:
    log = store.log("compressed", config=LogConfig(compression=Compression.ZSTD, segment_entries=10))
    (log.folder / "3.dictionary").write_bytes(b"a dictionary")
    objects = objects_of(log, bucket)
    stored = upload_dictionary(objects, 1, store.files, log.folder, 3)
    assert stored.number == 3
    assert objects.read(stored.object) == b"a dictionary"
