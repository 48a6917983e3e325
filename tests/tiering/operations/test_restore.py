"""A store made of a bucket: everything up to the manifest, and new records behind it."""

import itertools
from pathlib import Path

import pytest

import timestone
from tests.support.buckets import FaultyBucket, Killed, upload_store
from tests.tiering.conftest import append
from tests.tiering.operations.test_download import payloads
from timestone import LogConfig
from timestone.disk.files import Files
from timestone.log import Log
from timestone.repair.inspection import inspect_store
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import NoHistory
from timestone_tiering.operations.restore import MARK_NAME, restore_store


def test_the_restored_store_has_all_up_to_the_manifest_and_goes_on(
    store: Store, log: Log, uploaded: FolderBucket, tmp_path: Path
) -> None:
    log.configure(retention_bytes=1 << 30)
    append(log, 10)
    upload_store(store, uploaded)
    (done,) = restore_store(uploaded, tmp_path / "new")
    assert (done.start_offset, done.end_offset, done.segment_count) == (0, 31, 4)
    assert inspect_store(tmp_path / "new", deep=True).exit_code == 0
    assert payloads(tmp_path / "new") == payloads(tmp_path / "data")[:31]
    with timestone.open(tmp_path / "new") as new:
        restored = new.log("telemetry", create=False)
        assert (restored.id, restored.end_offset) == (log.id, 31)
        assert restored.epoch > log.epoch
        assert restored.config == log.config
        assert restored.append(b"next", topic="devices/0") == 31
    assert payloads(tmp_path / "new")[31] == (31, "devices/0", b"next")
    assert not (tmp_path / "new.partial").exists()
    assert not (tmp_path / "new" / MARK_NAME).exists()


def test_killed_at_any_call_it_is_resumed(uploaded: FolderBucket, tmp_path: Path) -> None:
    expected = payloads(tmp_path / "data")[:30]
    for number in itertools.count():
        faulty = FaultyBucket(uploaded)
        faulty.fail_at, faulty.stays_away, faulty.error = number, True, Killed
        target = tmp_path / f"new-{number}"
        try:
            restore_store(faulty, target)
        except Killed:
            assert not target.exists()
        else:
            break
        counted = FaultyBucket(uploaded)
        (done,) = restore_store(counted, target)
        assert done.fetched_segments == sum(call.endswith(".segment") for call in counted.calls)
        assert payloads(target) == expected
        assert inspect_store(target, deep=True).exit_code == 0
    assert number > 8


@pytest.mark.parametrize("moment", ["rename", "unlink"])
def test_killed_at_its_end_it_is_resumed(
    uploaded: FolderBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    original = getattr(Files, moment)

    def dies(self: object, path: Path, *others: Path) -> None:
        if path.name in ("new.partial", MARK_NAME):
            raise Killed
        original(self, path, *others)

    with monkeypatch.context() as patched:
        patched.setattr(Files, moment, dies)
        with pytest.raises(Killed):
            restore_store(uploaded, tmp_path / "new")
    restore_store(uploaded, tmp_path / "new")
    assert len(payloads(tmp_path / "new")) == 30
    assert not (tmp_path / "new" / MARK_NAME).exists()


def test_until_leaves_out_later_records_exactly(
    store: Store, log: Log, uploaded: FolderBucket, tmp_path: Path
) -> None:
    times = [one.timestamp_us for one in log.reader("earliest").read(max_records=30)]
    for number, until_us in enumerate(
        [times[0], times[0] + 1, times[14], times[15], times[20], times[29] + 1]
    ):
        end = next((offset for offset, time in enumerate(times) if time >= until_us), 30)
        target = tmp_path / f"new-{number}"
        (done,) = restore_store(uploaded, target, until_us=until_us)
        assert done.end_offset == end
        assert payloads(target) == payloads(tmp_path / "data")[:end]
        assert inspect_store(target, deep=True).exit_code == 0
        with timestone.open(target) as new:
            assert new.log("telemetry").append(b"next") == end


def test_a_cut_restore_that_was_killed_is_resumed(
    log: Log, uploaded: FolderBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = timestone.open(tmp_path / "other", log=LogConfig(segment_entries=10))
    other = store.log("slow")
    for number in range(25):
        other.append(b"%d" % number)
    append(other, 5)
    upload_store(store, bucket := FolderBucket(tmp_path / "bucket-2"))
    until_us = [one.timestamp_us for one in other.reader("earliest").read()][14]
    store.close()
    end = other_end(tmp_path / "other", until_us)
    with monkeypatch.context() as patched:
        patched.setattr("timestone_tiering.operations.restore._write_catalog", _die)
        with pytest.raises(Killed):
            restore_store(bucket, tmp_path / "new", until_us=until_us)
    (done,) = restore_store(bucket, tmp_path / "new", until_us=until_us)
    assert done.end_offset == end
    assert payloads(tmp_path / "new", "slow") == payloads(tmp_path / "other", "slow")[:end]
    assert inspect_store(tmp_path / "new", deep=True).exit_code == 0


def _die(*arguments: object, **named: object) -> None:
    raise Killed


def other_end(path: Path, until_us: int) -> int:
    with timestone.view(path) as view:
        return view.log("slow").offset_at(until_us)


def test_another_restore_to_the_same_place_begins_anew(uploaded: FolderBucket, tmp_path: Path) -> None:
    faulty = FaultyBucket(uploaded)
    faulty.fail_at, faulty.stays_away, faulty.error = 12, True, Killed
    with pytest.raises(Killed):
        restore_store(faulty, tmp_path / "new")
    (tmp_path / "new.partial" / "telemetry-0" / "leftover").write_text("x")
    (done,) = restore_store(uploaded, tmp_path / "new", logs=["telemetry"])
    assert done.fetched_segments == 3
    assert not (tmp_path / "new" / "telemetry-0" / "leftover").exists()


def test_only_new_or_empty_folders_are_filled(uploaded: FolderBucket, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(FileExistsError, match="not empty"):
        restore_store(uploaded, tmp_path / "full")
    (tmp_path / "empty").mkdir()
    restore_store(uploaded, tmp_path / "empty")
    assert len(payloads(tmp_path / "empty")) == 30
    (tmp_path / "third.partial").mkdir()
    (tmp_path / "third.partial" / "mine").write_text("x")
    with pytest.raises(FileExistsError, match="not a restore"):
        restore_store(uploaded, tmp_path / "third")
    assert (tmp_path / "third.partial" / "mine").exists()


def test_two_restores_at_the_same_time_are_refused(
    uploaded: FolderBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second(*arguments: object) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("timestone_tiering.operations.restore._check_space", lambda *others: None)
            with pytest.raises(FileExistsError, match="another restore"):
                restore_store(uploaded, tmp_path / "new")

    monkeypatch.setattr("timestone_tiering.operations.restore._check_space", second)
    restore_store(uploaded, tmp_path / "new")
    assert len(payloads(tmp_path / "new")) == 30


def test_a_full_disk_is_said_before_anything_is_fetched(
    uploaded: FolderBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "free_bytes", lambda self, path: 1000)
    counted = FaultyBucket(uploaded)
    with pytest.raises(OSError, match=r"needs [0-9]+ bytes, there are 1000"):
        restore_store(counted, tmp_path / "new")
    assert not any(call.endswith(".segment") for call in counted.calls)


def test_gaps_of_lost_offsets_are_restored(tmp_path: Path, bucket: FolderBucket) -> None:
    with timestone.open(tmp_path / "data", log=LogConfig(segment_entries=10)) as store:
        append(store.log("telemetry"), 31)
    for path in (tmp_path / "data" / "telemetry-0").glob("00000000000000000010.*"):
        path.unlink()
    with timestone.open(tmp_path / "data", log=LogConfig(segment_entries=10)) as store:
        upload_store(store, bucket)
        lost = store.log("telemetry").lost_offsets(0, 30)
    assert lost
    restore_store(bucket, tmp_path / "new")
    with timestone.view(tmp_path / "new") as view:
        assert view.log("telemetry").lost_offsets(0, 30) == lost


def test_an_empty_prefix_is_said(bucket: FolderBucket, tmp_path: Path) -> None:
    with pytest.raises(NoHistory):
        restore_store(bucket, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
