"""Files that are no longer served are kept, under an unused name."""

import errno
from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from timestone.format.quarantine import Quarantine

CONTENT = bytes(range(256)) * 20


@pytest.fixture
def path(quick_directory: Path) -> Path:
    path = quick_directory / "00.segment"
    path.write_bytes(CONTENT)
    return path


def kept(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in path.parent.iterdir() if one != path}


def test_quarantined_file_gets_a_free_name(path: Path) -> None:
    lost_files = Quarantine(FaultyFiles(), path.parent)
    lost_files.keep(path)
    path.write_bytes(b"again")
    lost_files.keep(path)
    assert not path.exists()
    assert kept(path) == {"00.segment.lost": CONTENT, "00.segment.lost.2": b"again"}


@pytest.mark.parametrize("start", [0, 1, len(CONTENT) - 1, len(CONTENT)])
def test_quarantined_copy_has_the_bytes_behind_a_position_and_is_durable_before_its_name(
    path: Path, start: int
) -> None:
    files = FaultyFiles()
    lost_files = Quarantine(files, path.parent)
    lost_files.copy(path, start)
    before = files.counts
    assert (before["fdatasync"], before["sync_directory"]) == (1, 0)
    lost_files.sync()
    assert (files.counts - before)["sync_directory"] == 1
    assert path.read_bytes() == CONTENT
    assert kept(path) == {"00.segment.lost": CONTENT[start:]}


@pytest.mark.parametrize("operation", ["pwrite", "fdatasync"])
def test_unfinished_copy_is_removed(path: Path, operation: str) -> None:
    files = FaultyFiles()
    files.fail(operation, errno.ENOSPC, path=".lost")
    with pytest.raises(OSError, match="No space"):
        Quarantine(files, path.parent).copy(path, 7)
    assert not kept(path)
    assert path.read_bytes() == CONTENT
