"""The marker of a failed fsync stays in the folder until the records concerned are in new files."""

from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from timestone.disk.files import Files
from timestone.format.failed_fsync_marker import (
    clear_failed_fsync,
    copy_anew,
    has_failed_fsync,
    mark_failed_fsync,
)


def test_mark_is_set_and_cleared_any_number_of_times(quick_directory: Path) -> None:
    files = Files()
    assert not has_failed_fsync(files, quick_directory)
    clear_failed_fsync(files, quick_directory)
    for _ in range(2):
        mark_failed_fsync(files, quick_directory)
        assert has_failed_fsync(files, quick_directory)
    for _ in range(2):
        clear_failed_fsync(files, quick_directory)
        assert not has_failed_fsync(files, quick_directory)


def test_copy_takes_the_first_bytes_into_another_file_of_the_same_name(quick_directory: Path) -> None:
    path = quick_directory / "file"
    path.write_bytes(b"0123456789")
    inode = path.stat().st_ino
    files = FaultyFiles()
    copy_anew(files, path, 7)
    assert path.read_bytes() == b"0123456"
    assert path.stat().st_ino != inode, "the old pages are not asked again"
    operations = [operation for operation, _ in files.calls]
    assert operations == ["unlink", "create", "pwrite", "fdatasync", "rename"]


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync", "rename"])
def test_copy_that_fails_leaves_the_file_as_it_was(quick_directory: Path, operation: str) -> None:
    path = quick_directory / "file"
    path.write_bytes(b"0123456789")
    files = FaultyFiles()
    files.fail(operation, 28)
    with pytest.raises(OSError, match="No space"):
        copy_anew(files, path, 7)
    assert path.read_bytes() == b"0123456789"
