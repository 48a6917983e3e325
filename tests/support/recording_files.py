"""A twin of `timestone.disk.files.Files` that executes and records each operation that changes the disk.

What belongs here: the operations in order, with their files. `power_loss.py` computes the effects of a power loss.
Files are numbered by the recorder, not by inode, because the kernel gives the inode of a removed file to the next one.

The SQLite catalogue does its own I/O. Its files are read at each recorded operation, and their content counts as
durable. Their names do not: a removal of the journal is lost until SQLite flushes the directory, and `sqlite_calls.py`
shows both.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import sqlite_calls
from tests.support.waiting import TIMEOUT_S
from timestone.disk.files import Data, Files

CATALOG_NAMES = ("catalog.db", "catalog.db-journal")


@dataclass(frozen=True, slots=True)
class Created:
    path: Path
    file: int


@dataclass(frozen=True, slots=True)
class Written:
    file: int
    position: int
    data: bytes

    def __repr__(self) -> str:
        return f"Written(file={self.file}, position={self.position}, {len(self.data)} bytes)"


@dataclass(frozen=True, slots=True)
class Reserved:
    file: int
    end: int


@dataclass(frozen=True, slots=True)
class Truncated:
    file: int
    size: int


@dataclass(frozen=True, slots=True)
class SyncStarted:
    file: int


@dataclass(frozen=True, slots=True)
class SyncEnded:
    """The sync that started at operation `started` is complete: data written before *that* is durable."""

    file: int
    started: int


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """The kernel reported an error once and marked the pages clean: later syncs of the file prove nothing about
    them."""

    file: int


@dataclass(frozen=True, slots=True)
class DirectoryMade:
    path: Path
    directory: int
    """Its number, below 0; it stays when the directory is renamed."""


@dataclass(frozen=True, slots=True)
class DirectorySyncStarted:
    path: Path


@dataclass(frozen=True, slots=True)
class DirectorySynced:
    path: Path
    started: int


@dataclass(frozen=True, slots=True)
class Renamed:
    source: Path
    target: Path
    file: int
    """Its number, or that of a directory."""


@dataclass(frozen=True, slots=True)
class Unlinked:
    path: Path
    file: int
    """Its number, or that of a directory."""


@dataclass(frozen=True, slots=True)
class CatalogChanged:
    """The current content of a file of the catalogue; it is durable."""

    file: int
    data: bytes

    def __repr__(self) -> str:
        return f"CatalogChanged(file={self.file}, {len(self.data)} bytes)"


@dataclass(frozen=True, slots=True)
class Noted:
    """A mark of the test between the operations: an acknowledgement, an offset shown to a reader."""

    value: Any


Operation = (
    Created
    | Written
    | Reserved
    | Truncated
    | SyncStarted
    | SyncEnded
    | SyncFailed
    | DirectoryMade
    | DirectorySyncStarted
    | DirectorySynced
    | Renamed
    | Unlinked
    | CatalogChanged
    | Noted
)


class RecordingFiles(Files):
    """Passes through to the real file system below `root` and records. Thread-safe. `base` is the content at the start,
    taken to be durable; `operations` are all later ones."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base: dict[Path, bytes] = {}
        self.base_directories: dict[Path, int] = {}
        self.base_files: dict[Path, int] = {}
        self.operations: list[Operation] = []
        self._lock = threading.Condition(threading.RLock())
        self._names: dict[Path, int] = {}
        self._directories: dict[Path, int] = {}
        self._open: dict[int, int] = {}
        self._file_count = self._directory_count = 0
        self._catalog_seen: dict[Path, bytes] = {}
        self._catalog = [(root / name, str(root / name)) for name in CATALOG_NAMES]
        self._take_base()
        sqlite_calls.watch(self)

    def _take_base(self) -> None:
        if not self.root.exists():
            return
        self.base_directories[self.root] = self._number(self.root)
        for path in sorted(self.root.rglob("*")):
            if path.is_dir():
                self.base_directories[path] = self._number(path)
            elif path.is_file():
                self.base[path] = path.read_bytes()
                self.base_files[path] = self._name(path)
                if path.name in CATALOG_NAMES:
                    self._catalog_seen[path] = self.base[path]

    def _name(self, path: Path) -> int:
        self._file_count += 1
        self._names[path] = self._file_count
        return self._file_count

    def _number(self, path: Path) -> int:
        self._directory_count -= 1
        self._directories[path] = self._directory_count
        return self._directory_count

    def stop(self) -> None:
        """Stop recording SQLite's operations."""
        sqlite_calls.forget(self)

    def note(self, value: Any) -> None:
        """Put a mark between the operations."""
        with self._recording():
            self.operations.append(Noted(value))

    def wait_until(self, reached: Callable[[Sequence[Operation]], bool]) -> None:
        """Block until the operations so far satisfy `reached`. Raises TimeoutError when they never do."""
        with self._lock:
            if not self._lock.wait_for(lambda: reached(self.operations), TIMEOUT_S):
                raise TimeoutError(
                    f"not within {TIMEOUT_S:g} s; the last of {len(self.operations)}: {self.operations[-5:]}"
                )

    def file_names(self) -> dict[int, str]:
        """Return the last name of each file, for messages."""
        return {file: str(path.relative_to(self.root)) for path, file in self._names.items()}

    @contextmanager
    def _recording(self) -> Iterator[None]:
        with self._lock:
            self._look_at_catalog()
            yield
            self._lock.notify_all()

    def _look_at_catalog(self) -> None:
        """Record the catalogue. The journal is read last and recorded first: with an older journal, SQLite's later
        writes to the database could not be rolled back."""
        found: dict[Path, bytes] = {}
        for path, name in self._catalog:
            try:
                with open(name, "rb", buffering=0) as file:
                    found[path] = file.read()
            except FileNotFoundError:
                pass
        for path, data in reversed(found.items()):
            if data != self._catalog_seen.get(path):
                self._catalog_seen[path] = data
                if path not in self._names:
                    self.operations.append(Created(path, self._name(path)))
                self.operations.append(CatalogChanged(self._names[path], data))

    # Operations of SQLite.

    @contextmanager
    def unlinking(self, path: Path) -> Iterator[None]:
        with self._recording():
            yield
            if path in self._names and not path.exists():
                self._catalog_seen.pop(path, None)
                self.operations.append(Unlinked(path, self._names.pop(path)))

    @contextmanager
    def flushing_directory(self, path: Path) -> Iterator[None]:
        with self._recording():
            started = len(self.operations)
            self.operations.append(DirectorySyncStarted(path))
        yield
        with self._recording():
            self.operations.append(DirectorySynced(path, started))

    # Operations that change the disk.

    def create(self, path: Path) -> int:
        with self._recording():
            fd = super().create(path)
            self._open[fd] = self._name(path)
            self.operations.append(Created(path, self._open[fd]))
            return fd

    def open_lock(self, path: Path) -> int:
        with self._recording():
            fd = super().open_lock(path)
            if path not in self._names:
                self.operations.append(Created(path, self._name(path)))
            self._open[fd] = self._names[path]
            return fd

    def pwrite(self, fd: int, data: Data, position: int) -> int:
        with self._recording():
            count = super().pwrite(fd, data, position)
            self.operations.append(Written(self._open[fd], position, bytes(memoryview(data)[:count])))
            return count

    def pwritev(self, fd: int, pieces: tuple[bytes, ...], position: int) -> int:
        return self.pwrite(fd, b"".join(pieces), position)

    def reserve(self, fd: int, start: int, end: int) -> None:
        with self._recording():
            super().reserve(fd, start, end)
            self.operations.append(Reserved(self._open[fd], end))

    def truncate(self, fd: int, size: int) -> None:
        with self._recording():
            super().truncate(fd, size)
            self.operations.append(Truncated(self._open[fd], size))

    def fdatasync(self, fd: int) -> None:
        self._sync([fd])

    def begin_flush(self, one: int, other: int, wake_fd: int) -> None:
        """Record flushes: `fdatasync_both` does."""

    def fdatasync_both(self, one: int, other: int) -> None:
        self._sync([one, other])  # both begin before either is done, in the same order each time

    def _sync(self, fds: list[int]) -> None:
        with self._recording():
            started = [(self._open[fd], len(self.operations) + place) for place, fd in enumerate(fds)]
            self.operations.extend(SyncStarted(file) for file, _ in started)
        for fd in (
            fds
        ):  # not under the lock: other threads write at the same time, and that has to show in the record
            super().fdatasync(fd)
        for file, since in started:
            with self._recording():
                self.operations.append(SyncEnded(file, since))

    def fail_sync(self, fd: int) -> None:
        """Record a failed sync: `FaultyFiles` calls this instead of `fdatasync`."""
        with self._recording():
            self.operations.append(SyncFailed(self._open[fd]))

    def sync_directory(self, path: Path) -> None:
        with self._recording():
            started = len(self.operations)
            self.operations.append(DirectorySyncStarted(path))
        super().sync_directory(path)
        with self._recording():
            self.operations.append(DirectorySynced(path, started))

    def make_directory(self, path: Path) -> None:
        with self._recording():
            super().make_directory(path)
            self.operations.append(DirectoryMade(path, self._number(path)))

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "the model of a directory knows renames within it only"
        with self._recording():
            super().rename(source, target)
            is_file = source in self._names
            if is_file:
                self._names[target] = self._names.pop(source)
            else:
                self._move(source, target)
            self.operations.append(
                Renamed(source, target, self._names[target] if is_file else self._directories[target])
            )

    def _move(self, source: Path, target: Path) -> None:
        inside = f"{source}/"
        for numbers in (self._names, self._directories):
            moved = [path for path in numbers if path == source or str(path).startswith(inside)]
            for path in moved:
                numbers[target / path.relative_to(source)] = numbers.pop(path)

    def remove_directory(self, path: Path) -> None:
        with self._recording():
            super().remove_directory(path)
            self.operations.append(Unlinked(path, self._directories.pop(path)))

    def unlink(self, path: Path) -> None:
        with self._recording():
            super().unlink(path)
            self.operations.append(Unlinked(path, self._names.pop(path)))

    # Operations that do not, but tell which file a descriptor is.

    def open(self, path: Path, *, write: bool = False) -> int:
        with self._lock:
            fd = super().open(path, write=write)
            if path not in self._names:
                # Created by other code since the start; from here on it counts as having always existed.
                self.base[path] = path.read_bytes()
                self.base_files[path] = self._name(path)
            self._open[fd] = self._names[path]
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)
            super().close(fd)
