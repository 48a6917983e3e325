"""The catalogue: durable documents, errors of the engine's types, and a reader that changes nothing."""

import errno
import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.support.damaged_json import DAMAGED_JSON
from tests.support.quick_directory import open_below
from timestone.config import LogConfig
from timestone.disk.catalog import FORMAT_VERSION, Catalog, row_crc
from timestone.errors import CorruptLog, StoreClosed, UnsupportedFormat


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def test_documents_and_logs_are_kept_for_the_next_process(path: Path) -> None:
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


def test_documents_are_read_in_pages_in_order_and_by_a_part_of_their_key(path: Path) -> None:
    catalog = Catalog(path)
    keys = ["", "\0group", "a", "a\0anna", "b", "ä", "z"]
    catalog.put_many("space", {key: key.encode() for key in keys})
    catalog.put_many("space2", {"c": b""})
    found, following = catalog.page("space", "\0group", 2)
    assert (list(found), following) == (["a", "a\0anna"], "a\0anna")
    found, following = catalog.page("space", following or "", 3)
    assert (list(found.items()), following) == ([(key, key.encode()) for key in ("b", "z", "ä")], "ä")
    assert catalog.page("space", "ä", 3) == ({}, None)
    assert list(catalog.page("space", "", 9, "ann")[0]) == ["a\0anna"]
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE documents SET value = 'x' WHERE key = 'b'")
    with pytest.raises(CorruptLog, match="'b'"):
        catalog.page("space", "a\0anna", 2)
    catalog.close()


def test_image_has_the_current_content_of_the_catalogue(path: Path, tmp_path: Path) -> None:
    owner, reader = Catalog(path), Catalog(path, read_only=True)
    owner.put_many("sessions", {"a": b"1", "b": b"2"})
    image = reader.image()
    owner.put_many("sessions", {"a": b"later"})
    owner.close()
    reader.close()
    (tmp_path / "copy.db").write_bytes(image)
    copy = Catalog(tmp_path / "copy.db")
    assert copy.items("sessions") == {"a": b"1", "b": b"2"}
    copy.check()
    copy.close()


def test_unknown_setting_is_ignored(path: Path) -> None:
    catalog = Catalog(path)
    catalog.put_log("a", 0, LogConfig(), 0, 0)
    catalog.close()
    settings = '{"segment_bytes": 5, "from_the_future": 1}'
    with sqlite3.connect(path) as connection:
        crc = row_crc(("a", 0, settings, 0, 0))
        connection.execute("UPDATE logs SET settings = ?, crc = ?", (settings, crc))
    connection.close()
    again = Catalog(path)
    assert again.logs()["a", 0].config == LogConfig(segment_bytes=5)
    again.close()


DAMAGED_TEXT = [document.decode() for name, document in DAMAGED_JSON.items() if name != "no UTF-8"]
"""SQLite itself refuses invalid text."""


@pytest.mark.parametrize("settings", ['{"segment_bytes": "x"}', *DAMAGED_TEXT])
def test_invalid_settings_are_reported_with_the_file(path: Path, settings: str) -> None:
    catalog = Catalog(path)
    catalog.put_log("a", 0, LogConfig(), 0, 0)
    catalog.close()
    with sqlite3.connect(path) as connection:
        crc = row_crc(("a", 0, settings, 0, 0))
        connection.execute("UPDATE logs SET settings = ?, crc = ?", (settings, crc))
    connection.close()
    again = Catalog(path)
    with pytest.raises(CorruptLog, match=f"{path}: the catalogue has an invalid row"):
        again.logs()
    again.close()


def test_catalogue_of_a_newer_version_raises_unsupported_format(path: Path) -> None:
    Catalog(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()
    with pytest.raises(UnsupportedFormat):
        Catalog(path)


def earlier_version(path: Path) -> None:
    """A catalogue of version 1, which had no checksums."""
    with sqlite3.connect(path) as connection:
        connection.executescript("""
            CREATE TABLE logs (
                name TEXT NOT NULL, partition INTEGER NOT NULL, settings TEXT NOT NULL,
                next_offset INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0,
                PRIMARY KEY (name, partition)
            ) WITHOUT ROWID;
            CREATE TABLE documents (
                space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
                PRIMARY KEY (space, key)
            ) WITHOUT ROWID;
            INSERT INTO logs VALUES ('a', 0, '{"segment_bytes": 5}', 17, 2);
            INSERT INTO documents VALUES ('space', 'key', X'31');
            PRAGMA user_version = 1;
        """)
    connection.close()


def test_view_reads_and_writes_an_earlier_version_unchanged(path: Path) -> None:
    """A query commits beside a server of the earlier version, which must find its tables as it left them."""
    earlier_version(path)
    reader = Catalog(path, read_only=True)
    assert (reader.get("space", "key"), reader.logs()["a", 0].next_offset) == (b"1", 17)
    reader.close()
    guest = Catalog(path)
    guest.put_many("space", {"other": b"2"})
    assert guest.items("space") == {"key": b"1", "other": b"2"}
    guest.check()
    guest.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert len(connection.execute("SELECT * FROM documents").fetchone()) == 3
    connection.close()


def test_owner_gives_an_earlier_version_its_checksums(path: Path) -> None:
    earlier_version(path)
    owner = Catalog(path, upgrade=True)
    assert (owner.get("space", "key"), owner.logs()["a", 0].epoch) == (b"1", 2)
    owner.check()
    owner.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
        connection.execute("UPDATE documents SET value = X'30'")
    connection.close()
    with pytest.raises(CorruptLog, match="'key' of the space 'space'"):
        Catalog(path).get("space", "key")


def test_disk_without_room_for_checksums_leaves_an_earlier_version_usable(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    earlier_version(path)
    path.chmod(0o400)
    if os.access(path, os.W_OK):  # root may write nevertheless: then a lock stands for a disk that refuses
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
    owner = Catalog(path, upgrade=True)
    assert "stays as it is" in caplog.text
    assert owner.items("space") == {"key": b"1"}
    owner.close()


def stored(path: Path, change: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()


DAMAGE = {
    "value": "UPDATE documents SET value = X'30' WHERE key = 'b'",
    "key": "UPDATE documents SET key = 'c' WHERE key = 'b'",
    "space": "UPDATE documents SET space = 'spade' WHERE key = 'b'",
    "kind": "UPDATE documents SET value = '2' WHERE key = 'b'",
    "checksum": "UPDATE documents SET crc = crc + 1 WHERE key = 'b'",
}


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_damaged_row_is_reported_with_file_table_and_key(path: Path, change: str) -> None:
    """A flipped bit in a committed offset was read as another offset, without any error."""
    catalog = Catalog(path)
    catalog.put_many("space", {"a": b"1", "b": b"2"})
    catalog.close()
    stored(path, change)
    again = Catalog(path)
    assert again.get("space", "a") == b"1"
    told = r"catalog.db.*its row '[bc]' of the space 'spa[cd]e' \(table documents\) does not hold.*Next: "
    with pytest.raises(CorruptLog, match=told):
        again.check()
    if "space =" not in change:
        with pytest.raises(CorruptLog, match=told):
            again.items("space")
    again.put_many("space", {"b": None, "c": None})
    assert again.items("space") == {"a": b"1"}, "what does not hold can be removed by its key"
    again.close()


@pytest.mark.parametrize("change", ["next_offset = 18", "epoch = 3", "name = 'c'", "settings = '{}'"])
def test_damaged_row_of_a_log_is_reported_by_name(path: Path, change: str) -> None:
    catalog = Catalog(path)
    catalog.put_log("b", 3, LogConfig(), 17, 2)
    catalog.close()
    stored(path, f"UPDATE logs SET {change}")
    again = Catalog(path)
    with pytest.raises(CorruptLog, match=r"log '[bc]', partition 3 \(table logs\) does not hold"):
        again.logs()
    again.close()


def test_file_is_corrupt_when_it_is_not_a_database(path: Path) -> None:
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(CorruptLog, match="the catalogue cannot be read"):
        Catalog(path)


@pytest.mark.parametrize("content", [b"no database" * 999, None])
def test_catalogue_is_closed_when_it_cannot_be_used(path: Path, content: bytes | None) -> None:
    Catalog(path).close()
    if content is not None:
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
        connection.close()
    with pytest.raises((CorruptLog, UnsupportedFormat)) as caught:
        Catalog(path)
    assert not open_below(path.parent), "as long as the error is there, its traceback is as well"
    del caught


def test_open_reports_the_reason_when_the_file_cannot_be_opened(path: Path) -> None:
    path.symlink_to(path)
    for read_only in (True, False):
        with pytest.raises(OSError, match=f"Too many levels of symbolic links: '{path}'"):
            Catalog(path, read_only=read_only)


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


def test_closed_catalogue_raises_that_it_is_closed(path: Path) -> None:
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


def test_view_of_a_crashed_store_reads_committed_rows_and_changes_nothing(path: Path) -> None:
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


def test_log_is_removed_with_a_document_or_not_at_all(path: Path) -> None:
    catalog = Catalog(path)
    for partition in (0, 1):
        catalog.put_log("a", partition, LogConfig(), 0, 0)
    catalog.remove_log("a", 0, "deletions", "a-0", b"when")
    assert catalog.logs().keys() == {("a", 1)}
    assert catalog.items("deletions") == {"a-0": b"when"}
    catalog.close()


def test_keys_under_a_name_are_removed_and_no_others(path: Path) -> None:
    """Also none that a wildcard of SQL would take in."""
    keys = ["a_b-0", "a_b-0/x", "a_b-0/y/z", "a_b-01", "axb-0/x", "A_B-0/x", "a_b-0x"]
    catalog = Catalog(path)
    for space in ("readers", "retention", "mqtt.session"):
        catalog.put_many(space, dict.fromkeys(keys, b""))
    catalog.remove_under("a_b-0", ["readers", "retention"])
    for space in ("readers", "retention"):
        assert catalog.items(space).keys() == {"a_b-01", "axb-0/x", "A_B-0/x", "a_b-0x"}
    assert catalog.items("mqtt.session").keys() == set(keys)
    catalog.close()


@pytest.mark.parametrize("name", ["catalog.db", "catalog.db-journal"])
@pytest.mark.parametrize("read_only", [True, False])
def test_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(
    path: Path, name: str, read_only: bool
) -> None:
    Catalog(path).close()
    pipe = path.with_name(name)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="expected a regular file") as refused:
        Catalog(path, read_only=read_only)
    assert refused.value.filename == str(pipe)
