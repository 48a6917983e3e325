"""Keeps the side files of a store: writes those that are missing, removes those that nobody needs any more.

Works through a view, beside whoever owns the store. One keeper a store; what one that was killed has left is cleared
away by the next. A file that is not needed any more stays for a while, for queries that have planned to read it: an
empty file beside it, `….parquet.unneeded`, notes since when."""

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
from timestone.disk.files import Files
from timestone.errors import CorruptLog, CorruptRecord, OffsetOutOfRange, UnknownLog
from timestone.format import names

KEEP_S = 600.0
MIN_FREE_BYTES = StoreConfig().min_free_bytes
UNNEEDED_SUFFIX = ".unneeded"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SideFilePass:
    """What one look at the store came to, in files."""

    written: int
    there: int
    """Segments that had theirs."""
    removed: int
    left_out: int
    """Segments that cannot have one: damaged, or gone while it was written."""


class SideFileKeeper:
    """The keeper of one store, from entering to leaving it."""

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
        """Side files whose footer this keeper has seen to be right."""
        self._damaged: set[Path] = set()
        """Those whose segments have a record that cannot be proved."""

    def __enter__(self) -> Self:
        """Raises SideFilesBusy, NotAStore, OSError."""
        timestone.view(self._store).close()
        folder = self._store / FOLDER
        folder.mkdir(exist_ok=True)
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
        """Look once, oldest segments first; ends early between two files when `stop` says so. Raises NotAStore,
        UnsupportedFormat, OSError; what was written stays."""
        counts: Counter[str] = Counter()
        with timestone.view(self._store) as view:
            present = view.log_names()
            for name, partition in present:
                log = _log_of(view, name, partition)
                try:
                    if log is not None and not self._keep(log, counts, written, stop):
                        break
                except UnknownLog:
                    continue  # it was deleted meanwhile
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
        """Bring the side files of one log in order; False when `stop` says so before that is done."""
        folder = log_folder(self._store, log.name, log.partition)
        folder.mkdir(exist_ok=True)
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
        """Remove side files of logs that are not there any more."""
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
            _log.warning("%s is written anew: %s", path, wrong)
        return not wrong

    def _check_space(self, segment: SegmentIdentity, log: LogView) -> None:
        """Side files must not be what brings appends to a halt. Raises OSError."""
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
        """Remove the side files that have been unneeded for long enough; note since when the others are."""
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
                note.touch()
                age_s = 0.0
            if age_s >= self._keep_s:
                self._known.discard(path)
                path.unlink()
                note.unlink()
                removed += 1
        return removed


def _clear_unfinished(folder: Path) -> None:
    """Remove what a keeper that was killed has not finished."""
    for path in folder.glob(f"*{names.TEMPORARY_SUFFIX}"):
        path.unlink()


def _log_of(view: StoreView, name: str, partition: int) -> LogView | None:
    """None for a log that was deleted meanwhile, or that cannot be read."""
    try:
        return view.log(name, partition)
    except UnknownLog:
        return None
    except CorruptLog as error:
        _log.error("no side files are written for %s-%d: %s", name, partition, error)
        return None
