"""A bucket and the store that uploads to it, read as one: each offset once, while segments move between them."""

from pathlib import Path

import pytest

import timestone
from tests.support.buckets import upload_store
from tests.tiering.conftest import append
from timestone import HistoryUnavailable
from timestone.errors import NotAStore
from timestone.log import Log
from timestone.store import Store
from timestone_tiering import TailedView
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import TieringError


def move(store: Store, log: Log, bucket: FolderBucket) -> None:
    """Upload what is sealed, and delete it from the disk."""
    log.configure(local_retention_bytes=1)
    upload_store(store, bucket)
    log.apply_retention()


def test_offsets_come_once_from_the_bucket_or_the_disk(store: Store, log: Log, bucket: FolderBucket) -> None:
    move(store, log, bucket)
    assert (log.start_offset, log.local_start_offset) == (0, 30)
    with timestone.view(bucket.url, tail=store.path) as view:
        assert isinstance(view, TailedView)
        seen = view.log("telemetry")
        reader = seen.reader("earliest")
        for _ in range(3):
            offsets = [one.offset for one in reader]
            assert offsets == list(range(offsets[0], log.end_offset))
            assert (seen.start_offset, seen.local_start_offset) == (0, log.local_start_offset)
            append(log, 25)
            move(store, log, bucket)
            view.log("telemetry")  # refreshes it
        assert [one.offset for one in seen.reader("earliest")] == list(range(log.end_offset))
        assert view.fetch_status().fetched_segments > 3
        assert view.location == f"{bucket.url} and {store.path}"


def test_a_log_that_the_bucket_does_not_have_yet_is_read_on_the_disk(
    store: Store, uploaded: FolderBucket
) -> None:
    append(store.log("new"), 3)
    with timestone.view(uploaded.url, tail=store.path) as view:
        assert view.log_names() == [("new", 0), ("telemetry", 0)]
        assert len(list(view.log("new").reader("earliest"))) == 3


def test_a_bucket_that_lost_a_segment_fails_only_what_is_below_the_disk(
    store: Store, log: Log, bucket: FolderBucket
) -> None:
    move(store, log, bucket)
    with timestone.view(bucket.url, tail=store.path) as view:
        for path in Path(bucket.url.removeprefix("file://")).rglob("*.segment"):
            path.unlink()
        with pytest.raises(HistoryUnavailable, match="offsets 0 to 9"):
            view.log("telemetry").read(0)
        assert view.log("telemetry").read(30)[0].payload == b"record 30"


def test_a_tail_that_is_another_store_is_refused(
    store: Store, uploaded: FolderBucket, tmp_path: Path
) -> None:
    with timestone.open(tmp_path / "other") as other:
        append(other.log("telemetry"), 1)
    with pytest.raises(TieringError, match="got one that uploads to no bucket"):
        timestone.view(uploaded.url, tail=tmp_path / "other")
    with pytest.raises(NotAStore):
        timestone.view(uploaded.url, tail=tmp_path / "nothing")
    with pytest.raises(ValueError, match="expected the URL of a bucket"):
        timestone.view(store.path, tail=store.path)
