"""Deleting what nothing needs, over all logs of a bucket."""

from pathlib import Path

import pytest

from tests.support.buckets import checked_manifest
from tests.tiering.conftest import only_history
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import NoHistory
from timestone_tiering.operations.collection import collect_unused

DAY_US = 86_400_000_000


def test_nothing_is_deleted_unless_asked_for(uploaded: FolderBucket) -> None:
    before = [one.name for one in uploaded.objects("")]
    (found,) = collect_unused(uploaded, older_than_us=0, delete=False)
    assert [one.name.rpartition("/")[2][:21] for one in found.unused] == [
        "0000000001-0000000000",
        "0000000001-0000000001",
    ]
    assert [one.name for one in uploaded.objects("")] == before
    collect_unused(uploaded, older_than_us=-DAY_US, delete=True)
    left = [one.name for one in uploaded.objects("")]
    assert sorted(set(before) - set(left)) == [one.name for one in found.unused]
    place = only_history(uploaded).objects.place
    assert checked_manifest(uploaded, place) is not None


def test_what_is_younger_than_the_delay_is_kept(uploaded: FolderBucket) -> None:
    before = [one.name for one in uploaded.objects("")]
    (found,) = collect_unused(uploaded, older_than_us=DAY_US, delete=True)
    assert found.unused == ()
    assert [one.name for one in uploaded.objects("")] == before


def test_a_damaged_manifest_keeps_all_of_its_log(uploaded: FolderBucket) -> None:
    history = only_history(uploaded)
    name = history.objects.place.manifest(history.manifest.version)
    uploaded.write(f"{history.objects.place.prefix}segments/left.segment", [b"x"])
    Path(uploaded.url.removeprefix("file://"), name).write_bytes(b"x")
    (found,) = collect_unused(uploaded, older_than_us=-DAY_US, delete=True)
    assert found.unused == () and found.error is not None
    assert any(one.name.endswith("left.segment") for one in uploaded.objects(""))


def test_an_empty_prefix_is_said(bucket: FolderBucket) -> None:
    with pytest.raises(NoHistory):
        collect_unused(bucket, older_than_us=0, delete=False)
