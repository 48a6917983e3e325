"""The files of a store are for its owner alone, or for the group that its folder is shared with, for any umask."""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import timestone
from tests.support.access import check_modes
from tests.support.child_process import in_child
from tests.support.postings import frame, staged
from tests.support.waiting import wait_for_seals
from timestone import Compression, LogConfig, ReaderId, Store
from timestone.disk.files import Files
from timestone.format import names
from timestone.repair.backup import back_up_store
from timestone.repair.salvage import salvage_store
from timestone.spool.producer import SpoolProducer

OTHER_USER = 65534
GROUP = 54321
"""A group that has no other files on this machine."""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter: those of pytest are closed."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct, autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@contextmanager
def used_store(path: Path) -> Iterator[Store]:
    """An open store with all kinds of files, also those that come and go."""
    settings = LogConfig(segment_bytes=2000, compression=Compression.ZSTD)
    with timestone.open(path, log=settings, min_free_bytes=0) as store:
        store.accept_postings()
        for name in ("a", "b"):
            log = store.log(name)
            for _ in range(10):
                log.append_many([b"x" * 100] * 10, topic="t")
            wait_for_seals(log)
            assert log.apply_compression()
        store.commit_readers({ReaderId("a", 0, "reader"): 10})
        staged(path, [[frame([b"staged"])]])
        SpoolProducer(path, timestone.open).post(staged(path, [[frame([b"posted"])]], number=1))
        yield store


@contextmanager
def journal(path: Path) -> Iterator[None]:
    """The catalogue in the middle of a transaction."""
    connection = sqlite3.connect(path / names.CATALOG_NAME)
    connection.execute("INSERT INTO documents VALUES ('test', 'test', 'test', 0)")
    assert (path / f"{names.CATALOG_NAME}-journal").exists()
    yield
    connection.rollback()
    connection.close()


def check_groups(folder: Path) -> None:
    assert {path.stat().st_gid for path in [folder, *folder.rglob("*")]} == {GROUP}


def as_other_user(run: Callable[[], bytes], groups: list[int]) -> bytes:
    """Return the result for another user who is in these groups."""

    def become(report: int) -> None:
        os.setgroups(groups)
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
        os.write(report, run())

    status, report = in_child(become)
    assert status == 0
    return report


def shared(path: Path, mode: int) -> Path:
    path.mkdir()
    os.chown(path, 0, GROUP)
    os.chmod(path, mode)
    return path


def test_store_is_for_its_owner_alone(place: Path) -> None:
    path = place / "new" / "store"
    with used_store(path), journal(path):
        assert {one.name for one in (path / "inbox").iterdir()} == {"bell", "staging"}
        check_modes(path.parent)


def test_store_in_a_folder_that_everyone_may_read_is_for_its_owner_alone(place: Path) -> None:
    path = place / "store"
    path.mkdir()
    os.chmod(path, 0o755)
    with used_store(path), journal(path):
        for one in path.iterdir():
            check_modes(one)


def test_copies_are_for_their_owner_alone(place: Path) -> None:
    with used_store(place / "store"):
        back_up_store(place / "store", place / "backup")
    salvage_store(place / "store", place / "salvage")
    for name in ("backup", "salvage"):
        check_modes(place / name)


def test_files_that_are_there_keep_their_modes(place: Path) -> None:
    with timestone.open(place, min_free_bytes=0) as store:
        store.log("a").append(b"x")
    for one in place.rglob("*"):
        os.chmod(one, 0o755 if one.is_dir() else 0o644)
    before = {path: path.stat().st_mode for path in place.rglob("*")}
    with timestone.open(place, min_free_bytes=0) as store:
        store.log("b").append(b"x")
    assert {path: path.stat().st_mode for path in before} == before
    check_modes(place / "b-0")


@root_only
def test_another_user_cannot_read_any_file(place: Path) -> None:
    path = place / "store"
    path.mkdir()
    os.chmod(path, 0o755)

    def open_all() -> bytes:
        opened = []
        for folder, _, files in os.walk(path):
            for name in files:
                try:
                    os.close(os.open(Path(folder) / name, os.O_RDONLY | os.O_NONBLOCK))
                    opened.append(name)
                except PermissionError:
                    continue
        return repr(opened).encode()

    with used_store(path), journal(path):
        assert as_other_user(open_all, [GROUP]) == b"[]"


@pytest.mark.slow
@root_only
def test_group_of_the_folder_reads_the_store_when_it_is_shared(place: Path) -> None:
    path = shared(place / "store", 0o2750)

    def read() -> bytes:
        with timestone.view(path) as view:
            return str([len(list(view.log(name).reader())) for name in ("a", "b")]).encode()

    def write() -> bytes:
        try:
            Files().make_directory(path / "mine")
        except PermissionError:
            return b"refused"
        return b"done"

    with used_store(path):
        with journal(path):
            check_modes(path, of_folders=0o750, of_files=0o640)
            check_groups(path)
        assert as_other_user(read, [GROUP]) == b"[100, 100]"
        assert as_other_user(write, [GROUP]) == b"refused"


@root_only
def test_group_of_the_folder_posts_records_when_it_may_write(place: Path) -> None:
    path = shared(place / "store", 0o2770)

    def post() -> bytes:
        SpoolProducer(path, timestone.open).post(staged(path, [[frame([b"of the group"])]], number=2))
        with timestone.view(path) as view:
            view.commit_readers({ReaderId("a", 0, "of the group"): 5})
        return b"done"

    with used_store(path) as store:
        assert as_other_user(post, [GROUP]) == b"done"
        assert [record.payload for record in store.log("commands").reader()] == [b"posted", b"of the group"]
        assert store.readers()[ReaderId("a", 0, "of the group")].offset == 5
        check_modes(path, of_folders=0o770, of_files=0o660)
        check_groups(path)
    back_up_store(path, place / "backup")
    check_modes(place / "backup")
