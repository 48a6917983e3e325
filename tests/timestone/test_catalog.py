"""The catalogue: durable documents, errors in the words of the engine, and a reader that changes nothing."""

import errno
import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest

from timestone.catalog import FORMAT_VERSION, Catalog
from timestone.config import LogConfig
from timestone.errors import CorruptLog, StoreClosed, UnsupportedFormat


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def test_documents_and_logs_are_there_for_the_next_process(path: Path) -> None:
    catalog = Catalog(path)
    catalog.put_many("space", {"a": b"1", "b": b"\0\xff"})
    catalog.put_many("space", {"a": None, "c": b""})
    catalog.put_many("other", {"a": b"2"})
    catalog.put_log("telemetry", 3, LogConfig(segment_bytes=1000), 17, 2)
    catalog.close()
    again = Catalog(path)
    assert again.items("space") == {"b": b"\0\xff", "c": b""}
    assert again.get("other", "a") == b"2"
    assert again.get("other", "b") is None
    row = again.logs()["telemetry", 3]
    assert (row.config.segment_bytes, row.next_offset, row.epoch) == (1000, 17, 2)
    again.close()


def test_setting_that_this_version_does_not_know_is_left_out(path: Path) -> None:
    catalog = Catalog(path)
    catalog.put_log("a", 0, LogConfig(), 0, 0)
    catalog.close()
    with sqlite3.connect(path) as connection:
        connection.execute('UPDATE logs SET settings = \'{"segment_bytes": 5, "from_the_future": 1}\'')
    connection.close()
    again = Catalog(path)
    assert again.logs()["a", 0].config == LogConfig(segment_bytes=5)
    again.close()


def test_newer_version_is_its_own_error(path: Path) -> None:
    Catalog(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()
    with pytest.raises(UnsupportedFormat):
        Catalog(path)


def test_file_that_is_no_database_is_corrupt(path: Path) -> None:
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(CorruptLog, match="the catalogue cannot be read"):
        Catalog(path)


def test_full_disk_is_an_oserror_with_the_path_and_changes_nothing(path: Path) -> None:
    catalog = Catalog(path)
    catalog.put_many("space", {"a": b"1"})
    (pages,) = catalog._connection.execute("PRAGMA page_count").fetchone()
    catalog._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OSError, match="full") as caught:
        catalog.put_many("space", {"a": b"2", "b": bytes(100_000)})
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert catalog.items("space") == {"a": b"1"}
    catalog._connection.execute(f"PRAGMA max_page_count = {pages + 100}")
    catalog.put_many("space", {"a": b"2"})
    catalog.close()


def test_catalogue_damaged_while_open_is_corrupt(path: Path) -> None:
    catalog = Catalog(path)
    catalog.put_many("space", {str(number): bytes(1000) for number in range(100)})
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xee" * (len(damaged) - 4096)
    path.write_bytes(damaged)
    os.utime(path)
    other = Catalog(path, read_only=True)
    with pytest.raises(CorruptLog):
        other.items("space")
    other.close()
    catalog.close()


def test_closed_catalogue_says_so(path: Path) -> None:
    catalog = Catalog(path)
    catalog.close()
    with pytest.raises(StoreClosed):
        catalog.items("space")
    with pytest.raises(StoreClosed):
        catalog.put_many("space", {"a": b""})


def interrupted_commit(path: Path) -> None:
    """Leave what a process leaves that dies after it has begun to change the database, before it has committed."""
    pid = os.fork()
    if pid == 0:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size = 2")  # pages spill into the file before the commit
        connection.execute("BEGIN")
        connection.execute("UPDATE documents SET value = zeroblob(2000)")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_reader_of_a_crashed_store_sees_what_was_committed_and_changes_nothing(path: Path) -> None:
    """Opening a database with a journal rolls it back: in the file itself, which is not the reader's to write."""
    catalog = Catalog(path)
    content = {str(number): b"%d" % number * 500 for number in range(200)}
    catalog.put_many("space", content)
    catalog.close()
    interrupted_commit(path)
    journal = path.with_name("catalog.db-journal")
    left = (path.read_bytes(), journal.read_bytes())
    reader = Catalog(path, read_only=True)
    assert reader.items("space") == content
    reader.close()
    assert (path.read_bytes(), journal.read_bytes()) == left
    copy = path.with_name("elsewhere")
    shutil.copytree(path.parent, copy)
    owner = Catalog(copy / "catalog.db")
    assert owner.items("space") == content
    owner.close()
