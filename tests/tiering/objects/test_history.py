"""The logs below a prefix."""

import pytest

from tests.support.buckets import upload_store
from tests.tiering.conftest import append
from timestone.log import Log
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import NoHistory
from timestone_tiering.objects.history import log_histories, log_places


def test_each_log_is_found_with_its_newest_manifest(store: Store, uploaded: FolderBucket) -> None:
    for partition in (0, 1):
        append(store.log("other", partition), 20)
    upload_store(store, uploaded)
    found = [(one.folder, one.manifest.end) for one in log_histories(uploaded)]
    assert found == [("other-0", 10), ("other-1", 10), ("telemetry-0", 30)]


def test_logs_are_chosen_by_name_or_partition(store: Store, uploaded: FolderBucket) -> None:
    for partition in (0, 1):
        append(store.log("other", partition), 20)
    upload_store(store, uploaded)
    for chosen, folders in (
        (["other"], ["other-0", "other-1"]),
        (["other-1"], ["other-1"]),
        (["other-0", "telemetry"], ["other-0", "telemetry-0"]),
    ):
        assert [one.folder for one in log_histories(uploaded, chosen)] == folders
    with pytest.raises(NoHistory, match="no log 'another'"):
        log_histories(uploaded, ["other", "another"])


def test_of_two_logs_of_one_name_the_newer_one_counts(store: Store, log: Log, uploaded: FolderBucket) -> None:
    old_id = log.id
    store.delete_log("telemetry")
    append(store.log("telemetry"), 20)
    upload_store(store, uploaded)
    assert len(log_places(uploaded)) == 2
    (found,) = log_histories(uploaded)
    assert found.manifest.end == 10
    assert found.manifest.place.log_id != old_id


def test_a_prefix_without_a_log_is_said(bucket: FolderBucket) -> None:
    with pytest.raises(NoHistory, match="no log found there"):
        log_histories(bucket)


def test_a_log_without_a_manifest_is_none(uploaded: FolderBucket) -> None:
    (place,) = log_places(uploaded)
    uploaded.delete([one.name for one in uploaded.objects(place.manifests)])
    with pytest.raises(NoHistory):
        log_histories(uploaded)
