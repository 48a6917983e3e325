"""Segments in a folder that can be viewed."""

from pathlib import Path

import pytest

import timestone
from tests.support.buckets import FaultyBucket, Killed, upload_store
from tests.tiering.conftest import append
from timestone.log import Log
from timestone.repair.inspection import inspect_store
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import DamagedObject, NoHistory
from timestone_tiering.operations.download import MARK_NAME, download_logs


def payloads(path: Path, log: str = "telemetry") -> list[tuple[int, str | None, bytes]]:
    with timestone.view(path) as view:
        reader = view.log(log).reader("earliest")
        records = []
        while batch := list(reader.read()):
            records += [(one.offset, one.topic, bytes(one.payload)) for one in batch]
        return records


def test_a_download_is_viewed_like_the_store(
    store: Store, log: Log, uploaded: FolderBucket, tmp_path: Path
) -> None:
    (done,) = download_logs(uploaded, tmp_path / "copy")
    assert (done.start_offset, done.end_offset, done.segment_count, done.fetched_segments) == (0, 30, 3, 3)
    assert payloads(tmp_path / "copy") == payloads(tmp_path / "data")[:30]
    assert inspect_store(tmp_path / "copy", deep=True).exit_code == 0


def test_run_again_it_fetches_what_is_new(
    store: Store, log: Log, uploaded: FolderBucket, tmp_path: Path
) -> None:
    download_logs(uploaded, tmp_path / "copy")
    append(log, 20)
    upload_store(store, uploaded)
    counted = FaultyBucket(uploaded)
    (done,) = download_logs(counted, tmp_path / "copy")
    assert (done.end_offset, done.segment_count, done.fetched_segments) == (41, 5, 2)
    assert sum(call.endswith(".segment") for call in counted.calls) == 2
    assert payloads(tmp_path / "copy") == payloads(tmp_path / "data")[:41]


def test_killed_at_any_call_it_is_resumed(uploaded: FolderBucket, tmp_path: Path) -> None:
    number = 0
    while True:
        faulty = FaultyBucket(uploaded)
        faulty.fail_at, faulty.stays_away, faulty.error = number, True, Killed
        target = tmp_path / f"copy-{number}"
        try:
            download_logs(faulty, target)
        except Killed:
            pass
        else:
            break
        download_logs(uploaded, target)
        assert len(payloads(target)) == 30
        assert not list(target.rglob("*.tmp"))
        number += 1
    assert number > 8


def test_only_the_chosen_log_is_fetched(store: Store, uploaded: FolderBucket, tmp_path: Path) -> None:
    append(store.log("other"), 20)
    upload_store(store, uploaded)
    download_logs(uploaded, tmp_path / "copy", logs=["other"])
    with timestone.view(tmp_path / "copy") as view:
        assert view.log_names() == [("other", 0)]
    with pytest.raises(NoHistory, match="'another'"):
        download_logs(uploaded, tmp_path / "copy", logs=["another"])


def test_a_damaged_object_is_refused_and_nothing_of_it_is_kept(
    uploaded: FolderBucket, tmp_path: Path
) -> None:
    path = next(Path(uploaded.url.removeprefix("file://")).rglob("*.index"))
    *kept, last = path.read_bytes()
    path.write_bytes(bytes([*kept, last ^ 1]))
    with pytest.raises(DamagedObject, match=r"\.index: its bytes are not those"):
        download_logs(uploaded, tmp_path / "copy")
    base = path.name[:20]
    assert not (tmp_path / "copy" / "telemetry-0" / f"{base}.index").exists()


def test_folders_with_other_files_are_refused(uploaded: FolderBucket, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty"):
        download_logs(uploaded, tmp_path / "full")
    with pytest.raises(FileExistsError, match="is a store"):
        download_logs(uploaded, tmp_path / "data")
    download_logs(uploaded, tmp_path / "copy")
    (tmp_path / "copy" / MARK_NAME).write_text("file:///elsewhere")
    with pytest.raises(FileExistsError, match="another bucket"):
        download_logs(uploaded, tmp_path / "copy")


def test_a_download_that_was_opened_as_a_store_is_left_alone(uploaded: FolderBucket, tmp_path: Path) -> None:
    download_logs(uploaded, tmp_path / "copy")
    with timestone.open(tmp_path / "copy") as store:
        assert store.log("telemetry").append(b"own") == 30
    with pytest.raises(FileExistsError, match="is a store"):
        download_logs(uploaded, tmp_path / "copy")
    assert payloads(tmp_path / "copy")[30] == (30, None, b"own")
