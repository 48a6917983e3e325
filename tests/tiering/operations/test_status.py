"""What a bucket has of each log."""

from pathlib import Path

import pytest

import timestone
from tests.support.buckets import upload_store
from tests.tiering.conftest import SEGMENT_RECORDS, append
from timestone.log import Log
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import NoHistory
from timestone_tiering.operations.status import Waiting, bucket_status, urls_of_store


def test_a_log_has_its_offsets_counts_and_times(log: Log, uploaded: FolderBucket) -> None:
    found = bucket_status(uploaded)
    (one,) = found.logs
    assert (one.log, one.partition, one.id) == ("telemetry", 0, f"{log.id:016x}")
    assert (one.start_offset, one.end_offset, one.records, one.segment_count) == (0, 30, 30, 3)
    assert one.stored_bytes == sum(
        facts.size_bytes for facts in uploaded.objects("") if "/segments/" in facts.name
    )
    records = list(log.reader("earliest").read(max_records=30))
    assert (one.first_timestamp_us, one.last_timestamp_us) == (
        records[0].timestamp_us,
        records[-1].timestamp_us,
    )
    assert one.waiting is None
    assert found.claim is not None and found.claim.generation == 1
    assert found.is_own_claim is None


def test_the_backlog_is_what_the_local_store_has_and_the_bucket_has_not(
    store: Store, log: Log, uploaded: FolderBucket, tmp_path: Path
) -> None:
    append(log, 2 * SEGMENT_RECORDS)
    append(store.log("new"), 2 * SEGMENT_RECORDS)
    store.log("compacted", config=timestone.LogConfig(compact=True, segment_entries=5))
    with timestone.view(tmp_path / "data") as view:
        assert urls_of_store(view) == [uploaded.url]
        found = bucket_status(uploaded, view)
    assert found.is_own_claim is True
    waiting = {one.log: one.waiting for one in found.logs}
    assert waiting.keys() == {"telemetry", "new"}
    assert waiting["telemetry"] is not None and waiting["telemetry"].segment_count == 2
    assert waiting["new"] is not None and waiting["new"].segment_count == 1
    upload_store(store, uploaded)
    with timestone.view(tmp_path / "data") as view:
        found = bucket_status(uploaded, view)
    ends = {name: store.log(name).segment_list.sealed()[-1].end_offset for name in ("telemetry", "new")}
    growing = [Waiting(0, 0, store.log(one.log).end_offset - ends[one.log]) for one in found.logs]
    assert [one.waiting for one in found.logs] == growing and growing[0].growing_records


def test_the_claim_of_another_store_is_told_apart(tmp_path: Path, uploaded: FolderBucket) -> None:
    with timestone.open(tmp_path / "other") as other:
        other.log("x").append(b"x")
    with timestone.view(tmp_path / "other") as view:
        assert bucket_status(uploaded, view).is_own_claim is False


def test_a_claimed_prefix_may_have_no_logs_yet(tmp_path: Path, bucket: FolderBucket) -> None:
    with pytest.raises(NoHistory):
        bucket_status(bucket)
    with timestone.open(tmp_path / "data") as store:
        upload_store(store, bucket)
    assert bucket_status(bucket).logs == ()


def test_the_status_as_json_has_numbers(uploaded: FolderBucket) -> None:
    found = bucket_status(uploaded).to_json()
    assert found["logs"][0]["end_offset"] == 30
    assert found["claim"]["generation"] == 1
