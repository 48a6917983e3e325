"""A folder as a bucket: what is specific to files."""

import errno
from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from timestone.disk.files import Data, Files
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import BucketRefused, BucketUnavailable


def test_url_is_that_of_the_folder(tmp_path: Path) -> None:
    assert FolderBucket(tmp_path / "a b").url == f"file://{tmp_path}/a%20b"


@pytest.mark.parametrize("name", ["", "../x", "a/../../x", "/x", "a//b", "a/."])
def test_names_that_leave_the_folder_are_refused(bucket: FolderBucket, name: str) -> None:
    with pytest.raises(ValueError, match="invalid name"):
        bucket.read(name)
    with pytest.raises(ValueError, match="invalid name"):
        bucket.head(name)
    with pytest.raises(ValueError, match="invalid name"):
        bucket.create(name, b"")


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync"])
def test_a_failed_write_leaves_nothing_and_is_said(tmp_path: Path, operation: str) -> None:
    files = FaultyFiles()
    bucket = FolderBucket(tmp_path / "bucket", files)
    for error, kind in (
        (errno.EIO, BucketUnavailable),
        (errno.ENOSPC, BucketUnavailable),
        (errno.EROFS, BucketRefused),
    ):
        fault = files.fail(operation, error, forever=True)
        with pytest.raises(kind, match=r"a/x.*: "):
            bucket.create("a/x", b"data")
        with pytest.raises(kind, match=r"a/x.*: "):
            bucket.write("a/x", [b"data"])
        fault.lift()
        assert list(bucket.objects("")) == []


class NotingFiles(Files):
    """Notes the operations that make an object durable, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def pwrite(self, fd: int, data: Data, position: int) -> int:
        self.done.append("write")
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self.done.append("flush")

    def link(self, source: Path, target: Path) -> None:
        self.done.append("name")
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self.done.append("name")
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.done.append("flush folder")


@pytest.mark.parametrize("call", ["create", "write"])
def test_objects_are_flushed_before_they_have_their_names(tmp_path: Path, call: str) -> None:
    files = NotingFiles()
    bucket = FolderBucket(tmp_path, files)
    getattr(bucket, call)("x", b"data" if call == "create" else [b"data"])
    assert files.done[files.done.index("write") :] == ["write", "flush", "name", "flush folder"]


def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    files = FaultyFiles()
    bucket = FolderBucket(tmp_path, files)
    (tmp_path / "x").write_bytes(b"1")
    files.fail("open", errno.EACCES, forever=True)
    with pytest.raises(BucketRefused):
        bucket.read("x")
