"""A bucket read like a store, and no more fetched than is read."""

import secrets
from pathlib import Path

import pytest

import timestone
from tests.support.buckets import FaultyBucket, upload_store
from tests.support.s3_server import BUCKET, S3Server
from tests.tiering.conftest import append
from timestone import Record, StoreView
from timestone.errors import ReadOnlyStore, StoreClosed, UnknownLog
from timestone.log import Log
from timestone.store import Store
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import TieringError
from timestone_tiering.view import BucketView, view_bucket


def all_records(view: StoreView, **chosen: object) -> list[Record]:
    return [one for one in view.log("telemetry").reader("earliest", **chosen)]  # type: ignore[arg-type]


def fetched(bucket: FaultyBucket) -> list[str]:
    """The objects of segments that were read, by their base offsets."""
    calls = dict.fromkeys(one for one in bucket.calls if "/segments/" in one)
    return [f"{int(one.split('/')[-1][:20])}{Path(one).suffix}" for one in calls]


@pytest.fixture
def counted(uploaded: FolderBucket) -> FaultyBucket:
    return FaultyBucket(uploaded)


def test_a_view_has_the_records_of_the_store(log: Log, uploaded: FolderBucket) -> None:
    with timestone.view(uploaded.url) as view:
        assert view.log_names() == [("telemetry", 0)]
        found = view.log("telemetry")
        assert (found.start_offset, found.end_offset, found.synced_offset, len(found)) == (0, 30, 30, 30)
        assert found.id == log.id
        assert all_records(view) == list(log.reader("earliest").read(max_records=30))
        assert found.record(17) == log.record(17)


def test_opening_a_log_fetches_no_segment(counted: FaultyBucket) -> None:
    with BucketView(counted) as view:
        log = view.log("telemetry")
        assert log.segment_bounds() == [(0, 10), (10, 20), (20, 30)]
        assert fetched(counted) == []


def test_a_read_fetches_the_segments_of_its_offsets_once(counted: FaultyBucket) -> None:
    with BucketView(counted) as view:
        log = view.log("telemetry")
        for _ in range(3):
            assert [one.offset for one in log.read(12, max_records=5)] == [12, 13, 14, 15, 16]
        assert fetched(counted) == ["10.segment", "10.index"]
        status = view.fetch_status()
        assert status.fetched_segments == 1


def test_a_topic_filter_fetches_only_segments_that_have_the_topic(counted: FaultyBucket) -> None:
    with BucketView(counted) as view:
        found = all_records(view, topics="devices/10")
        assert [one.offset for one in found] == list(range(10, 20))
        assert {one for one in fetched(counted) if one.endswith(".segment")} == {"10.segment"}
        assert view.log("telemetry").segments_with(["devices/20"], 0, 30) == [(20, 30)]


def test_a_time_fetches_at_most_the_segment_that_it_is_in(log: Log, counted: FaultyBucket) -> None:
    times = [one.timestamp_us for one in log.reader("earliest").read(max_records=30)]
    expected = [log.offset_at(time) for time in times]
    with BucketView(counted) as view:
        remote = view.log("telemetry")
        assert remote.offset_at(times[20]) == expected[20]
        assert remote.offset_at(0) == 0
        assert remote.offset_at(times[29] + 1) == 30
        assert fetched(counted) == []
        assert [remote.offset_at(time) for time in times] == expected


def test_refresh_sees_a_newer_manifest_and_its_topics(store: Store, log: Log, uploaded: FolderBucket) -> None:
    with timestone.view(uploaded.url) as view:
        remote = view.log("telemetry")
        reader = remote.reader("earliest")
        assert len(list(reader.read())) == 30
        append(log, 20)
        upload_store(store, uploaded)
        assert list(reader.read()) == []
        assert remote.refresh() == 41
        assert [one.topic for one in reader.read()] == [one.topic for one in log.read(30, max_records=11)]
        assert view.log("telemetry") is remote


def test_a_log_as_of_a_state_stays_what_it_was(store: Store, log: Log, uploaded: FolderBucket) -> None:
    with timestone.view(uploaded.url) as view:
        state = view.log("telemetry").state
    append(log, 20)
    upload_store(store, uploaded)
    counted = FaultyBucket(uploaded)
    with BucketView(counted) as view:
        before = view.log_as_of("telemetry", 0, state)
        assert before.end_offset == 30
        assert not any(call.startswith("list") for call in counted.calls)
    assert state is not None
    uploaded.delete([one.name for one in uploaded.objects("") if one.name.endswith(f"{state[17:]}.json.zst")])
    with timestone.view(uploaded.url) as view:
        assert view.log_as_of("telemetry", 0, state).end_offset == 41


def test_a_bucket_has_no_readers(uploaded: FolderBucket) -> None:
    with timestone.view(uploaded.url) as view:
        assert view.readers() == {}
        reader = view.log("telemetry").reader("earliest", name="billing")
        reader.read(max_records=1)
        with pytest.raises(ReadOnlyStore, match="a bucket has no readers"):
            reader.commit()


def test_what_is_not_there_is_said(uploaded: FolderBucket) -> None:
    with timestone.view(uploaded.url) as view:
        with pytest.raises(UnknownLog, match="telemetry-0"):
            view.log("another")
        with pytest.raises(UnknownLog):
            view.log("telemetry", 1)
    with pytest.raises(StoreClosed):
        view.log("telemetry")
    with pytest.raises(TieringError, match="invalid URL"):
        timestone.view("ftp://bucket/x")


def test_a_temporary_cache_goes_with_the_view_and_a_named_one_stays(
    uploaded: FolderBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with timestone.view(uploaded.url) as view:
        all_records(view)
        assert any((tmp_path / "tmp").iterdir())
    with view_bucket(uploaded.url, cache=tmp_path / "cache") as view:
        all_records(view)
    assert not any((tmp_path / "tmp").iterdir())
    counted = FaultyBucket(uploaded)
    with BucketView(counted, cache=tmp_path / "cache") as view:
        assert len(all_records(view)) == 30
    assert fetched(counted) == []


def test_a_bucket_smaller_than_its_history_fits_the_cache(uploaded: FolderBucket) -> None:
    with view_bucket(uploaded.url, cache_bytes=1) as view:
        assert len(all_records(view)) == 30
        assert view.fetch_status().cached_segments <= 1


@pytest.mark.slow
def test_a_view_of_a_real_server_has_the_same_records(
    s3_environment: S3Server, store: Store, log: Log
) -> None:
    url = f"s3://{BUCKET}/{secrets.token_hex(4)}"
    bucket: Bucket = open_bucket(url)
    upload_store(store, bucket)
    with timestone.view(url) as view:
        assert all_records(view) == list(log.reader("earliest").read(max_records=30))
