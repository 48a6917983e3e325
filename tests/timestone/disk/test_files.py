"""The contract of `Files`, which its twins keep as well."""

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from tests.support.interruption import interrupted_at
from tests.support.recording_files import RecordingFiles
from timestone.disk.files import Files
from timestone.kernel import loops

TWINS: dict[str, Callable[[Path], Files]] = {
    "real": lambda root: Files(),
    "recording": RecordingFiles,
    "faulty without faults": lambda root: FaultyFiles(),
    "faulty over recording": lambda root: FaultyFiles(RecordingFiles(root)),
}


@pytest.fixture(params=list(TWINS.values()), ids=list(TWINS))
def files(request: pytest.FixtureRequest, quick_directory: Path) -> Files:
    twin: Files = request.param(quick_directory)
    return twin


@pytest.fixture
def path(quick_directory: Path) -> Path:
    return quick_directory / "file"


def test_written_bytes_can_be_read_at_any_position(files: Files, path: Path) -> None:
    fd = files.create(path)
    files.write_all(fd, b"hello", 0)
    files.write_all(fd, memoryview(b"world"), 10)
    files.write_all(fd, bytearray(b"!"), 15)
    assert files.pread(fd, 100, 0) == b"hello" + bytes(5) + b"world!"
    assert files.pread(fd, 3, 11) == b"orl"
    assert files.pread(fd, 3, 100) == b""
    assert files.size(fd) == 16
    files.close(fd)
    assert files.read_file(path) == path.read_bytes()


def test_read_continues_after_short_reads(path: Path) -> None:
    class ShortFiles(Files):
        def pread(self, fd: int, length_bytes: int, position: int) -> bytes:
            return super().pread(fd, min(length_bytes, 3), position)

    path.write_bytes(b"0123456789")
    files = ShortFiles()
    fd = files.open(path)
    assert files.read_all(fd, 8, 1) == b"12345678"
    assert files.read_all(fd, 100, 8) == b"89"
    assert files.read_all(fd, 0, 2) == files.read_all(fd, 5, 10) == b""
    files.close(fd)
    assert files.read_file(path) == b"0123456789"


def test_pieces_are_written_back_to_back(files: Files, path: Path) -> None:
    fd = files.create(path)
    many = [bytes([number % 251]) * (number % 3) for number in range(3000)]  # more than one call takes
    for pieces in ((), (b"",), (b"one",), (b"a", b"", b"bc"), tuple(many)):
        whole = b"".join(pieces)
        files.write_pieces(fd, pieces, len(whole), 7)
        assert files.pread(fd, len(whole), 7) == whole
    files.close(fd)


def test_create_refuses_an_existing_file_and_leaves_it_alone(files: Files, path: Path) -> None:
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        files.create(path)
    assert path.read_bytes() == b"mine"


def test_open_refuses_a_missing_file(files: Files, path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(path)


def test_a_file_opened_for_reading_cannot_be_written(files: Files, path: Path) -> None:
    path.write_bytes(b"x")
    fd = files.open(path)
    with pytest.raises(OSError) as caught:
        files.pwrite(fd, b"y", 0)
    assert caught.value.errno == errno.EBADF
    files.close(fd)


def test_writing_pieces_raises_an_error_with_the_file_when_it_fails(files: Files, path: Path) -> None:
    path.write_bytes(b"x")
    fd = files.open(path)
    with pytest.raises(OSError) as caught:
        files.write_pieces(fd, (b"a", b"b"), 2, 0)
    assert (caught.value.errno, caught.value.filename) == (errno.EBADF, str(path))
    files.close(fd)


def test_descriptors_are_not_inherited_by_child_programs(files: Files, path: Path) -> None:
    fds = [files.create(path), files.open(path), files.open_lock(path.with_name("LOCK"))]
    assert not any(os.get_inheritable(fd) for fd in fds)
    for fd in fds:
        files.close(fd)


def test_reserve_grows_the_file_with_zeros_and_keeps_its_content(files: Files, path: Path) -> None:
    fd = files.create(path)
    files.write_all(fd, b"data", 0)
    files.reserve(fd, 0, 8192)
    assert files.size(fd) == 8192
    assert files.pread(fd, 8192, 0) == b"data" + bytes(8188)
    assert os.fstat(fd).st_blocks * 512 >= 8192, "the blocks are there, not just the length"
    files.close(fd)


def blocks_bytes(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def test_allocating_blocks_keeps_the_size_and_truncate_frees_them(files: Files, path: Path) -> None:
    fd = files.create(path)
    files.write_all(fd, b"data", 0)
    try:
        files.allocate_ahead(fd, 4, 1 << 20)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        pytest.skip("this file system allocates no blocks behind the end of a file")
    assert blocks_bytes(fd) >= 1 << 20
    assert files.read_file(path) == b"data"
    files.truncate(fd, 4)
    assert blocks_bytes(fd) < 1 << 20
    assert files.read_file(path) == b"data"
    files.close(fd)


def test_allocating_blocks_raises_an_error_with_the_file_when_it_fails(files: Files, path: Path) -> None:
    path.write_bytes(b"x")
    fd = files.open(path)
    with pytest.raises(OSError) as caught:
        files.allocate_ahead(fd, 1, 4096)
    assert caught.value.filename == str(path) or caught.value.errno == errno.ENOSYS
    files.close(fd)


def test_truncate_shortens_the_file(files: Files, path: Path) -> None:
    fd = files.create(path)
    files.write_all(fd, b"0123456789", 0)
    files.truncate(fd, 4)
    assert files.read_file(path) == b"0123"
    files.close(fd)


def test_rename_replaces_and_unlink_removes(files: Files, quick_directory: Path) -> None:
    old, new = quick_directory / "old", quick_directory / "new"
    for name, content in ((old, b"1"), (new, b"2")):
        fd = files.create(name)
        files.write_all(fd, content, 0)
        files.close(fd)
    inode = files.stat(old).st_ino
    files.rename(old, new)
    assert files.names(quick_directory) == ["new"]
    assert new.read_bytes() == b"1"
    assert files.stat(new).st_ino == inode
    files.unlink(new)
    assert files.names(quick_directory) == []


def test_removed_file_stays_readable_through_an_open_descriptor(files: Files, path: Path) -> None:
    fd = files.create(path)
    files.write_all(fd, b"still here", 0)
    files.unlink(path)
    assert files.pread(fd, 100, 0) == b"still here"
    files.close(fd)


def test_syncs_succeed_on_a_working_disk(files: Files, quick_directory: Path, path: Path) -> None:
    fd = files.create(path)
    files.fdatasync(fd)
    files.sync_directory(quick_directory)
    files.close(fd)


def test_two_files_are_flushed_together(files: Files, path: Path) -> None:
    one, other = files.create(path), files.create(path.with_name("other"))
    for _ in range(3):
        files.fdatasync_both(one, other)
    files.close(one)
    files.close(other)


@pytest.mark.parametrize("failing", [0, 1])
def test_flush_of_two_files_raises_after_both_ended_when_one_fails(failing: int, path: Path) -> None:
    ended: list[bool] = []

    class Noted(Files):
        def end_flush(self, flush: loops.Flush) -> None:
            try:
                super().end_flush(flush)
            finally:
                ended.append(flush.has_ended)

    files = Noted()
    fds = [files.create(path), files.create(path.with_name("other"))]
    pipe = os.pipe()
    whole = fds[failing]
    fds[failing] = pipe[0]
    with pytest.raises(OSError, match=r"Invalid argument.*pipe"):
        files.fdatasync_both(*fds)
    assert ended == [True]
    for fd in (*fds, whole, pipe[1]):
        files.close(fd)


def test_flush_of_two_files_works_in_a_forked_child(quick_directory: Path) -> None:
    """The helping thread of the parent is not there any more, and waiting for it would never end."""
    files = Files()
    one, other = files.create(quick_directory / "one"), files.create(quick_directory / "other")
    files.fdatasync_both(one, other)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            files.fdatasync_both(one, other)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    files.close(one)
    files.close(other)


def test_syncing_a_missing_directory_is_an_error(files: Files, quick_directory: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.sync_directory(quick_directory / "missing")


def test_a_map_is_read_only(files: Files, path: Path) -> None:
    """A store through a mapping on a full disk is SIGBUS, so the kernel must not let us make one at all."""
    fd = files.create(path)
    files.reserve(fd, 0, 4096)
    mapped = files.map(fd, 4096)
    with pytest.raises(TypeError):
        mapped[0] = 1
    with pytest.raises(TypeError):
        mapped.write(b"x")
    address_line = next(
        line for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line
    )
    assert address_line.split()[1] == "r--s"
    files.close(fd)


def test_a_map_shows_later_writes(files: Files, path: Path) -> None:
    fd = files.create(path)
    files.reserve(fd, 0, 4096)
    mapped = files.map(fd, 4096)
    files.write_all(fd, b"later", 100)
    assert mapped[100:105] == b"later"
    files.close(fd)


def test_a_lock_is_held_by_one_descriptor_and_freed_by_its_close(files: Files, path: Path) -> None:
    first, second = files.open_lock(path), files.open_lock(path)
    assert files.try_lock(first)
    assert not files.try_lock(second)
    files.close(first)
    assert files.try_lock(second)
    files.close(second)


def test_free_bytes_is_the_free_space_of_the_file_system(files: Files, quick_directory: Path) -> None:
    assert files.free_bytes(quick_directory) > 0


class _ShortWrites(Files):
    """Writes at most three bytes at a time, and nothing at all after `limit` calls."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self.limit -= 1
        return super().pwrite(fd, memoryview(data)[:3], position) if self.limit >= 0 else 0


def test_write_all_continues_after_short_writes(path: Path) -> None:
    files = _ShortWrites(100)
    fd = files.create(path)
    files.write_all(fd, b"0123456789", 2)
    files.close(fd)
    assert path.read_bytes() == b"\0\0" + b"0123456789"


def test_writing_pieces_continues_after_short_writes(path: Path) -> None:
    files = FaultyFiles()
    fd = files.create(path)
    for cut in range(1, 7):
        fault = files.fail("pwrite", 0, written_bytes=cut)
        files.write_pieces(fd, (b"abc", b"", b"defg"), 7, 2)
        fault.lift()
        assert files.pread(fd, 7, 2) == b"abcdefg"
    files.close(fd)


def test_write_all_raises_when_a_write_makes_no_progress(path: Path) -> None:
    files = _ShortWrites(2)
    fd = files.create(path)
    with pytest.raises(OSError, match="wrote nothing"):
        files.write_all(fd, b"0123456789", 0)
    files.close(fd)


def test_write_all_of_nothing_writes_nothing(path: Path) -> None:
    files = Files()
    fd = files.create(path)
    files.write_all(fd, b"", 100)
    assert files.size(fd) == 0
    files.close(fd)


def test_error_of_a_descriptor_names_its_file(path: Path) -> None:
    """The kernel's error does not name the file: "[Errno 5] Input/output error" is of no use in a process with a
    thousand files."""
    files = Files()
    path.touch()
    fd = files.open(path)
    refused: list[Callable[[], object]] = [
        lambda: files.pwrite(fd, b"x", 0),
        lambda: files.pread(fd, 1, -1),
        lambda: files.reserve(fd, 0, 10),
        lambda: files.truncate(fd, -1),
    ]
    for call in refused:
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            call()
        assert caught.value.filename == str(path)
    files.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        files.fdatasync(fd)
    assert caught.value.filename is None, "there is no file any more"


def test_new_file_has_its_content_and_is_flushed(files: Files, path: Path) -> None:
    files.write_file(path, b"content")
    assert path.read_bytes() == b"content"
    with pytest.raises(FileExistsError):
        files.write_file(path, b"other")
    assert path.read_bytes() == b"content"


@pytest.mark.parametrize(
    ("start", "end", "copied"), [(0, None, b"0123456789"), (3, 7, b"3456"), (8, 99, b"89"), (10, None, b"")]
)
def test_copy_has_the_requested_part_of_a_file(
    files: Files, path: Path, start: int, end: int | None, copied: bytes
) -> None:
    path.write_bytes(b"0123456789")
    copy = path.with_name("copy")
    files.copy_file(path, copy, start, end)
    assert copy.read_bytes() == copied


@pytest.mark.parametrize("operation", ["pwrite", "fdatasync"])
def test_new_file_is_removed_when_it_cannot_be_written(path: Path, operation: str) -> None:
    files = FaultyFiles()
    files.fail(operation, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        files.write_file(path, b"content")
    assert not path.exists()
    files.fail(operation, errno.ENOSPC)
    files.fail("unlink", errno.EROFS)
    with pytest.raises(OSError, match="No space"):
        files.write_file(path, b"content")
    assert path.exists(), "the first error is reported"


def test_interrupted_new_file_is_not_removed_later_when_another_has_its_name(tmp_path: Path) -> None:
    files, path = Files(), tmp_path / "file"
    gc.freeze()  # a collection then takes microseconds, not the time for all that earlier tests have left
    point, error = 1, interrupted_at(1, lambda: files.write_file(path, b"interrupted"))
    while error is not None:
        path.write_bytes(b"later")
        error = None
        gc.collect()
        assert path.read_bytes() == b"later", f"interrupted at point {point}"
        path.unlink()
        point += 1
        error = interrupted_at(point, lambda: files.write_file(path, b"interrupted"))
    assert point > 10


def test_directories_are_made_from_the_top_each_durable_before_the_next(quick_directory: Path) -> None:
    files = FaultyFiles()
    path = quick_directory / "a" / "b" / "c"
    files.make_directories(path)
    made = [path.parents[1], path.parents[0], path]
    assert files.calls == [
        ("sync_directory", str(quick_directory.parent)),
        *(
            call
            for one in made
            for call in (("make_directory", str(one)), ("sync_directory", str(one.parent)))
        ),
    ]


def test_existing_directory_is_made_durable_as_well(quick_directory: Path) -> None:
    """The process that created it may be killed before it syncs it, and a power loss would then take acknowledged
    records with it."""
    files = FaultyFiles()
    path = quick_directory / "a" / "b"
    path.parent.mkdir()
    files.make_directories(path.parent)
    files.make_directories(path)
    there = ("sync_directory", str(quick_directory))
    assert files.calls == [there, there, ("make_directory", str(path)), ("sync_directory", str(path.parent))]


def test_existing_directory_is_accepted_when_its_parent_cannot_be_synced(quick_directory: Path) -> None:
    files = FaultyFiles()
    files.fail("sync_directory", errno.EINVAL)
    files.make_directories(quick_directory)


@pytest.mark.parametrize("is_written", [False, True])
def test_open_refuses_a_pipe_and_names_it(files: Files, quick_directory: Path, is_written: bool) -> None:
    path = quick_directory / "0.index"
    os.mkfifo(path)
    with pytest.raises(OSError, match="expected a regular file") as refused:
        files.open(path, write=is_written)
    assert refused.value.filename == str(path)
