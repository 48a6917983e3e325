"""Ledger: the contents of the tables as a numbered list of commits. The only authority; folders and Delta logs are
derived from it.

    _ledger/000000000012.json            one commit: files added to and removed from any of the tables, at once
    _ledger/000000000012.snapshot.json   everything up to and including a commit

A commit appears whole or not at all: it is written under another name, flushed, and linked to its number, which fails
if that number is taken. So a batch is in all tables or in none, whichever process is killed at any moment. A snapshot
is renamed to its name, so that at every moment either it or what it replaces exists. Reading takes no lock. Belongs
here: the files of the ledger. Knows of the data files only what commits contain."""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from timestone.disk import access
from timestone.disk.files import Files

from .data_file import DataFile
from .errors import Busy, DamagedLedger, PipelineError
from .progress import Progress

FORMAT_VERSION = 1
_COMMIT = re.compile(r"(\d{12})\.json")
_SNAPSHOT = re.compile(r"(\d{12})\.snapshot\.json")
_DRAFT = ".draft"

COMPACTION = "compaction"
"""Action of a commit that has the same rows in fewer files."""

FileKey = tuple[str, str]
"""Table and path of a data file."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of the tables."""

    number: int
    action: str
    """Its cause: batch, backfill, reprocess or compaction."""
    time_us: int
    added: tuple[DataFile, ...] = ()
    removed: tuple[FileKey, ...] = ()
    progress: Progress | None = None
    """Set by the stream."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of its file."""
        return {
            "version": FORMAT_VERSION,
            "number": self.number,
            "action": self.action,
            "time_us": self.time_us,
            "added": [one.to_json() for one in self.added],
            "removed": [list(key) for key in self.removed],
            "progress": None if self.progress is None else self.progress.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Decode a commit. Raises KeyError, TypeError, ValueError for an invalid one."""
        _check_version(data)
        progress = data["progress"]
        return cls(
            int(data["number"]),
            str(data["action"]),
            int(data["time_us"]),
            tuple(DataFile.from_json(one) for one in data["added"]),
            tuple((str(table), str(path)) for table, path in data["removed"]),
            None if progress is None else Progress.from_json(progress),
        )


@dataclass(frozen=True, slots=True)
class State:
    """All tables after a commit."""

    number: int = 0
    """Number of the newest commit; 0 before the first."""
    time_us: int = 0
    """Time of that commit."""
    files: Mapping[FileKey, DataFile] = field(default_factory=dict)
    """Current files of the tables."""
    replaced: Mapping[FileKey, int] = field(default_factory=dict)
    """Files that are no longer part of a table, and since when (µs)."""
    progress: Progress = field(default_factory=Progress)
    newest: Commit | None = field(default=None, compare=False)
    """The newest commit itself; None if a snapshot has replaced it."""

    def of(self, table: str) -> list[DataFile]:
        """Return the files of one table, oldest first."""
        return [one for one in self.files.values() if one.table == table]

    def after(self, commits: Iterable[Commit]) -> "State":
        """Return the state after further commits. Raises DamagedLedger if one removes a missing file."""
        files, replaced, state = dict(self.files), dict(self.replaced), self
        for commit in commits:
            for key in commit.removed:
                if files.pop(key, None) is None:
                    raise DamagedLedger(f"commit {commit.number} removes {'/'.join(key)}, which is not there")
                replaced[key] = commit.time_us
            files.update(((one.table, one.path), one) for one in commit.added)
            progress = commit.progress or state.progress
            state = State(commit.number, commit.time_us, files, replaced, progress, commit)
        return state

    def to_json(self) -> dict[str, Any]:
        """Return the content of a snapshot."""
        return {
            "version": FORMAT_VERSION,
            "number": self.number,
            "time_us": self.time_us,
            "files": [one.to_json() for one in self.files.values()],
            "replaced": [[*key, at] for key, at in self.replaced.items()],
            "progress": self.progress.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Decode a snapshot. Raises KeyError, TypeError, ValueError for an invalid one."""
        _check_version(data)
        files = [DataFile.from_json(one) for one in data["files"]]
        return cls(
            int(data["number"]),
            int(data["time_us"]),
            {(one.table, one.path): one for one in files},
            {(str(table), str(path)): int(at) for table, path, at in data["replaced"]},
            Progress.from_json(data["progress"]),
        )


class Ledger:
    """Commits in one folder. Any process may read; a writer holds `writing()`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = State()

    def state(self) -> State:
        """Return the current state. Reads what is new since the last call. Raises DamagedLedger."""
        for _ in range(10):
            try:
                return self._refreshed()
            except FileNotFoundError:
                # Compaction has replaced commits by a snapshot since the folder was listed.
                self._state = State()
        raise DamagedLedger(f"{self.folder}: commits disappear while they are read")

    def commits(self, after: int) -> list[Commit]:
        """Return the commits after number `after` that no snapshot has replaced."""
        numbers = sorted(number for number in self._numbers(_COMMIT) if number > after)
        return [self._read(self._path(number), Commit.from_json) for number in numbers]

    @contextmanager
    def writing(self) -> Iterator[State]:
        """Lock the ledger for writing and yield its state. Waits for its turn, which is short: the work is done
        before."""
        with exclusively(self.folder / "COMMIT.lock", wait=True):
            yield self.state()

    def append(self, commit: Commit) -> State:
        """Append `commit`, durable on return. Only inside of `writing()`."""
        if commit.number != self._state.number + 1:
            raise PipelineError(f"commit {commit.number} does not follow {self._state.number}")
        after = self._state.after([commit])
        draft = _draft(self._path(commit.number), commit.to_json())
        os.link(draft, self._path(commit.number))
        draft.unlink()
        flush(self.folder)
        self._state = after
        return after

    def write_snapshot(self, forget_before_us: int) -> State:
        """Replace all commits by one file, without files that were replaced before a time. Only inside of `writing()`,
        after those files were deleted."""
        state = self.state()
        kept = {key: at for key, at in state.replaced.items() if at >= forget_before_us}
        state = replace(state, replaced=kept)
        # If one of this number exists, it is complete and its commits are gone.
        os.replace(
            _draft(self._snapshot_path(state.number), state.to_json()), self._snapshot_path(state.number)
        )
        flush(self.folder)
        for number in self._numbers(_COMMIT):
            if number <= state.number:
                self._path(number).unlink(missing_ok=True)
        for number in self._numbers(_SNAPSHOT):
            if number < state.number:
                self._snapshot_path(number).unlink(missing_ok=True)
        for draft in self.folder.glob(f"*{_DRAFT}"):
            draft.unlink()  # its writer was killed
        self._state = state
        return state

    def _refreshed(self) -> State:
        snapshot = max(self._numbers(_SNAPSHOT), default=0)
        if snapshot > self._state.number:
            self._state = self._read(self._snapshot_path(snapshot), State.from_json)
        new = self.commits(self._state.number)
        if max(self._numbers(_SNAPSHOT), default=0) > snapshot:
            raise FileNotFoundError  # some or all of the commits that it replaced may be missing among the new ones
        for number, one in enumerate(new, self._state.number + 1):
            if one.number != number:
                raise DamagedLedger(f"{self.folder}: commit {number} is missing, and {one.number} is there")
        self._state = self._state.after(new)
        return self._state

    def _numbers(self, pattern: "re.Pattern[str]") -> list[int]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return [int(match[1]) for name in names if (match := pattern.fullmatch(name))]

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012}.json"

    def _snapshot_path(self, number: int) -> Path:
        return self.folder / f"{number:012}.snapshot.json"

    def _read(self, path: Path, read: Any) -> Any:
        try:
            return read(json.loads(path.read_bytes()))
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise DamagedLedger(f"{path}: not a commit of this version: {error}") from None


@contextmanager
def exclusively(path: Path, *, wait: bool, busy: str = "") -> Iterator[None]:
    """Hold a lock file, whose folder is created durably; the kernel releases it when this process ends for any reason.
    Raises Busy with the text `busy` if another process holds it and `wait` is false."""
    Files().make_directories(path.parent)
    with open(Files().open_lock(path), "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(busy) from None
        yield


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def now_us() -> int:
    """Return microseconds since 1970."""
    return time.time_ns() // 1000


def _check_version(data: Mapping[str, Any]) -> None:
    if data["version"] != FORMAT_VERSION:
        raise ValueError(f"its format is {data['version']!r}, this Timestone reads {FORMAT_VERSION}")


def _draft(path: Path, content: Mapping[str, Any]) -> Path:
    """Write the content of `path` under another name, flushed, and return that name."""
    draft = path.with_name(path.name + _DRAFT)
    access.ensure_file(draft)
    draft.write_text(json.dumps(content, separators=(",", ":")), "utf-8")
    flush(draft)
    return draft
