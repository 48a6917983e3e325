"""The catalogue of a store: its logs with their settings, and durable key-value spaces for whoever needs some
(sessions, retained messages, named readers). A SQLite file; never on the data path.

Logs can be read without it: a folder's own files say everything but the settings. So a catalogue that is lost
or behind is completed from the folders, and one that is damaged is refused with its name."""

import errno
import json
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

from timestone.config import LogConfig
from timestone.errors import CorruptLog, StoreClosed, UnsupportedFormat

FORMAT_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (
    name TEXT NOT NULL, partition INTEGER NOT NULL, settings TEXT NOT NULL,
    next_offset INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
    space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (space, key)
) WITHOUT ROWID;
"""


_WITHOUT_IT = (
    "Next: bring it back from a copy, or move it away: the records do not need it, but settings, named readers and "
    "sessions are in it"
)


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

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Raises UnsupportedFormat for one of a newer version, CorruptLog when SQLite cannot read it, OSError."""
        self.path = path
        self._lock = threading.Lock()
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        with self._told():
            self._connect(path, "ro" if read_only else "rwc")
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
            connection.close()
            raise UnsupportedFormat(self.path, version, FORMAT_VERSION)
        if not read_only:
            connection.execute("PRAGMA synchronous = FULL")
            if version == FORMAT_VERSION:
                return  # a full disk does not keep a store from being opened
            with connection:
                connection.executescript(_SCHEMA)
                connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def logs(self) -> dict[tuple[str, int], CatalogRow]:
        """All logs by name and partition. Raises CorruptLog also for settings that no log can have."""
        with self._lock, self._told():
            rows = self._connection.execute(
                "SELECT name, partition, settings, next_offset, epoch FROM logs"
            ).fetchall()
        try:
            return {
                (str(name), int(number)): CatalogRow(_config(text), int(offset), int(epoch))
                for name, number, text, offset, epoch in rows
            }
        except (ValueError, TypeError) as error:
            raise CorruptLog(self.path, f"the catalogue says nonsense: {error}. {_WITHOUT_IT}") from error

    def put_log(self, name: str, partition: int, config: LogConfig, next_offset: int, epoch: int) -> None:
        """Add or update a log."""
        with self._lock, self._told(), self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?)",
                (name, partition, json.dumps(asdict(config), sort_keys=True), next_offset, epoch),
            )

    def check(self) -> None:
        """Look at the whole file. Raises CorruptLog when it is no sound database, OSError. (SQLite keeps no checksums:
        this finds pages that do not fit together, not every flipped bit in a value.)"""
        with self._lock, self._told():
            ((found,), *_) = self._connection.execute("PRAGMA integrity_check(1)").fetchall()
        if found != "ok":
            raise CorruptLog(self.path, f"the catalogue is damaged: {' '.join(found.split())}. {_WITHOUT_IT}")

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
        except sqlite3.ProgrammingError as error:
            raise StoreClosed(f"the catalogue {self.path} is closed") from error
        except sqlite3.OperationalError as error:
            if "decode to UTF-8" in str(error):
                raise CorruptLog(
                    self.path, f"the catalogue cannot be read: {error}. {_WITHOUT_IT}"
                ) from error
            number = _ERRNO_OF.get(getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE, errno.EIO)
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
            self._connection.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", kept)

    def get(self, space: str, key: str) -> bytes | None:
        """The value of a key, or None."""
        with self._lock, self._told():
            row = self._connection.execute(
                "SELECT value FROM documents WHERE space = ? AND key = ?", (space, key)
            ).fetchone()
        return row[0] if row else None

    def spaces(self) -> list[str]:
        """The spaces that have documents."""
        with self._lock, self._told():
            return [row[0] for row in self._connection.execute("SELECT DISTINCT space FROM documents")]

    def items(self, space: str) -> dict[str, bytes]:
        """All keys and values of a space."""
        with self._lock, self._told():
            return dict(
                self._connection.execute(
                    "SELECT key, value FROM documents WHERE space = ?", (space,)
                ).fetchall()
            )


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
    values = json.loads(text)
    if not isinstance(values, dict):
        raise TypeError(f"settings are {values!r}")
    return LogConfig(**{name: value for name, value in values.items() if name in known})
