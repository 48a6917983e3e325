"""Two stores never upload to one prefix unless an operator says so."""

from pathlib import Path

import pytest

import timestone
from tests.support.buckets import upload_store
from tests.tiering.conftest import append, only_history
from timestone.errors import NotAStore, StoreLocked
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import NoHistory, PrefixInUse
from timestone_tiering.operations.claim import claim_prefix
from timestone_tiering.operations.restore import restore_store


def test_a_restored_store_uploads_after_its_claim_and_the_other_one_stops(
    store: Store, uploaded: FolderBucket, tmp_path: Path
) -> None:
    restore_store(uploaded, tmp_path / "new")
    with timestone.open(tmp_path / "new") as new, pytest.raises(PrefixInUse, match="tier claim"):
        upload_store(new, uploaded)
    assert claim_prefix(uploaded, tmp_path / "new").generation == 1
    with timestone.open(tmp_path / "new", log=timestone.LogConfig(segment_entries=10)) as new:
        append(new.log("telemetry"), 20)
        upload_store(new, uploaded)
    assert only_history(uploaded).manifest.version.generation == 2
    assert only_history(uploaded).manifest.end == 40
    with pytest.raises(PrefixInUse):
        upload_store(store, uploaded)


def test_a_store_that_is_owned_or_missing_is_refused(
    store: Store, uploaded: FolderBucket, tmp_path: Path
) -> None:
    with pytest.raises(StoreLocked):
        claim_prefix(uploaded, tmp_path / "data")
    with pytest.raises(NotAStore):
        claim_prefix(uploaded, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_prefix_that_nobody_claimed_is_said(bucket: FolderBucket, tmp_path: Path) -> None:
    timestone.open(tmp_path / "new").close()
    with pytest.raises(NoHistory, match="nothing to take over"):
        claim_prefix(bucket, tmp_path / "new")
