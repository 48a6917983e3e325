"""Folder of the tables: where data files are, and how files that Spark has written become part of a table.

    tables/_ledger/        the contents of the tables
    tables/_files/…        the data files, never changed, deleted some time after they were replaced
    tables/_work/…         what is being written; worthless after a crash
    tables/_checkpoint/    Spark's
    tables/clean/…          the same files once more, as hard links: exactly those that are part of the table

A reader with the list of files reads a table as of one commit, even if files are replaced during that. A reader of the
folder gets its current files. Both without a copy."""

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from timestone.disk import access

from .config import TablesConfig
from .data_file import DataFile, describe
from .errors import Busy
from .ledger import Commit, FileKey, Ledger, State, exclusively, flush, now_us
from .progress import Progress
from .tables import Table

STREAM = "stream"
MAINTENANCE = "maintenance"
"""Roles in which one process each may work on the tables at the same time."""


class Advance(NamedTuple):
    """Progress of the stream before and after a batch."""

    before: Progress
    after: Progress


class Publisher(Protocol):
    """Publisher of the ledger's state to readers that do not read the ledger."""

    def publish(self, state: State) -> None:
        """Bring the published files to `state`, from any earlier one. Called under the lock of the ledger."""
        ...


class Warehouse:
    """Tables of a pipeline. One process may commit as the stream and one as maintenance at the same time."""

    def __init__(
        self, config: TablesConfig, tables: Sequence[Table], publishers: Sequence[Publisher]
    ) -> None:
        self.config = config
        self.tables = tables
        self.root = config.path
        self.ledger = Ledger(self.root / "_ledger")
        self._publishers = publishers

    @property
    def checkpoint(self) -> Path:
        """Return the folder of Spark's checkpoint."""
        return self.root / "_checkpoint"

    @contextmanager
    def role(self, name: str) -> Iterator[None]:
        """Take the role `stream` or `maintenance` of these tables. Raises Busy. Unfinished work of the last process in
        that role is removed, and its commits are published."""
        busy = f"another process is the {name} of the tables in {self.root}; wait for it, or stop it"
        with exclusively(self.root / "_ledger" / f"{name.upper()}.lock", wait=False, busy=busy):
            shutil.rmtree(self._work(name), ignore_errors=True)
            with self.ledger.writing() as state:
                self._sweep(state, self._horizon())
                self._publish(state)
            yield
            shutil.rmtree(self._work(name), ignore_errors=True)

    @contextmanager
    def work(self, role: str) -> Iterator["Work"]:
        """Open a folder to write into, which is removed afterwards."""
        # A unique name: tasks of a killed driver may still be writing into the last one.
        folder = self._work(role) / uuid.uuid4().hex
        access.make_folders(folder)
        try:
            yield Work(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def paths(self, files: Iterable[DataFile]) -> list[str]:
        """Return where these files can be read, also for some time after they were replaced."""
        return [str(self._file((one.table, one.path)).absolute()) for one in files]

    def base(self, table: str) -> str:
        """Return the folder that the paths of a table's files are relative to."""
        return str((self.root / "_files" / table).absolute())

    def commit(
        self,
        action: str,
        works: Iterable["Work"],
        *,
        removed: Sequence[FileKey] = (),
        progress: Advance | None = None,
    ) -> Commit:
        """Commit all files of `works`, and remove those in `removed`, at once and durably. Requires the role of the
        stream or of maintenance, the former for a `progress`. Raises Busy if the tables are not where that begins:
        after a batch of a query that was stopped and had not noticed."""
        with self.ledger.writing() as state:
            return self.commit_locked(state, action, works, removed=removed, progress=progress)

    def commit_locked(
        self,
        state: State,
        action: str,
        works: Iterable["Work"],
        *,
        removed: Sequence[FileKey] = (),
        progress: Advance | None = None,
    ) -> Commit:
        """Commit inside of `ledger.writing()`, which yielded `state`."""
        if progress is not None and state.progress != progress.before:
            raise Busy(f"another process has committed to the tables in {self.root}; nothing was committed")
        number = state.number + 1
        added = [self._adopt(number, place, work, file) for place, (work, file) in enumerate(_all(works))]
        for folder in self._above(added):
            flush(folder)
        commit = Commit(number, action, now_us(), tuple(added), tuple(removed), progress and progress.after)
        self._publish(self.ledger.append(commit))
        return commit

    def sweep(self) -> None:
        """Delete files replaced long enough ago, and shorten the ledger."""
        with self.ledger.writing() as state:
            # Read once: the ledger must forget exactly the deleted files.
            horizon = self._horizon()
            self._sweep(state, horizon)
            self._publish(self.ledger.write_snapshot(horizon))

    def _adopt(self, number: int, place: int, work: "Work", file: DataFile) -> DataFile:
        name = f"{number:012}-{place:03}.parquet"
        path = f"{file.partition}/{name}" if file.partition else name
        source, target = work.folder / file.table / file.path, self._file((file.table, path))
        access.make_folders(target.parent)
        flush(source)
        os.replace(source, target)
        return DataFile(file.table, path, file.rows, file.bytes, file.bounds)

    def _publish(self, state: State) -> None:
        for publisher in self._publishers:
            publisher.publish(state)

    def _sweep(self, state: State, horizon: int) -> None:
        wanted = {key for key in state.files} | {key for key, at in state.replaced.items() if at >= horizon}
        for table in self.tables:
            base = self.root / "_files" / table.name
            for path in base.rglob("*.parquet"):
                if (table.name, str(path.relative_to(base))) not in wanted:
                    path.unlink()

    def _horizon(self) -> int:
        return now_us() - self.config.keep_replaced_s * 1_000_000

    def _above(self, files: Iterable[DataFile]) -> set[Path]:
        """Return the folders of files, and their parents: any of them may be new."""
        folders = {self._file((one.table, one.path)).parent for one in files}
        return {
            above
            for folder in folders
            for above in (folder, *folder.parents)
            if above.is_relative_to(self.root)
        }

    def _file(self, key: FileKey) -> Path:
        return self.root.joinpath("_files", *key)

    def _work(self, role: str) -> Path:
        return self.root / "_work" / role


class Work:
    """Files that one operation has written and not committed yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[DataFile] = []

    def folder_of(self, table: Table) -> Path:
        """Return the folder for new files of a table."""
        return self.folder / table.name

    def collect(self, table: Table) -> list[DataFile]:
        """Return the files written for `table` since the last call; those without rows are left out."""
        folder = self.folder_of(table)
        known = {one.path for one in self.files if one.table == table.name}
        paths = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")} - known
        found = [describe(table.name, folder, path, table.bounds) for path in sorted(paths)]
        kept = [one for one in found if one.rows]
        self.files += kept
        return kept

    def rows(self, table: Table) -> int:
        """Return how many rows were written for `table`."""
        return sum(one.rows for one in self.files if one.table == table.name)


def _all(works: Iterable[Work]) -> Iterator[tuple[Work, DataFile]]:
    for work in works:
        for file in work.files:
            yield work, file
