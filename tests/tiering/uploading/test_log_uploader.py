"""The history of one log in a bucket, extended segment by segment, whichever call fails."""

import shutil
import time
from pathlib import Path

import pytest

import timestone
from tests.support.buckets import FaultyBucket, Killed, checked_manifest
from tests.tiering.conftest import SEGMENT_RECORDS, append, upload_all, uploader_of
from timestone import Compression, LogConfig
from timestone.log import Log
from timestone.store import Store
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import BucketUnavailable, HistoryDiverged, PrefixInUse
from timestone_tiering.objects.layout import LogPlace
from timestone_tiering.objects.manifest import Manifest
from timestone_tiering.uploading.ownership import Ownership


def manifest_of(log: Log, bucket: Bucket) -> Manifest | None:
    return checked_manifest(bucket, LogPlace(log.id, log.name, log.partition))


def test_sealed_segments_are_uploaded_oldest_first(store: Store, log: Log, bucket: FolderBucket) -> None:
    uploader = uploader_of(store, log, bucket)
    assert manifest_of(log, bucket) is None
    assert uploader.backlog().segment_count == 3
    for number in range(1, 4):
        assert uploader.step() == 0.0
        manifest = manifest_of(log, bucket)
        assert manifest is not None and manifest == uploader.manifest
        assert (manifest.start, manifest.end) == (0, number * SEGMENT_RECORDS)
        assert manifest.topic_count == number
    assert uploader.step() is None
    assert uploader.backlog() == (0, 0)
    append(log, SEGMENT_RECORDS)
    assert uploader.step() == 0.0


def test_the_next_process_continues_where_the_newest_manifest_ends(
    store: Store, log: Log, bucket: FolderBucket
) -> None:
    uploader_of(store, log, bucket).step()
    second = uploader_of(store, log, bucket)
    upload_all(second)
    manifest = manifest_of(log, bucket)
    assert manifest is not None and manifest.end == 3 * SEGMENT_RECORDS
    assert (manifest.version.generation, manifest.version.number) == (2, 1)
    assert [one.segment.name.split("-")[2] for one in manifest.segments] == ["0000000001"] + [
        "0000000002"
    ] * 2


@pytest.mark.slow
@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [Killed, BucketUnavailable])
def test_upload_is_resumed_whichever_call_it_ended_at(
    store: Store, log: Log, tmp_path: Path, error: type[BaseException], carried_out: bool
) -> None:
    """At each call: the manifest is readable and all that it names is there; the next try uploads the rest once."""
    number = 0
    while True:
        folder = FolderBucket(tmp_path / f"bucket-{number}")
        faulty = FaultyBucket(folder)
        uploader = uploader_of(store, log, faulty)
        faulty.calls.clear()
        faulty.fail_at, faulty.carried_out, faulty.error = number, carried_out, error
        try:
            upload_all(uploader)
        except (Killed, BucketUnavailable):
            found = manifest_of(log, folder)
            assert found is None or found.end % SEGMENT_RECORDS == 0
            if error is Killed:
                uploader = uploader_of(store, log, folder)
            upload_all(uploader)
        else:
            assert number > 10
            break
        manifest = manifest_of(log, folder)
        assert manifest is not None and (manifest.start, manifest.end) == (0, 3 * SEGMENT_RECORDS)
        assert [one.base for one in manifest.segments] == [0, 10, 20]
        number += 1


def test_upload_stops_when_another_store_has_taken_over(store: Store, log: Log, bucket: FolderBucket) -> None:
    first = uploader_of(store, log, bucket)
    first.step()
    second = uploader_of(store, log, bucket)
    with pytest.raises(PrefixInUse, match="taken over"):
        first.step()
    upload_all(second)
    manifest = manifest_of(log, bucket)
    assert manifest is not None and manifest.end == 3 * SEGMENT_RECORDS


@pytest.fixture
def older_copy(tmp_path: Path, bucket: FolderBucket) -> Path:
    """A copy of a store that was made before the store appended and uploaded three segments."""
    path, copy = tmp_path / "original", tmp_path / "copy"
    config = LogConfig(segment_entries=SEGMENT_RECORDS)
    with timestone.open(path, log=config) as store:
        store.log("telemetry").append(b"the first")
    shutil.copytree(path, copy)
    with timestone.open(path) as store:
        log = store.log("telemetry")
        append(log, 3 * SEGMENT_RECORDS)
        upload_all(uploader_of(store, log, bucket))
    return copy


@pytest.mark.parametrize(
    ("appended", "says"),
    [(5, "ends at offset 6, its history in the bucket at"), (40, "records from offset 1 on")],
)
def test_a_log_that_its_history_contradicts_is_refused(
    older_copy: Path, bucket: FolderBucket, appended: int, says: str
) -> None:
    with timestone.open(older_copy) as store:
        log = store.log("telemetry")
        append(log, appended)
        Ownership(bucket, store.documents, store.now_us).adopt()
        uploader = uploader_of(store, log, bucket)
        before = manifest_of(log, bucket)
        with pytest.raises(HistoryDiverged, match=says):
            uploader.step()
        assert manifest_of(log, bucket) == before


def test_compacted_logs_are_not_uploaded(store: Store, bucket: FolderBucket) -> None:
    log = store.log("state", config=LogConfig(compact=True, segment_entries=SEGMENT_RECORDS))
    append(log, 3 * SEGMENT_RECORDS)
    uploader = uploader_of(store, log, bucket)
    assert not uploader.is_tiered
    assert uploader.step() is None
    assert manifest_of(log, bucket) is None


def test_a_segment_waits_until_it_is_compressed(store: Store, bucket: FolderBucket) -> None:
    log = store.log(
        "packed",
        config=LogConfig(
            compression=Compression.ZSTD, compression_dictionary=True, segment_entries=SEGMENT_RECORDS
        ),
    )
    log.compression.close()  # the background would be too quick for this test
    append(log, SEGMENT_RECORDS + 1)
    uploader = uploader_of(store, log, bucket)
    wait_s = uploader.step()
    assert wait_s is not None and 0 < wait_s <= 1
    assert manifest_of(log, bucket) is None
    log.configure(compression="none")
    assert uploader.step() == 0.0


def test_what_a_recovery_found_lost_is_in_the_manifest(tmp_path: Path, bucket: FolderBucket) -> None:
    path = tmp_path / "data"
    config = LogConfig(segment_entries=SEGMENT_RECORDS)
    with timestone.open(path, ack="written", log=config) as store:
        append(store.log("telemetry"), 3 * SEGMENT_RECORDS + 1)
        store.log("telemetry").roll()
    (path / "telemetry-0" / f"{SEGMENT_RECORDS:020d}.index").write_bytes(b"")
    with timestone.open(path) as store:
        log = store.log("telemetry")
        upload_all(uploader_of(store, log, bucket))
        manifest = manifest_of(log, bucket)
    assert manifest is not None
    assert [one.base for one in manifest.segments] == [0, 20, 30]
    assert manifest.missing == ((10, 20),)


def test_what_nothing_names_is_deleted_after_the_delay(store: Store, log: Log, bucket: FolderBucket) -> None:
    uploader = uploader_of(store, log, bucket)
    upload_all(uploader)
    bucket.write(f"{uploader.objects.place.prefix}segments/left", [b"by a killed upload"])
    uploader.expire(20)
    assert uploader.step() == 0.0
    count = len(list(bucket.objects(uploader.objects.place.prefix)))
    assert uploader.collect(3600 * 1_000_000) == 0
    time.sleep(0.01)  # later than what was made above
    deleted = uploader.collect(0)
    # Two segments with an index each, the topics of none, three older manifests, and what nothing ever named.
    assert deleted == 2 * 2 + 3 + 1
    assert len(list(bucket.objects(uploader.objects.place.prefix))) == count - deleted
    manifest = manifest_of(log, bucket)
    assert manifest is not None and (manifest.start, manifest.end) == (20, 30)
    assert uploader.collect(0) == 0
