import json
import os
import platform
from pathlib import Path

import pytest

from tests.support.child_process import in_child
from tests.support.damaged_json import DAMAGED_JSON
from tests.support.faulty_files import FaultyFiles
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.disk.lock import StoreLock, is_owned, owner_elsewhere, read_owner
from timestone.errors import StoreLocked

BOOT_ID = bytes(range(16))


class ProbedFiles(Files):
    """Files of which another caller, like `inspect`, has the lock the first two times that it is asked for."""

    refused = 2

    def try_lock(self, fd: int) -> bool:
        if self.refused:
            self.refused -= 1
            return False
        return super().try_lock(fd)


@pytest.fixture
def path(quick_directory: Path) -> Path:
    return quick_directory / "LOCK"


def test_owner_is_written_into_the_file(path: Path) -> None:
    lock = StoreLock(Files(), path, BOOT_ID)
    owner = json.loads(path.read_text())
    assert (owner["pid"], owner["host"], owner["boot_id"]) == (os.getpid(), platform.node(), BOOT_ID.hex())
    assert read_owner(Files(), path) == (os.getpid(), platform.node())
    lock.release()


def test_second_owner_is_refused_with_the_first_one_named(path: Path) -> None:
    lock = StoreLock(Files(), path, BOOT_ID)
    with pytest.raises(StoreLocked) as caught:
        StoreLock(Files(), path, BOOT_ID)
    assert (caught.value.pid, caught.value.host, caught.value.path) == (
        os.getpid(),
        platform.node(),
        path.parent,
    )
    assert str(caught.value).endswith(", which is this one: it has the store open already")
    lock.release()
    StoreLock(Files(), path, BOOT_ID).release()


def test_owner_in_another_container_is_not_taken_for_this_process(path: Path) -> None:
    """Each container has a process 1, and with the network of the host also its name."""
    lock = StoreLock(Files(), path, BOOT_ID)

    def run(pipe: int) -> None:
        path.write_text(json.dumps({"pid": os.getpid(), "host": platform.node(), "boot_id": ""}))
        with pytest.raises(StoreLocked) as caught:
            StoreLock(Files(), path, BOOT_ID)
        os.write(pipe, str(caught.value).encode())

    assert in_child(run)[1].endswith(f"on {platform.node()}".encode())
    lock.release()


def test_lock_of_a_dead_owner_is_free(path: Path) -> None:
    def run(pipe: int) -> None:
        StoreLock(Files(), path, BOOT_ID)
        os._exit(3)

    in_child(run)
    pid, _ = read_owner(Files(), path)
    assert pid != os.getpid(), "the file still tells who the last one was"
    StoreLock(Files(), path, BOOT_ID).release()


@pytest.mark.parametrize(
    "content",
    [b"", b"junk", b"[]", b"{}", b'{"pid": "x", "host": 1}', b'{"pid": 1e999, "host": ""}', b"\xff\xfe"],
)
def test_owner_is_unknown_when_the_file_is_not_readable(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert read_owner(Files(), path) == (None, None)
    fd = os.open(path, os.O_RDWR)
    Files().try_lock(fd)
    with pytest.raises(StoreLocked, match="another process"):
        StoreLock(Files(), path, BOOT_ID)
    os.close(fd)


def test_owner_is_unknown_when_the_file_is_missing(path: Path) -> None:
    assert read_owner(Files(), path) == (None, None)
    assert not is_owned(Files(), path)


def test_owner_that_belongs_to_another_user_is_alive(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`inspect` of a copy did not say whose it is when the server runs as another user."""

    def refuse(pid: int, signal: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    path.write_text(json.dumps({"pid": 4321, "boot_id": Clock().boot_id().hex()}))
    assert owner_elsewhere(Files(), path) == 4321


@pytest.mark.parametrize("pid", ["1e999", "9" * 40])
def test_pid_without_a_process_is_not_alive(path: Path, pid: str) -> None:
    path.write_text(f'{{"pid": {pid}, "boot_id": "{Clock().boot_id().hex()}"}}')
    assert owner_elsewhere(Files(), path) is None


def test_lock_is_released_when_its_file_cannot_be_written(path: Path) -> None:
    """Held by a leaked descriptor, it would keep the store closed until the process ends."""
    files = FaultyFiles()
    files.fail("pwrite", 28)
    with pytest.raises(OSError, match="No space"):
        StoreLock(files, path, BOOT_ID)
    StoreLock(files, path, BOOT_ID).release()


def test_release_frees_the_store_though_a_child_just_forked_has_the_descriptor(path: Path) -> None:
    """A store was closed and opened again while a child had not yet closed its copy: owned, by this very process."""
    lock = StoreLock(Files(), path, BOOT_ID)
    hold, let_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(let_go)
        os.read(hold, 1)
        os._exit(0)
    lock.release()
    StoreLock(Files(), path, BOOT_ID).release()
    os.close(let_go)
    os.close(hold)
    assert os.waitpid(pid, 0)[1] == 0


def test_lock_stays_with_the_parent_when_a_child_closes_its_copy(path: Path) -> None:
    lock = StoreLock(Files(), path, BOOT_ID)

    def run(pipe: int) -> None:
        lock.abandon()

    assert in_child(run)[0] == 0
    with pytest.raises(StoreLocked):
        StoreLock(Files(), path, BOOT_ID)
    lock.release()


def test_lock_is_taken_when_a_probe_holds_it_briefly(path: Path) -> None:
    files = ProbedFiles()
    StoreLock(files, path, BOOT_ID).release()
    assert files.refused == 0, "it was refused, and asked again"


def test_release_closes_only_its_own_descriptor(path: Path) -> None:
    """A forked child gave its copy of the store up, opened a file that got the same number, and forked again: the
    grandchild gave the store up once more, and closed that file."""
    lock = StoreLock(Files(), path, BOOT_ID)
    lock.release()
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    lock.release()
    for fd in taken:
        os.close(fd)


@pytest.mark.parametrize("document", [b'{"pid": 1e300}', *DAMAGED_JSON.values()])
def test_file_without_an_owner_gives_no_owner(path: Path, document: bytes) -> None:
    path.write_bytes(document)
    assert read_owner(Files(), path) == (None, None)
    assert owner_elsewhere(Files(), path) is None
    StoreLock(Files(), path, BOOT_ID).release()
