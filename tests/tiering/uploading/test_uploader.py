"""The thread that uploads: whose turn it is, what follows an error, and what it says of itself."""

import logging
from collections.abc import Callable

import pytest

from tests.support.buckets import FaultyBucket, HangingBucket
from tests.support.waiting import wait_for
from tests.tiering.conftest import SEGMENT_RECORDS, append, sealed_end
from timestone.log import Log
from timestone.store import Store
from timestone_tiering.buckets.bucket import Bucket
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import BucketRefused, PrefixInUse
from timestone_tiering.uploading import uploader as module
from timestone_tiering.uploading.uploader import Uploader


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(module, "_RETRY_MOST_S", 0.05)


def uploader_of(store: Store, bucket: Bucket, logs: Callable[[], list[Log]] | None = None) -> Uploader:
    def all_logs() -> list[Log]:
        return [store.log(*log) for log in store.log_names()]

    return Uploader(
        bucket,
        store.documents,
        logs or all_logs,
        files=store.files,
        now_us=store.now_us,
        flush_s=lambda: 0.0,
    )


def ends(uploader: Uploader) -> dict[str, int]:
    return {one.log: one.end for one in uploader.log_status()}


def test_all_logs_are_uploaded_and_what_is_sealed_later_too(
    store: Store, log: Log, bucket: FolderBucket
) -> None:
    other = store.log("other", 2)
    append(other, 2 * SEGMENT_RECORDS + 1)
    uploader = uploader_of(store, bucket)
    uploader.start()
    try:
        wait_for(lambda: uploader.status().state == "idle")
        assert ends(uploader) == {"telemetry-0": 30, "other-2": 20}
        append(log, SEGMENT_RECORDS)
        later = store.log("later")
        append(later, SEGMENT_RECORDS + 1)
        uploader.wake()
        wait_for(lambda: ends(uploader) == {"telemetry-0": sealed_end(log), "other-2": 20, "later-0": 10})
        status = uploader.status()
        assert (status.generation, status.uploaded_segments, status.last_error) == (1, 7, None)
        assert status.uploaded_bytes == sum(one.stored_bytes for one in uploader.log_status())
    finally:
        uploader.stop()
    assert uploader.status().state == "stopped"


def test_a_bucket_that_is_away_is_asked_again(
    store: Store, log: Log, bucket: FolderBucket, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = FaultyBucket(bucket)
    faulty.fail_at, faulty.stays_away = 0, True
    uploader = uploader_of(store, faulty)
    uploader.start()
    try:
        wait_for(lambda: uploader.status().error_count > 3)
        status = uploader.status()
        assert (status.state, status.generation) == ("waiting", None)
        assert status.last_error is not None and "list owners/" in status.last_error
        faulty.fail_at = -1
        wait_for(lambda: ends(uploader) == {"telemetry-0": 30})
    finally:
        uploader.stop()


def test_a_refused_credential_ends_the_start(store: Store, bucket: FolderBucket) -> None:
    faulty = FaultyBucket(bucket)
    faulty.fail_at, faulty.error = 0, BucketRefused
    with pytest.raises(BucketRefused):
        uploader_of(store, faulty).start()


def test_uploads_stop_for_good_when_the_prefix_was_taken_over(
    store: Store, log: Log, bucket: FolderBucket, caplog: pytest.LogCaptureFixture
) -> None:
    first = uploader_of(store, bucket)
    first.start()
    wait_for(lambda: first.status().state == "idle")
    second = uploader_of(store, bucket)
    second.start()  # the same catalogue: what a copy of the store would do
    append(log, SEGMENT_RECORDS)
    with caplog.at_level(logging.ERROR):
        first.wake()
        wait_for(lambda: first.status().state == "stopped")
    assert "another store has taken over this prefix" in caplog.text
    second.wake()
    wait_for(lambda: ends(second) == {"telemetry-0": sealed_end(log)} != {"telemetry-0": 30})
    first.stop()
    second.stop()


def test_another_store_is_refused_at_its_start(tmp_path: object, store: Store, bucket: FolderBucket) -> None:
    uploader = uploader_of(store, bucket)
    uploader.start()
    uploader.stop()
    bucket.write("owners/0000000002.json", [b'{"generation": 2, "token": "other"}'])
    with pytest.raises(PrefixInUse):
        uploader_of(store, bucket).start()


def test_an_error_of_one_log_leaves_the_others_alone(
    store: Store, log: Log, bucket: FolderBucket, caplog: pytest.LogCaptureFixture
) -> None:
    other = store.log("other")
    append(other, SEGMENT_RECORDS + 1)
    bucket.write(f"{log.id:016x}/telemetry-0/manifest/0000000000-0000000001.json.zst", [b"damaged"])
    uploader = uploader_of(store, bucket)
    uploader.start()
    try:
        wait_for(lambda: ends(uploader).get("other-0") == 10)
        wait_for(lambda: uploader.status().error_count > 2)
    finally:
        uploader.stop()
    status = {one.log: one.error for one in uploader.log_status()}
    assert status["other-0"] is None
    assert status["telemetry-0"] is not None and "manifest/0000000000-0000000001" in status["telemetry-0"]
    assert caplog.text.count("tiering: ") == 1, "said once, not each time"


def test_stop_gives_up_in_the_middle_of_an_upload(store: Store, log: Log, bucket: FolderBucket) -> None:
    uploader = Uploader(
        bucket,
        store.documents,
        lambda: [log],
        files=store.files,
        now_us=store.now_us,
        flush_s=lambda: 0.0,
        bytes_per_s=1,
    )
    uploader.start()
    wait_for(lambda: uploader.status().uploaded_bytes > 0)
    uploader.stop()
    assert not [one for one in bucket.objects("") if "manifest" in one.name]


def test_start_and_stop_do_not_wait_for_a_bucket_that_hangs(
    store: Store, log: Log, bucket: FolderBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 0.05)
    hanging = HangingBucket(bucket)
    hanging.hang()
    first = uploader_of(store, hanging)
    first.start()
    assert (first.status().generation, first.status().last_error) == (None, f"{bucket.url}: no answer in 0 s")
    hanging.release()
    wait_for(lambda: ends(first) == {"telemetry-0": 30})
    assert first.status().generation == 1
    hanging.hang()
    append(log, SEGMENT_RECORDS)
    first.wake()
    wait_for(lambda: hanging.waiting)
    first.stop()
    assert first.status().state == "stopped"
    hanging.release()
    assert first._thread is not None
    first._thread.join(60)
    assert ends(first) == {"telemetry-0": 30}, "what was stopped touches no store"


def test_a_refusal_that_comes_late_stops_the_uploads(
    store: Store, bucket: FolderBucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 0.05)
    bucket.write("owners/0000000002.json", [b'{"generation": 2, "token": "other"}'])
    hanging = HangingBucket(bucket)
    hanging.hang()
    uploader = uploader_of(store, hanging)
    uploader.start()
    hanging.release()
    wait_for(lambda: uploader.status().state == "stopped")
    assert "another store uploads to this prefix" in caplog.text
    uploader.stop()
