"""The report on a bucket, beside that on the store that has uploaded it."""

from pathlib import Path

import pytest

from tests.support.buckets import upload_store
from tests.tiering.conftest import append, damage, only_history
from timestone.errors import UnknownLog
from timestone.log import Log
from timestone.repair.inspection import inspect_store
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import NoHistory
from timestone_tiering.operations.inspection import inspect_bucket
from timestone_tiering.reading.local_view import noted_bucket


def test_a_bucket_has_the_segments_of_its_store(store: Store, log: Log, uploaded: FolderBucket) -> None:
    (local,) = inspect_store(store.path).logs
    report = inspect_bucket(uploaded, deep=True)
    (found,) = report.logs
    assert (report.exit_code, report.path) == (0, uploaded.url) and "generation 1" in report.owner
    assert (found.start_offset, found.end_offset, found.records, found.topics) == (0, 30, 30, 3)
    assert [one for one in found.segments if one.checkpoint] == list(found.segments)
    assert [
        (one.base_offset, one.next_offset, one.bytes, one.index_bytes, one.topics) for one in found.segments
    ] == [
        (one.base_offset, one.next_offset, one.bytes, one.index_bytes, one.topics)
        for one in local.segments[:3]
    ]
    assert inspect_bucket(uploaded, log="telemetry-0").logs == report.logs


def test_damage_is_found_where_it_is(uploaded: FolderBucket) -> None:
    history = only_history(uploaded)
    damage(uploaded, history.manifest.segments[1].segment, history, 0)
    assert inspect_bucket(uploaded).exit_code == 0, "only manifests are read"
    report = inspect_bucket(uploaded, deep=True)
    assert report.exit_code == 3
    assert [one.state for one in report.logs[0].segments] == ["sealed", "damaged", "sealed"]
    assert report.logs[0].segments[1].damaged_offsets == (10,)


def test_a_manifest_that_cannot_be_read_leaves_the_other_logs(
    store: Store, log: Log, bucket: FolderBucket
) -> None:
    append(store.log("other"), 11)
    upload_store(store, bucket)
    bucket.write(f"{log.id:016x}/telemetry-0/manifest/0000000009-0000000000.json.zst", [b"damaged"])
    report = inspect_bucket(bucket)
    assert report.exit_code == 4
    assert [(one.log, bool(one.error), one.records) for one in report.logs] == [
        ("other", False, 10),
        ("telemetry", True, 0),
    ]


def test_what_is_not_there_is_said(bucket: FolderBucket, uploaded: FolderBucket, tmp_path: Path) -> None:
    with pytest.raises(UnknownLog, match="telemetry-0"):
        inspect_bucket(uploaded, log="other")
    with pytest.raises(NoHistory):
        inspect_bucket(FolderBucket(tmp_path / "empty"))


def test_a_store_counts_what_only_its_bucket_has_as_there(
    store: Store, log: Log, uploaded: FolderBucket
) -> None:
    """A named reader below the local start has missed nothing."""
    store.log("telemetry").reader(name="late").commit(5)
    before = inspect_store(store.path, bucket=noted_bucket(store.path, store.files))
    assert (before.logs[0].local_start_offset, before.readers[0].missed) == (None, 0)
    log.configure(local_retention_bytes=1)
    upload_store(store, uploaded)
    log.apply_retention()
    assert (log.start_offset, log.local_start_offset) == (0, 30)
    (reader,) = inspect_store(store.path).readers
    assert reader.missed == 25, "by the disk alone"
    report = inspect_store(store.path, bucket=noted_bucket(store.path, store.files))
    assert (report.logs[0].start_offset, report.logs[0].local_start_offset) == (0, 30)
    assert (report.readers[0].missed, report.readers[0].lag) == (0, 26)
