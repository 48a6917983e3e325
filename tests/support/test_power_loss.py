"""Tests of the simulator of power losses: a too lenient one would prove nothing."""

import random
from pathlib import Path

import pytest

from tests.support.power_loss import Disk, Image, Loss
from tests.support.recording_files import RecordingFiles

NAME = Path("file")


@pytest.fixture
def recorder(tmp_path: Path) -> RecordingFiles:
    (tmp_path / "root").mkdir()
    return RecordingFiles(tmp_path / "root")


def images(recorder: RecordingFiles, loss: Loss, count: int = 60) -> list[Image]:
    disk = Disk(recorder)
    for number, operation in enumerate(recorder.operations):
        disk.apply(number, operation)
    return [disk.image(random.Random(seed), loss) for seed in range(count)]


def contents(recorder: RecordingFiles, loss: Loss, count: int = 60) -> set[bytes | None]:
    return {image.files.get(NAME) for image in images(recorder, loss, count)}


def made(recorder: RecordingFiles, *, durable: bool = True) -> int:
    fd = recorder.create(recorder.root / NAME)
    if durable:
        recorder.sync_directory(recorder.root)
    return fd


def test_image_without_loss_equals_the_page_cache(recorder: RecordingFiles) -> None:
    fd = made(recorder, durable=False)
    recorder.pwrite(fd, b"abc", 0)
    assert contents(recorder, Loss.NOTHING) == {b"abc"}


def test_only_unsynced_names_may_be_lost(recorder: RecordingFiles) -> None:
    made(recorder, durable=False)
    assert contents(recorder, Loss.EVERYTHING) == {None}
    assert contents(recorder, Loss.SECTORS) == {None, b""}
    recorder.sync_directory(recorder.root)
    assert contents(recorder, Loss.SECTORS) == {b""}


def test_synced_bytes_are_in_every_image(recorder: RecordingFiles) -> None:
    fd = made(recorder)
    recorder.pwrite(fd, b"durable", 0)
    recorder.fdatasync(fd)
    recorder.pwrite(fd, b" or not", 7)
    for loss in Loss:
        assert all(
            found is not None and found.startswith(b"durable") for found in contents(recorder, loss)
        ), loss


def test_unsynced_sectors_are_lost_independently(recorder: RecordingFiles) -> None:
    fd = made(recorder)
    recorder.pwrite(fd, b"a" * 1536, 0)
    recorder.fdatasync(fd)
    recorder.pwrite(fd, b"b" * 1536, 0)
    found = {
        tuple(data[at : at + 1] for at in (0, 512, 1024))
        for data in contents(recorder, Loss.SECTORS, 400)
        if data is not None
    }
    assert len(found) == 8, "every mixture of old and new occurs"


def test_sector_may_have_any_of_its_versions(recorder: RecordingFiles) -> None:
    fd = made(recorder)
    for letter in b"abc":
        recorder.pwrite(fd, bytes([letter]) * 512, 0)
    found = {data[:1] for data in contents(recorder, Loss.SECTORS) if data}
    assert {b"a", b"b", b"c"} <= found


def test_garbage_appears_only_in_unsynced_sectors(recorder: RecordingFiles) -> None:
    fd = made(recorder)
    recorder.pwrite(fd, b"d" * 512, 0)
    recorder.fdatasync(fd)
    recorder.pwrite(fd, b"n" * 100, 200)
    found = contents(recorder, Loss.GARBAGE)
    assert all(data is not None and data[:200] == b"d" * 200 and data[300:] == b"d" * 212 for data in found)
    assert any(data is not None and data[200:300] not in (b"d" * 100, b"n" * 100) for data in found)


def test_file_may_have_any_of_its_lengths(recorder: RecordingFiles) -> None:
    fd = made(recorder)
    recorder.pwrite(fd, b"x" * 100, 0)
    recorder.reserve(fd, 0, 4096)
    lengths = {len(data) for data in contents(recorder, Loss.SECTORS) if data is not None}
    assert {0, 100, 4096} <= lengths


def test_rename_that_was_not_synced_leaves_the_old_or_the_new_file_whole(recorder: RecordingFiles) -> None:
    for name, content in (("file", b"old"), ("other", b"new")):
        fd = recorder.create(recorder.root / name)
        recorder.pwrite(fd, content, 0)
        recorder.fdatasync(fd)
    recorder.sync_directory(recorder.root)
    recorder.rename(recorder.root / "other", recorder.root / "file")
    assert contents(recorder, Loss.SECTORS) == {b"old", b"new"}
    recorder.sync_directory(recorder.root)
    assert contents(recorder, Loss.SECTORS) == {b"new"}


def test_write_during_a_sync_is_not_covered_by_it(recorder: RecordingFiles) -> None:
    fd = made(recorder)
    recorder.pwrite(fd, b"a", 0)
    recorder.fdatasync(fd)
    ended = recorder.operations.pop()
    recorder.pwrite(fd, b"b", 0)
    recorder.operations.append(ended)
    assert contents(recorder, Loss.EVERYTHING) == {b"a"}


def test_success_after_a_failed_sync_does_not_make_earlier_pages_durable(
    recorder: RecordingFiles,
) -> None:
    fd = made(recorder)
    recorder.pwrite(fd, b"a" * 600, 0)
    recorder.fail_sync(fd)
    recorder.fdatasync(fd)
    assert contents(recorder, Loss.EVERYTHING) == {b""}
    recorder.pwrite(fd, b"a" * 600, 0)  # written again, they are dirty again
    recorder.fdatasync(fd)
    assert contents(recorder, Loss.EVERYTHING) == {b"a" * 600}


def test_same_seed_gives_the_same_image(recorder: RecordingFiles) -> None:
    fd = made(recorder, durable=False)
    recorder.pwrite(fd, random.Random(1).randbytes(5000), 0)
    assert images(recorder, Loss.GARBAGE, 20) == images(recorder, Loss.GARBAGE, 20)
