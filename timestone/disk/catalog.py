"""Catalogue of a store: its logs with their settings, and durable key-value namespaces (sessions, retained messages,
named readers). A SQLite file; never on the data path.

SQLite protects it against crashes but keeps no checksums, so each row has one of its own: otherwise a flipped bit in a
committed offset would go unnoticed. Logs can be read without it: the files of a folder contain everything but the
settings. So a catalogue that is lost or behind is completed from the folders, and one that is damaged is refused by
name."""

import errno
import json
import logging
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from timestone.config import LogConfig
from timestone.disk import access
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.disk.json_document import json_object
from timestone.errors import CorruptLog, StoreClosed, UnsupportedFormat
from timestone.kernel.loops import crc32c

_LOGGER = logging.getLogger("timestone")
FORMAT_VERSION = 2
_SETTLED_US = 1_000_000
"""Longer than the resolution of the modification time on any file system."""
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
    """Return the checksum of a row: CRC-32C over its fields in order, each as a letter for its type, its length (4
    bytes, little endian) and its bytes; text as UTF-8, numbers in decimal."""
    crc = 0
    for value in fields:
        kind = b"b" if isinstance(value, bytes) else b"t" if isinstance(value, str) else b"i"
        data = value if isinstance(value, bytes) else str(value).encode()
        crc = crc32c(kind + len(data).to_bytes(4, "little") + data, crc)
    return crc


class CatalogRow(NamedTuple):
    """Row of a log. The offsets apply only if no segment of the log has higher ones."""

    config: LogConfig
    next_offset: int
    epoch: int


class StoredDocuments(Protocol):
    """Durable key-value namespaces: the catalogue of a store, or the documents of a shard."""

    @property
    def path(self) -> Path: ...
    def get(self, space: str, key: str) -> bytes | None: ...
    def items(self, space: str) -> dict[str, bytes]: ...
    def put_many(self, space: str, items: Mapping[str, bytes | None]) -> None: ...


_ERRNO_OF = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_PERM: errno.EACCES,
}
_PRIMARY_CODE = 0xFF
"""Mask of the primary code in SQLite's extended result codes."""


class Catalog:
    """Open catalogue. Each call is one transaction, durable on return; any thread may call. Every call raises OSError,
    with the catalogue's path, if the disk fails (nothing has changed then), CorruptLog if the file is not a valid
    database, and StoreClosed after `close`."""

    def __init__(self, path: Path, *, read_only: bool = False, upgrade: bool = False) -> None:
        """upgrade: bring an older version to the current one; for the owner of the store. If the disk fails to, and for
        all other callers, it is used unchanged, without checksums. Raises UnsupportedFormat for a newer version,
        CorruptLog if SQLite cannot read it, OSError."""
        self.path = path
        self._summed = True
        self._upgrade = upgrade
        self._lock = threading.Lock()
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        with self._told():
            if not read_only and not path.exists():
                access.ensure_file(
                    path
                )  # SQLite would make it readable for everyone; its journal gets the same mode
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
        for one in (path, path.with_name(path.name + "-journal")):  # SQLite would open a pipe, and wait
            with suppress(FileNotFoundError):
                access.check_regular(one.stat(), one)
        target = f"{path.absolute().as_uri()}?mode={mode}"
        self._connection = sqlite3.connect(target, uri=True, check_same_thread=False, timeout=5.0)

    def _open_copy(self) -> None:
        """Open a copy of a database whose owner died during a commit. The rollback changes the file, which a view
        must not do to files of another process."""
        self._connection.close()
        self._copy = tempfile.TemporaryDirectory(prefix="timestone-")
        copy = Path(self._copy.name) / self.path.name
        try:
            while not _copied(self.path, copy):
                pass
        except FileNotFoundError:  # a new owner has rolled it back in between
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
            # the acknowledged transaction is rolled back (docs/decisions/0029-flushed-journal.md).
            connection.execute("PRAGMA synchronous = EXTRA")
            if version == 0 or (version < FORMAT_VERSION and self._upgrade):
                self._complete(version)
        self._summed = self._has_checksums("documents")

    def _complete(self, version: int) -> None:
        """Create or upgrade the tables to this version."""
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
            # A full or read-only disk does not prevent opening the store.
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
        """Return all logs by name and partition; `broken` as in `items`. Raises CorruptLog, also for invalid
        settings."""
        rows = self._rows("logs", broken=broken)
        try:
            return {
                (str(name), int(number)): CatalogRow(_config(text), int(offset), int(epoch))
                for name, number, text, offset, epoch in rows
            }
        except (ValueError, TypeError) as error:
            raise CorruptLog(
                self.path, f"the catalogue has an invalid row: {error}. {_WITHOUT_IT}"
            ) from error

    def put_log(self, name: str, partition: int, config: LogConfig, next_offset: int, epoch: int) -> None:
        """Insert or update a log."""
        self.put_logs({(name, partition): CatalogRow(config, next_offset, epoch)})

    def put_logs(self, rows: Mapping[tuple[str, int], CatalogRow]) -> None:
        """Insert or update logs, all or none. Many in one transaction take little longer than one."""
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
        """Check the whole file. Raises CorruptLog for a damaged database or row, OSError."""
        with self._lock, self._told():
            ((found,), *_) = self._connection.execute("PRAGMA integrity_check(1)").fetchall()
        if found != "ok":
            raise CorruptLog(self.path, f"the catalogue is damaged: {' '.join(found.split())}. {_WITHOUT_IT}")
        for table in _TABLES:
            self._rows(table)

    def image(self) -> bytes:
        """Return the bytes of the file as of now. A writer waits only while they are read."""
        with self._lock, self._told():
            return self._connection.serialize()

    def _rows(
        self, table: str, where: str = "", values: Sequence[Field] = (), broken: list[str] | None = None
    ) -> list[tuple[Any, ...]]:
        """Return the valid rows of a table. Raises CorruptLog for a damaged one, or adds a sentence to `broken`."""
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
        """Insert or update rows, in a transaction of the caller."""
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
        """Convert errors of SQLite to those of the engine."""
        try:
            yield
        except UnicodeDecodeError as error:  # names of tables and columns are damaged text
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
                self.path.open("rb").close()  # SQLite does not give the reason; opening the file may
            number = _ERRNO_OF.get(code, errno.EIO)
            raise OSError(number, f"the catalogue: {error}", str(self.path)) from error
        except sqlite3.DatabaseError as error:
            raise CorruptLog(self.path, f"the catalogue cannot be read: {error}. {_WITHOUT_IT}") from error

    # Documents: the interface of `store.documents` for fronts.

    def put_many(self, space: str, items: Mapping[str, bytes | None]) -> None:
        """Store values by key; None deletes. All or none, durable on return."""
        gone = [(space, key) for key, value in items.items() if value is None]
        kept = [(space, key, value) for key, value in items.items() if value is not None]
        with self._lock, self._told(), self._connection:
            self._connection.executemany("DELETE FROM documents WHERE space = ? AND key = ?", gone)
            self._put("documents", kept)

    def remove_under(self, key: str, spaces: Iterable[str]) -> None:
        """Remove a key, and all keys that begin with it and a slash, from several namespaces. All or none, durable
        on return."""
        start = f"{key}/"
        with self._lock, self._told(), self._connection:
            self._connection.executemany(
                "DELETE FROM documents WHERE space = ? AND (key = ? OR substr(key, 1, ?) = ?)",
                [(space, key, len(start), start) for space in spaces],
            )

    def get(self, space: str, key: str) -> bytes | None:
        """Return the value of a key; None if absent. Raises CorruptLog with the key."""
        rows = self._rows("documents", "WHERE space = ? AND key = ?", (space, key))
        return rows[0][2] if rows else None

    def spaces(self) -> list[str]:
        """Return the namespaces that have documents."""
        with self._lock, self._told():
            return [row[0] for row in self._connection.execute("SELECT DISTINCT space FROM documents")]

    def page(self, space: str, after: str, limit: int, text: str = "") -> tuple[dict[str, bytes], str | None]:
        """Return the first keys of a namespace behind a key, in order, with their values; only keys that have `text` in
        them. Also the key to continue behind, None at the end. Raises CorruptLog as `items`."""
        where = "WHERE space = ? AND key > ? AND instr(key, ?) ORDER BY key LIMIT ?"
        rows = self._rows("documents", where, (space, after, text, limit))
        return {key: value for _, key, value in rows}, rows[-1][1] if len(rows) == limit else None

    def items(self, space: str, broken: list[str] | None = None) -> dict[str, bytes]:
        """Return all keys and values of a namespace. Raises CorruptLog with the key of the first damaged row; with
        `broken`, damaged rows are skipped and a sentence for each is added to it."""
        rows = self._rows("documents", "WHERE space = ?", (space,), broken)
        return {key: value for _, key, value in rows}


class CatalogRows:
    """Rows of a catalogue that another process may write, read again once it has changed. Thread-safe."""

    def __init__(
        self, files: Files, path: Path, opened: Callable[[], AbstractContextManager[Catalog | None]]
    ) -> None:
        """opened: opens the catalogue for one read; None without one."""
        self._files, self._path, self._opened = files, path, opened
        self._rows: dict[tuple[str, int], CatalogRow] = {}
        self._version: tuple[int, int, int] | None = None
        """Version of the catalogue when the rows were read: its inode, modification time and size."""
        self._lock = threading.Lock()

    def all(self) -> dict[tuple[str, int], CatalogRow]:
        """Return the rows by name and partition. Raises OSError, CorruptLog."""
        # Not by opening the file: closing it would release the locks that SQLite holds in this process.
        found = self._files.stat(self._path)
        version = found.st_ino, found.st_mtime_ns, found.st_size
        with self._lock:
            if version != self._version:
                with self._opened() as catalog:
                    self._rows = catalog.logs() if catalog else {}
                # A catalogue written just now may be written again with the same modification time.
                settled = Clock().now_us() - found.st_mtime_ns // 1000 > _SETTLED_US
                self._version = version if settled else None
            return self._rows


def folder_missing(next_offset: int) -> str:
    """Return the error text and next step for a log without a folder. next_offset: of its row."""
    return (
        "the catalogue has this log, but its folder is missing. Next: bring the folder back from a copy; or make an "
        f"empty one, then the log continues at offset {next_offset} without the records that it had"
    )


def _damaged_row(table: str, row: Sequence[Field]) -> str:
    if table == "logs":
        return f"its row of log {row[0]!r}, partition {row[1]!r} (table logs) does not hold"
    return f"its row {row[1]!r} of the space {row[0]!r} (table documents) does not hold"


def _copied(path: Path, copy: Path) -> bool:
    """Copy a database with its journal. Return False if the two may not belong together. Raises FileNotFoundError if
    the journal is gone."""
    journal = path.with_name(path.name + "-journal")
    before = journal.stat()
    shutil.copyfile(journal, copy.with_name(journal.name))
    shutil.copyfile(path, copy)
    after = journal.stat()
    return (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def _config(text: str) -> LogConfig:
    """Decode stored settings; unknown ones are ignored, missing ones get their default."""
    known = {setting.name for setting in fields(LogConfig)}
    values = json_object(text.encode())
    return LogConfig(**{name: value for name, value in values.items() if name in known})
