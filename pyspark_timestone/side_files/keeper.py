"""Keeper of the side files of a store: writes missing ones and removes those that are not needed any more.

Works through a view, whether a process owns the store or not. One keeper a store; the next one cleans up after one
that was killed. A file that is not needed any more stays for some time, for queries that have planned to read it: an
empty file `….parquet.unneeded` beside it records since when."""

import errno
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Self

import timestone
from pyspark_timestone.errors import SideFilesBusy
from pyspark_timestone.side_files.listing import FOLDER, log_folder, side_file_path
from pyspark_timestone.side_files.side_file import (
    SUFFIX,
    SegmentIdentity,
    sealed_segments,
    what_is_wrong,
    write_side_file,
)
from timestone import LogView, StoreConfig, StoreView
from timestone.disk import access
from timestone.disk.files import Files
from timestone.errors import CorruptLog, CorruptRecord, OffsetOutOfRange, UnknownLog
from timestone.format import names

KEEP_S = 600.0
MIN_FREE_BYTES = StoreConfig().min_free_bytes
UNNEEDED_SUFFIX = ".unneeded"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SideFilePass:
    """Result of one pass over the store, in numbers of files."""

    written: int
    there: int
    """Segments with a current side file."""
    removed: int
    left_out: int
    """Segments that cannot have one: damaged, or deleted in between."""


class SideFileKeeper:
    """Keeper of one store, as a context manager."""

    def __init__(
        self,
        store: Path,
        *,
        keep_s: float = KEEP_S,
        min_free_bytes: int = MIN_FREE_BYTES,
        files: Files | None = None,
    ) -> None:
        self._store = store
        self._keep_s = keep_s
        self._min_free_bytes = min_free_bytes
        self._files = files or Files()
        self._lock_fd = -1
        self._known: set[Path] = set()
        """Side files whose footer this keeper has verified."""
        self._damaged: set[Path] = set()
        """Side files whose segments have a record that fails verification."""

    def __enter__(self) -> Self:
        """Lock the side files. Raises SideFilesBusy, NotAStore, OSError."""
        timestone.view(self._store).close()
        folder = self._store / FOLDER
        access.make_folders(folder)
        fd = self._files.open_lock(folder / names.LOCK_NAME)
        if not self._files.try_lock(fd):
            self._files.close(fd)
            raise SideFilesBusy(f"another process writes the side files of {self._store}")
        self._lock_fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._files.close(self._lock_fd)

    def run(
        self,
        *,
        written: Callable[[SegmentIdentity, Path], None] = lambda segment, path: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> SideFilePass:
        """Run one pass, oldest segments first; ends early between two files when `stop` returns True. Raises
        NotAStore, UnsupportedFormat, OSError; what was written stays."""
        counts: Counter[str] = Counter()
        with timestone.view(self._store) as view:
            present = view.log_names()
            for name, partition in present:
                log = _log_of(view, name, partition)
                try:
                    if log is not None and not self._keep(log, counts, written, stop):
                        break
                except UnknownLog:
                    continue  # deleted in between
            else:
                counts["removed"] += self._remove_of_others(present)
        return SideFilePass(**{field.name: counts[field.name] for field in fields(SideFilePass)})

    def _keep(
        self,
        log: LogView,
        counts: Counter[str],
        written: Callable[[SegmentIdentity, Path], None],
        stop: Callable[[], bool],
    ) -> bool:
        """Update the side files of one log. Return False if `stop` ended it early."""
        folder = log_folder(self._store, log.name, log.partition)
        access.make_folders(folder)
        _clear_unfinished(folder)
        for segment in sealed_segments(log):
            if stop():
                return False
            path = side_file_path(self._store, segment)
            outcome = self._bring_about(log, segment, path)
            counts[outcome] += 1
            if outcome == "written":
                written(segment, path)
        log.refresh()
        counts["removed"] += self._remove_others(folder, {one.file_name for one in sealed_segments(log)})
        return True

    def _remove_of_others(self, present: Collection[tuple[str, int]]) -> int:
        """Remove side files of logs that do not exist any more."""
        removed = 0
        for folder in (self._store / FOLDER).iterdir():
            key = names.parse_log_folder(folder.name)
            if key is not None and key not in present:
                _clear_unfinished(folder)
                removed += self._remove_others(folder, set())
        return removed

    def _bring_about(self, log: LogView, segment: SegmentIdentity, path: Path) -> str:
        if path in self._damaged:
            return "left_out"
        if path in self._known or self._is_right(path, segment):
            self._known.add(path)
            return "there"
        self._check_space(segment, log)
        try:
            if not write_side_file(log, segment, path, self._files):
                return "left_out"
        except OffsetOutOfRange:
            return "left_out"
        except (CorruptLog, CorruptRecord) as error:
            self._damaged.add(path)
            _log.error("no side file is written for a segment that is damaged: %s", error)
            return "left_out"
        self._known.add(path)
        return "written"

    def _is_right(self, path: Path, segment: SegmentIdentity) -> bool:
        try:
            wrong = what_is_wrong(path, segment)
        except FileNotFoundError:
            return False
        if wrong:
            _log.warning("%s is written again: %s", path, wrong)
        return not wrong

    def _check_space(self, segment: SegmentIdentity, log: LogView) -> None:
        """Raise OSError unless enough space stays free, so that side files do not stop appends."""
        sizes = {base: size_bytes for base, _, size_bytes in log.segment_sizes()}
        wanted = self._min_free_bytes + sizes.get(segment.base_offset, 0)
        free_bytes = self._files.free_bytes(self._store)
        if free_bytes < wanted:
            raise OSError(
                errno.ENOSPC,
                f"{os.strerror(errno.ENOSPC)}: a side file wants {wanted} bytes free, there are {free_bytes}",
                str(side_file_path(self._store, segment)),
            )

    def _remove_others(self, folder: Path, needed: set[str]) -> int:
        """Remove side files that have been unneeded for long enough; record since when the others are."""
        removed = 0
        for name in self._files.names(folder):
            path = folder / name.removesuffix(UNNEEDED_SUFFIX)
            note = names.with_suffix(path, UNNEEDED_SUFFIX)
            if path.name in needed or not path.exists():
                note.unlink(missing_ok=True)
                continue
            if not name.endswith(SUFFIX):
                continue
            try:
                age_s = time.time() - note.stat().st_mtime
            except FileNotFoundError:
                access.ensure_file(note)
                age_s = 0.0
            if age_s >= self._keep_s:
                self._known.discard(path)
                path.unlink()
                note.unlink()
                removed += 1
        return removed


def _clear_unfinished(folder: Path) -> None:
    """Remove unfinished files of a keeper that was killed."""
    for path in folder.glob(f"*{names.TEMPORARY_SUFFIX}"):
        path.unlink()


def _log_of(view: StoreView, name: str, partition: int) -> LogView | None:
    """Return the view of a log; None if it was deleted in between or cannot be read."""
    try:
        return view.log(name, partition)
    except UnknownLog:
        return None
    except CorruptLog as error:
        _log.error("no side files are written for %s-%d: %s", name, partition, error)
        return None
