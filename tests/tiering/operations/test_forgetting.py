"""Giving up what a bucket has of a deleted log: invisible at once, deleted after the delay."""

from contextlib import closing

import pytest

import timestone
from tests.support.buckets import upload_store
from tests.support.waiting import wait_for
from tests.tiering.conftest import append, only_history, sealed_end
from timestone.log import Log
from timestone.store import Store
from timestone.view import view_store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import NoHistory
from timestone_tiering.objects.history import listed_logs, log_histories
from timestone_tiering.operations.collection import collect_unused
from timestone_tiering.operations.forgetting import find_forgettable, forget
from timestone_tiering.tier import StoreTier

DAY_US = 86_400_000_000


def names_of(bucket: FolderBucket) -> list[str]:
    return [one.name for one in bucket.objects("") if not one.name.startswith("owners/")]


def test_a_deleted_log_is_forgotten_and_its_objects_go_after_the_delay(
    store: Store, uploaded: FolderBucket
) -> None:
    with timestone.view(uploaded.url) as planned:
        state = planned.log("telemetry").state
        store.delete_log("telemetry")
        forget(find_forgettable([uploaded], "telemetry"))
        with timestone.view(uploaded.url) as late:
            assert (late.log_names(), listed_logs(uploaded)) == ([], [])
            with pytest.raises(timestone.UnknownLog):
                late.log("telemetry")
            # A task reads by the manifest of its plan until the objects are deleted.
            assert len(late.log_as_of("telemetry", 0, state).read(0, max_records=50)) == 30
    with pytest.raises(NoHistory):
        log_histories(uploaded)
    before = names_of(uploaded)
    assert collect_unused(uploaded, older_than_us=DAY_US, delete=True)[0].unused == ()
    assert names_of(uploaded) == before
    collect_unused(uploaded, older_than_us=-DAY_US, delete=True)
    assert [name.rpartition("/")[2] for name in names_of(uploaded)] == ["0000000001-9999999999.json.zst"]
    collect_unused(uploaded, older_than_us=-DAY_US, delete=True)
    assert names_of(uploaded) == []


def test_a_name_is_not_enough_for_two_deleted_logs(store: Store, uploaded: FolderBucket) -> None:
    first = only_history(uploaded).manifest.place.log_id
    store.delete_log("telemetry")
    append(store.log("telemetry"), 11)
    upload_store(store, uploaded)
    with closing(view_store(store.path)) as view:
        assert find_forgettable([uploaded], "telemetry-0", view).manifest.place.log_id == first
    with pytest.raises(NoHistory, match=f"is several logs: give the id of one .*{first:016x}"):
        find_forgettable([uploaded], "telemetry")
    assert find_forgettable([uploaded], f"{first:016x}").manifest.end == 30
    with pytest.raises(NoHistory, match="no log 'other'"):
        find_forgettable([uploaded], "other")


def test_a_log_of_the_store_is_refused_and_kept_by_its_uploads(
    store: Store, log: Log, uploaded: FolderBucket
) -> None:
    with closing(view_store(store.path)) as view, pytest.raises(NoHistory, match="delete it there first"):
        find_forgettable([uploaded], "telemetry", view)
    forget(find_forgettable([uploaded], "telemetry"))
    append(log, 10)
    with StoreTier(store, TierConfig(url=uploaded.url), bucket=uploaded) as tier:
        wait_for(lambda: [one.end for one in tier.log_status()] == [sealed_end(log)])
    assert [one.manifest.end for one in log_histories(uploaded)] == [sealed_end(log)] != [30]
