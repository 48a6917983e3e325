"""Flushes in other threads: the compiled ones, and those of Python."""

import errno
import os
import select
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from timestone.kernel import flush as in_python
from timestone.kernel import loops

FLUSHES = pytest.mark.parametrize(
    "flush_type", [in_python.Flush, loops.Flush], ids=["in Python", "as installed"]
)


@pytest.fixture
def fds(tmp_path: Path) -> tuple[int, int]:
    return tuple(os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in "ab")  # type: ignore[return-value]


@FLUSHES
def test_two_files_are_flushed(flush_type: type[loops.Flush], fds: tuple[int, int]) -> None:
    for _ in range(100):
        os.pwrite(fds[0], b"x", 0)
        flush = flush_type(*fds)
        assert flush.wait()[0] == flush.wait()[0] == 0
        assert flush.has_ended


@FLUSHES
@pytest.mark.parametrize("place", [0, 1])
def test_flush_names_the_file_that_failed(
    flush_type: type[loops.Flush], place: int, fds: tuple[int, int]
) -> None:
    pipe, _ = os.pipe()
    files = [fds[0], fds[1]]
    files[place] = pipe
    assert flush_type(*files).wait() == (errno.EINVAL, pipe)
    assert flush_type(pipe).wait() == (errno.EINVAL, pipe)


@FLUSHES
def test_end_wakes_the_reader_of_a_descriptor_once(
    flush_type: type[loops.Flush], fds: tuple[int, int]
) -> None:
    wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
    for _ in range(20):
        flush = flush_type(*fds, wake_fd)
        assert select.select([wake_fd], [], [], 20)[0]
        assert flush.has_ended
        flush.wait()
        os.eventfd_read(wake_fd)


@FLUSHES
def test_many_flushes_at_a_time_end_for_each_of_many_waiters(
    flush_type: type[loops.Flush], fds: tuple[int, int]
) -> None:
    with ThreadPoolExecutor(16) as executor:
        flushes = [flush_type(*fds) for _ in range(50)]
        waits: list[Callable[[], tuple[int, int]]] = [one.wait for one in flushes for _ in range(4)]
        assert {one.result(20)[0] for one in map(executor.submit, waits)} == {0}


@FLUSHES
def test_flush_that_nobody_keeps_ends_before_its_files_are_closed(
    flush_type: type[loops.Flush], tmp_path: Path
) -> None:
    for number in range(50):
        fd = os.open(tmp_path / f"{number}", os.O_RDWR | os.O_CREAT)
        flush_type(fd)
        os.close(fd)


@FLUSHES
def test_forked_child_flushes_with_threads_of_its_own(
    flush_type: type[loops.Flush], fds: tuple[int, int]
) -> None:
    flush_type(*fds).wait()
    before = flush_type(*fds)  # perhaps under way, which never ends in the child
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = flush_type(*fds).wait()[0]
            del before
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    before.wait()
