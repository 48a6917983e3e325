"""The catalogue of a store: its logs with their settings, and durable key-value spaces for whoever needs some
(sessions, retained messages, named readers). A SQLite file; never on the data path.

SQLite guards it against crashes and keeps no checksums, so each row has one of its own: a flipped bit in a committed
offset would else be believed.

Logs can be read without it: a folder's own files say everything but the settings. So a catalogue that is lost
or behind is completed from the folders, and one that is damaged is refused with its name."""

import errno
import json
import logging
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from timestone.config import LogConfig
from timestone.disk.json_document import json_object
from timestone.errors import CorruptLog, StoreClosed, UnsupportedFormat
from timestone.kernel.crc import crc32c

_LOGGER = logging.getLogger("timestone")
FORMAT_VERSION = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (
    name TEXT NOT NULL, partition INTEGER NOT NULL, settings TEXT NOT NULL,
    next_offset INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0,
    crc INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (name, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
    space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    crc INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (space, key)
) WITHOUT ROWID;
"""
_LOG_COLUMNS = "name, partition, settings, next_offset, epoch"
_DOCUMENT_COLUMNS = "space, key, value"
_TABLES = {"logs": _LOG_COLUMNS, "documents": _DOCUMENT_COLUMNS}

Field = str | int | bytes


_WITHOUT_IT = (
    "Next: bring it back from a copy, or move it away: the records do not need it, but settings, named readers and "
    "sessions are in it"
)


def row_crc(fields: Sequence[Field]) -> int:
    """The checksum of a row: CRC-32C over its fields in order, each as a letter for its kind, the count of its bytes
    (4 bytes, little endian) and the bytes; text as UTF-8, numbers in decimal."""
    crc = 0
    for value in fields:
        kind = b"b" if isinstance(value, bytes) else b"t" if isinstance(value, str) else b"i"
        data = value if isinstance(value, bytes) else str(value).encode()
        crc = crc32c(kind + len(data).to_bytes(4, "little") + data, crc)
    return crc


class CatalogRow(NamedTuple):
    """What the catalogue knows of a log. The offsets count only when the log has no segment that says
    more."""

    config: LogConfig
    next_offset: int
    epoch: int


_ERRNO_OF = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_PERM: errno.EACCES,
}
_PRIMARY_CODE = 0xFF
"""The bits of SQLite's extended result codes that say what kind of error it is."""


class Catalog:
    """The open catalogue. Each call is one transaction, durable when it returns; any thread may call.

    Every call raises OSError, with the catalogue's path, when the disk does not do it (nothing has changed
    then), CorruptLog when the file is no sound database, and StoreClosed after `close`."""

    def __init__(self, path: Path, *, read_only: bool = False, upgrade: bool = False) -> None:
        """upgrade: bring one of an older version to this one; for the owner of the store. Where the disk does not do
        it, and for all others, it is used as it is, without checksums.

        Raises UnsupportedFormat for one of a newer version, CorruptLog when SQLite cannot read it, OSError."""
        self.path = path
        self._summed = True
        self._upgrade = upgrade
        self._lock = threading.Lock()
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        with self._told():
            self._connect(path, "ro" if read_only else "rwc")
            try:
                self._open(read_only)
            except BaseException:
                self.close()
                raise

    def _open(self, read_only: bool) -> None:
        try:
            self._prepare(read_only)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
            self._open_copy()

    def _connect(self, path: Path, mode: str) -> None:
        target = f"{path.absolute().as_uri()}?mode={mode}"
        self._connection = sqlite3.connect(target, uri=True, check_same_thread=False, timeout=5.0)

    def _open_copy(self) -> None:
        """The owner died in the middle of a commit: whoever opens the database rolls that back, which a view must
        not do to files that are not its own. So it does it to a copy."""
        self._connection.close()
        self._copy = tempfile.TemporaryDirectory(prefix="timestone-")
        copy = Path(self._copy.name) / self.path.name
        try:
            while not _copied(self.path, copy):
                pass
        except FileNotFoundError:  # a new owner has rolled it back meanwhile
            self._connect(self.path, "ro")
        else:
            self._connect(copy, "rw")
        self._prepare(read_only=True)

    def _prepare(self, read_only: bool) -> None:
        connection = self._connection
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > FORMAT_VERSION:
            raise UnsupportedFormat(self.path, version, FORMAT_VERSION)
        if not read_only:
            # FULL leaves the removal of the journal to the file system: after a power loss the journal is back, and
            # the transaction that was acknowledged is rolled back (docs/decisions/0029-flushed-journal.md).
            connection.execute("PRAGMA synchronous = EXTRA")
            if version == 0 or (version < FORMAT_VERSION and self._upgrade):
                self._complete(version)
        self._summed = self._has_checksums("documents")

    def _complete(self, version: int) -> None:
        """Make the tables as they are in this version."""
        connection = self._connection
        try:
            with connection:
                connection.execute("BEGIN")
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                for table in _TABLES:
                    if not self._has_checksums(table):
                        self._add_checksums(table)
                connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        except sqlite3.OperationalError as error:
            if version == 0:
                raise
            # A full or read-only disk does not keep a store from being opened.
            _LOGGER.warning("%s stays as it is, without checksums: %s", self.path, error)

    def _has_checksums(self, table: str) -> bool:
        return any(row[1] == "crc" for row in self._connection.execute(f"PRAGMA table_info({table})"))

    def _add_checksums(self, table: str) -> None:
        connection, columns = self._connection, _TABLES[table]
        connection.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER NOT NULL DEFAULT -1")
        rows = connection.execute(f"SELECT {columns} FROM {table}").fetchall()
        marks = ", ".join("?" * len(columns.split(",")))
        connection.executemany(
            f"INSERT OR REPLACE INTO {table} VALUES ({marks}, ?)", [(*row, row_crc(row)) for row in rows]
        )

    def logs(self, broken: list[str] | None = None) -> dict[tuple[str, int], CatalogRow]:
        """All logs by name and partition; `broken` as in `items`. Raises CorruptLog also for settings that no log can
        have."""
        rows = self._rows("logs", broken=broken)
        try:
            return {
                (str(name), int(number)): CatalogRow(_config(text), int(offset), int(epoch))
                for name, number, text, offset, epoch in rows
            }
        except (ValueError, TypeError) as error:
            raise CorruptLog(self.path, f"the catalogue says nonsense: {error}. {_WITHOUT_IT}") from error

    def put_log(self, name: str, partition: int, config: LogConfig, next_offset: int, epoch: int) -> None:
        """Add or update a log."""
        self.put_logs({(name, partition): CatalogRow(config, next_offset, epoch)})

    def put_logs(self, rows: Mapping[tuple[str, int], CatalogRow]) -> None:
        """Add or update logs, all or none: many in one transaction take little longer than one."""
        fields = [
            (*log, json.dumps(asdict(row.config), sort_keys=True), row.next_offset, row.epoch)
            for log, row in rows.items()
        ]
        with self._lock, self._told(), self._connection:
            self._put("logs", fields)

    def remove_log(self, name: str, partition: int, space: str, key: str, value: bytes) -> None:
        """Remove the row of a log and put a document, both or none."""
        with self._lock, self._told(), self._connection:
            self._connection.execute("DELETE FROM logs WHERE name = ? AND partition = ?", (name, partition))
            self._put("documents", [(space, key, value)])

    def check(self) -> None:
        """Look at the whole file. Raises CorruptLog when it is no sound database or a row of it does not hold,
        OSError."""
        with self._lock, self._told():
            ((found,), *_) = self._connection.execute("PRAGMA integrity_check(1)").fetchall()
        if found != "ok":
            raise CorruptLog(self.path, f"the catalogue is damaged: {' '.join(found.split())}. {_WITHOUT_IT}")
        for table in _TABLES:
            self._rows(table)

    def image(self) -> bytes:
        """The bytes of its file as of now, whoever else writes: he waits for no longer than it takes to read them."""
        with self._lock, self._told():
            return self._connection.serialize()

    def _rows(
        self, table: str, where: str = "", values: Sequence[Field] = (), broken: list[str] | None = None
    ) -> list[tuple[Any, ...]]:
        """Rows of a table that hold. Raises CorruptLog for one that does not, or adds a sentence to `broken`."""
        columns = _TABLES[table] + (", crc" if self._summed else "")
        with self._lock, self._told():
            rows = self._connection.execute(f"SELECT {columns} FROM {table} {where}", values).fetchall()
        if not self._summed:
            return rows
        sound = []
        for *row, crc in rows:
            if row_crc(row) == crc:
                sound.append(tuple(row))
            elif broken is None:
                raise CorruptLog(self.path, f"{_damaged_row(table, row)}. {_WITHOUT_IT}")
            else:
                broken.append(_damaged_row(table, row))
        return sound

    def _put(self, table: str, rows: Iterable[Sequence[Field]]) -> None:
        """Add or update rows; in a transaction of the caller's."""
        summed = [(*row, row_crc(row)) for row in rows] if self._summed else list(rows)
        marks = ", ".join("?" * (len(_TABLES[table].split(",")) + self._summed))
        self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", summed)

    def close(self) -> None:
        with self._lock:
            self._connection.close()
            if self._copy is not None:
                self._copy.cleanup()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors in the words of the engine."""
        try:
            yield
        except UnicodeDecodeError as error:  # names of tables and columns that are not text any more
            raise CorruptLog(self.path, f"the catalogue cannot be read: {error}. {_WITHOUT_IT}") from error
        except sqlite3.ProgrammingError as error:
            raise StoreClosed(f"the catalogue {self.path} is closed") from error
        except sqlite3.OperationalError as error:
            if "decode to UTF-8" in str(error):
                raise CorruptLog(
                    self.path, f"the catalogue cannot be read: {error}. {_WITHOUT_IT}"
                ) from error
            code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
            if code == sqlite3.SQLITE_CANTOPEN:
                self.path.open("rb").close()  # SQLite does not say why; this does, if the file is the reason
            number = _ERRNO_OF.get(code, errno.EIO)
            raise OSError(number, f"the catalogue: {error}", str(self.path)) from error
        except sqlite3.DatabaseError as error:
            raise CorruptLog(self.path, f"the catalogue cannot be read: {error}. {_WITHOUT_IT}") from error

    # Documents: the surface that fronts get as `store.documents`.

    def put_many(self, space: str, items: Mapping[str, bytes | None]) -> None:
        """Store values under their keys; None deletes. All or none, durable when it returns."""
        gone = [(space, key) for key, value in items.items() if value is None]
        kept = [(space, key, value) for key, value in items.items() if value is not None]
        with self._lock, self._told(), self._connection:
            self._connection.executemany("DELETE FROM documents WHERE space = ? AND key = ?", gone)
            self._put("documents", kept)

    def remove_under(self, key: str, spaces: Iterable[str]) -> None:
        """Remove a key, and all keys that begin with it and a slash, from several spaces. All or none, durable when
        it returns."""
        start = f"{key}/"
        with self._lock, self._told(), self._connection:
            self._connection.executemany(
                "DELETE FROM documents WHERE space = ? AND (key = ? OR substr(key, 1, ?) = ?)",
                [(space, key, len(start), start) for space in spaces],
            )

    def get(self, space: str, key: str) -> bytes | None:
        """The value of a key, or None. Raises CorruptLog with the key."""
        rows = self._rows("documents", "WHERE space = ? AND key = ?", (space, key))
        return rows[0][2] if rows else None

    def spaces(self) -> list[str]:
        """The spaces that have documents."""
        with self._lock, self._told():
            return [row[0] for row in self._connection.execute("SELECT DISTINCT space FROM documents")]

    def items(self, space: str, broken: list[str] | None = None) -> dict[str, bytes]:
        """All keys and values of a space. Raises CorruptLog with the key of the first that does not hold; with
        `broken`, those are left out and a sentence each is added to it."""
        rows = self._rows("documents", "WHERE space = ?", (space,), broken)
        return {key: value for _, key, value in rows}


def folder_missing(next_offset: int) -> str:
    """What is wrong, and the next step, when a log is here and has no folder; `next_offset`: of its row."""
    return (
        "the catalogue has this log, but its folder is missing. Next: bring the folder back from a copy; or make an "
        f"empty one, then the log continues at offset {next_offset} without the records that it had"
    )


def _damaged_row(table: str, row: Sequence[Field]) -> str:
    if table == "logs":
        return f"its row of log {row[0]!r}, partition {row[1]!r} (table logs) does not hold"
    return f"its row {row[1]!r} of the space {row[0]!r} (table documents) does not hold"


def _copied(path: Path, copy: Path) -> bool:
    """Copy a database with its journal; false when the two may not belong together. Raises FileNotFoundError when
    there is no journal any more."""
    journal = path.with_name(path.name + "-journal")
    before = journal.stat()
    shutil.copyfile(journal, copy.with_name(journal.name))
    shutil.copyfile(path, copy)
    after = journal.stat()
    return (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def _config(text: str) -> LogConfig:
    """Settings as stored; ones that this version does not know are left out, missing ones have their
    default."""
    known = {setting.name for setting in fields(LogConfig)}
    values = json_object(text.encode())
    return LogConfig(**{name: value for name, value in values.items() if name in known})
