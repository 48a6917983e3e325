"""Deletion by renaming and unlinking: one `.deleted` file proves everything up to it deleted, after any crash."""

import errno
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.faulty_files import FaultyFiles
from tests.support.power_loss import Disk, Loss
from tests.support.recording_files import RecordingFiles
from timestone.disk.files import Files
from timestone.format import deleted_files, names
from timestone.format.deleted_files import (
    DeletedFiles,
    delete_pair,
    deleted_up_to,
    finish_deletions,
    segment_files,
)
from timestone.format.folder_listing import base_offsets


def pair(folder: Path, base: int) -> list[Path]:
    paths = [names.index_path(folder, base), names.segment_path(folder, base)]
    for path in paths:
        path.write_bytes(b"x")
    return paths


def present(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_pair_is_renamed_index_first(tmp_path: Path) -> None:
    files = FaultyFiles()
    pair(tmp_path, 7)
    renamed = delete_pair(files, tmp_path, 7, segment_files(files, tmp_path)[7])
    assert [path.name for path in renamed] == [f"{7:020d}.index.deleted", f"{7:020d}.segment.deleted"]
    assert [Path(path).name for _, path in files.calls] == [path.name for path in renamed]
    assert base_offsets(files, tmp_path) == ([], [])


def test_highest_deleted_base_proves_all_before_it_deleted(tmp_path: Path) -> None:
    for base in (0, 4, 8, 12):
        pair(tmp_path, base)
    (tmp_path / f"{8:020d}.index").rename(tmp_path / f"{8:020d}.index.deleted")
    assert deleted_up_to(present(tmp_path)) == 8
    assert base_offsets(Files(), tmp_path) == ([12], [])
    assert finish_deletions(Files(), tmp_path) == 6
    assert present(tmp_path) == [f"{12:020d}.index", f"{12:020d}.segment"]


def test_finish_does_nothing_without_deleted_files(tmp_path: Path) -> None:
    files = FaultyFiles()
    pair(tmp_path, 0)
    (tmp_path / "notes.deleted").write_bytes(b"")
    assert deleted_up_to(present(tmp_path)) == -1
    assert finish_deletions(files, tmp_path) == 0
    assert files.calls == []


def test_proof_of_a_deletion_is_durable_before_its_file_is_unlinked(tmp_path: Path) -> None:
    for base in (0, 4):
        pair(tmp_path, base)
    (tmp_path / f"{4:020d}.index").rename(tmp_path / f"{4:020d}.index.deleted")
    files = FaultyFiles()
    finish_deletions(files, tmp_path)
    operations = [operation for operation, _ in files.calls]
    assert operations == ["rename"] * 3 + ["sync_directory"] + ["unlink"] * 4


def test_renamed_files_of_a_killed_process_stay_deleted_after_a_power_loss(
    quick_directory: Path,
) -> None:
    folder = quick_directory / "telemetry-0"
    folder.mkdir()
    for base in (0, 4, 8):
        pair(folder, base)
    files = RecordingFiles(folder)
    for base in (0, 4):
        delete_pair(
            files, folder, base, segment_files(files, folder)[base]
        )  # killed here, before the directory is synced
    finish_deletions(files, folder)
    disk = Disk(files)
    for number, operation in enumerate(files.operations):
        disk.apply(number, operation)
    disk.image(random.Random(0), Loss.EVERYTHING).write(quick_directory / "after")
    assert base_offsets(Files(), quick_directory / "after") == ([8], [])


@pytest.mark.parametrize("number", range(1, 9))
def test_deletion_is_finished_by_the_next_try_when_interrupted(tmp_path: Path, number: int) -> None:
    for base in (0, 4, 8):
        pair(tmp_path, base)
    (tmp_path / f"{4:020d}.index").rename(tmp_path / f"{4:020d}.index.deleted")
    files = FaultyFiles()
    files.kill(number)
    try:
        finish_deletions(files, tmp_path)
    except BaseException:
        assert base_offsets(Files(), tmp_path) == ([8], [])
    finish_deletions(Files(), tmp_path)
    assert present(tmp_path) == [f"{8:020d}.index", f"{8:020d}.segment"]


def test_files_are_unlinked_after_their_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(deleted_files, "time", SimpleNamespace(monotonic=lambda: now_s[-1]))
    waiting = DeletedFiles(Files(), delay_ms=50_000)
    waiting.add(pair(tmp_path, 0))
    assert waiting.unlink_due() == 50
    now_s.append(149.0)
    assert waiting.unlink_due() == 1
    assert len(present(tmp_path)) == 2
    now_s.append(150.0)
    assert waiting.unlink_due() is None
    assert present(tmp_path) == []


def test_waiting_files_are_unlinked_on_request(tmp_path: Path) -> None:
    waiting = DeletedFiles(Files(), delay_ms=50_000)
    waiting.add(pair(tmp_path, 0))
    waiting.unlink_all()
    assert present(tmp_path) == []
    assert waiting.unlink_due() is None


def test_files_of_a_folder_are_kept_when_it_was_forgotten(tmp_path: Path) -> None:
    waiting = DeletedFiles(Files(), delay_ms=50_000)
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        waiting.add(pair(folder, 0))
    waiting.forget(one)
    waiting.unlink_all()
    assert (len(present(one)), present(other)) == (2, [])


def test_file_that_cannot_be_unlinked_is_kept_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    waiting = DeletedFiles(files, delay_ms=0)
    waiting.add(pair(tmp_path, 0))
    files.fail("unlink", errno.EACCES)
    assert waiting.unlink_due() is None
    assert present(tmp_path) == [f"{0:020d}.index"]
    assert "the next open tries again" in caplog.text


def test_folder_is_removed_with_its_files_after_the_delay(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry-0.deleted"
    folder.mkdir()
    pair(folder, 0)
    for delay_ms, left in ((10**9, [folder]), (0, [])):
        waiting = DeletedFiles(Files(), delay_ms)
        waiting.add_folder(folder)
        waiting.unlink_due()
        assert list(tmp_path.iterdir()) == left


def test_folder_is_kept_when_it_has_a_foreign_file(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry-0.deleted"
    folder.mkdir()
    pair(folder, 0)
    waiting = DeletedFiles(Files(), 0)
    waiting.add_folder(folder)
    (folder / "notes").write_text("mine")
    waiting.unlink_all()
    assert present(folder) == ["notes"]
