"""Backup of a whole store, also while its owner writes it.

    catalogue        first: sessions and named readers are then never ahead of the records
    each segment     both its files are opened before they are copied, so a file that is deleted or rewritten in
                     between is copied to its end; the index first, so every copied entry has its bytes
    topics           last: each topic that an entry uses is known
    next offsets     of logs without a segment: the catalogue may have been read before they changed

So the copy of a log is the log as of some moment of the backup, as if its owner had been killed then. A log that is
deleted in between is deleted in the copy, too. The original is only read, and its owner is not disturbed."""

import errno
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from timestone.disk.catalog import Catalog
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.errors import CorruptLog
from timestone.format import names
from timestone.format.folder_listing import base_offsets
from timestone.format.identity import HEADER_BYTES
from timestone.format.store_listing import logs_of_store
from timestone.segment import generation_of_index
from timestone.upkeep.log_deletion import DeletedLogs

Progress = Callable[[str, int], None]
"""Called with the folder name of a log and the bytes copied of it so far."""
_PARTIAL_SUFFIX = ".partial"
_MARK_NAME = "BACKUP"
"""File that is locked by the writer of an incomplete copy. Without a lock, the writer was killed."""


@dataclass(frozen=True, slots=True)
class LogBackup:
    """Copied part of one log."""

    folder: str
    segments: int
    bytes: int
    is_deleted: bool = False
    """Set if the log was deleted during the backup: nothing of it is in the copy."""


def back_up_store(
    source: Path, target: Path, *, files: Files | None = None, progress: Progress | None = None
) -> list[LogBackup]:
    """Copy the store in `source`, owned by a process or not, to `target`, which must not exist. It appears there when
    it is complete and durable.

    It contains every record that existed at the start of the backup, except records that retention deletes and logs
    that are deleted during it. Raises NotAStore, FileExistsError, ValueError for a target within the source,
    CorruptLog for a log that lacks a file (`timestone salvage` copies the rest), and OSError, and leaves no copy
    then. The unfinished copy is `<target>.partial`; the next backup to the same target removes one whose writer was
    killed."""
    files = files or Files()
    listed = [names.log_folder(*log) for log in logs_of_store(files, source)]
    if target.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"invalid target {target}: expected a path outside of {source}")
    if target.exists() or target.is_symlink():  # also a dangling link: a folder cannot be renamed to it
        raise FileExistsError(errno.EEXIST, "is already there", str(target))
    files.make_directories(target.parent)
    unfinished = target.with_name(target.name + _PARTIAL_SUFFIX)
    mark = _claim(files, unfinished)
    try:
        copies = {}
        for name in listed:
            with suppress(FileNotFoundError):  # deleted since; if it is lost, the catalogue reports it below
                copies[name] = _LogCopy(files, source / name, unfinished / name, progress)
        for name in _copy_catalog(files, source / names.CATALOG_NAME, unfinished / names.CATALOG_NAME):
            if name not in copies:
                copies[name] = _LogCopy(files, source / name, unfinished / name, progress)
        copied = [copies[name].run() for name in sorted(copies)]
        _delete(files, unfinished, [one.folder for one in copied if one.is_deleted])
        _copy_next_offsets(
            source / names.CATALOG_NAME,
            unfinished / names.CATALOG_NAME,
            [one.folder for one in copied if not one.segments and not one.is_deleted],
        )
        files.unlink(unfinished / _MARK_NAME)
        files.sync_directory(unfinished)
        files.rename(unfinished, target)
        files.sync_directory(target.parent)
    except BaseException:
        # Also on a full disk: a server may be writing there.
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    finally:
        files.close(mark)
    return copied


def _claim(files: Files, folder: Path) -> int:
    """Create the folder, or empty it of what a killed backup left; it is ours until the descriptor of its mark is
    closed. Raises FileExistsError if another process writes there."""
    mark = folder / _MARK_NAME
    try:
        files.make_directory(folder)
    except FileExistsError:
        if not mark.exists():
            raise FileExistsError(errno.EEXIST, "is already there", str(folder)) from None
    fd = files.open_lock(mark)
    try:
        # The locked file may have been removed by its owner in between: the folder is then another backup's.
        if not files.try_lock(fd) or files.inode(fd) != files.stat(mark).st_ino:
            raise FileExistsError(errno.EEXIST, "another backup is being written there", str(folder))
        for path in (folder / name for name in files.names(folder) if name != _MARK_NAME):
            shutil.rmtree(path) if path.is_dir() else files.unlink(path)
    except BaseException:
        files.close(fd)
        raise
    return fd


def _copy_catalog(files: Files, source: Path, target: Path) -> set[str]:
    """Copy the catalogue as of now. Return the folders of its logs."""
    if not source.exists():
        return set()
    with closing(Catalog(source, read_only=True)) as catalog:
        files.write_file(target, catalog.image())
    with closing(Catalog(target, read_only=True)) as copy:
        return {names.log_folder(*log) for log in copy.logs([])}


def _delete(files: Files, store: Path, folders: Sequence[str]) -> None:
    """Delete logs of which the copy has only the rows of the catalogue."""
    if not folders or not (store / names.CATALOG_NAME).exists():
        return
    with closing(Catalog(store / names.CATALOG_NAME)) as catalog:
        deleted = DeletedLogs(files, store, catalog)
        for folder in folders:
            log = names.parse_log_folder(folder)
            assert log is not None
            deleted.note(*log, Clock().now_us())
        assert not list(deleted.finish()), "they have no folders"


def _copy_next_offsets(source: Path, target: Path, folders: Sequence[str]) -> None:
    """Copy the next offsets of logs without a segment: retention, which notes them first, may have emptied these
    logs since the catalogue was copied."""
    if not folders or not target.exists():
        return
    with closing(Catalog(source, read_only=True)) as catalog:
        rows = catalog.logs([])
    with closing(Catalog(target)) as copy:
        for log, row in rows.items():
            if names.log_folder(*log) in folders:
                copy.put_log(*log, row.config, row.next_offset, row.epoch)


class _LogCopy:
    """Copy of the log that a folder holds now."""

    def __init__(self, files: Files, source: Path, target: Path, progress: Progress | None) -> None:
        """Raises OSError if the folder does not exist."""
        self._files = files
        self._source = source
        self._target = target
        self._progress = progress
        self._copied: dict[int, int] = {}
        """Copied bytes of each segment by base offset."""
        self._log = self._log_there()

    def run(self) -> LogBackup:
        """Copy the log, unless it is deleted in between."""
        try:
            if not self._is_deleted():
                self._copy_all()
        except (FileNotFoundError, CorruptLog):
            if not self._is_deleted():
                raise
        if self._is_deleted():
            shutil.rmtree(self._target, ignore_errors=True)  # it may not exist
            return LogBackup(self._source.name, 0, 0, is_deleted=True)
        return LogBackup(self._source.name, len(self._copied), sum(self._copied.values()))

    def _is_deleted(self) -> bool:
        """Return whether the folder holds another log, or none, by now."""
        try:
            return self._log_there() != self._log
        except FileNotFoundError:
            return True

    def _log_there(self) -> bytes:
        """Return the bytes that identify the log, if its topic dictionary has them. Raises FileNotFoundError if
        there is none."""
        try:
            return self._files.read_part(self._source / names.TOPICS_NAME, HEADER_BYTES)
        except FileNotFoundError:
            self._files.stat(self._source)
            return b""

    def _copy_all(self) -> None:
        self._files.make_directory(self._target)
        while not self._copy_segments():
            self._remove_segments()
        for name in self._files.names(self._source):
            if (
                name == names.TOPICS_NAME
                or names.parse_dictionary(name) is not None
                or names.parse_missing(name) is not None
            ):
                self._files.copy_file(self._source / name, self._target / name)
        self._files.sync_directory(self._target)

    def _copy_segments(self) -> bool:
        """Copy the current segments. Return False if one disappeared: retention has overtaken the copy, so the
        copied ones are gone too, or a failed flush or a recovery has moved records."""
        for base in base_offsets(self._files, self._source)[0]:
            if not self._copy_segment(base):
                bases, _ = base_offsets(self._files, self._source)
                if base not in bases:
                    return False
                if base != bases[-1]:
                    path = names.index_path(self._source, base)
                    raise CorruptLog(path, "it is missing: `timestone salvage` copies what is left")
                break  # it is being created
        return True

    def _remove_segments(self) -> None:
        for name in self._files.names(self._target):
            self._files.unlink(self._target / name)
        self._copied.clear()

    def _copy_segment(self, base: int) -> bool:
        """Copy a segment as it is now. Return False for one without an index."""
        path = names.index_path(self._source, base)
        while True:
            try:
                index = self._files.open(path)
            except FileNotFoundError:
                return False
            try:
                if self._copy_pair(base, index):
                    return True
                # The segment was rewritten between the two looks, or it is lost.
                if self._files.inode(index) == self._files.stat(path).st_ino:
                    raise CorruptLog(path, "its segment is missing: `timestone salvage` copies what is left")
            except FileNotFoundError:
                return False
            finally:
                self._files.close(index)

    def _copy_pair(self, base: int, index: int) -> bool:
        path = names.index_path(self._source, base)
        generation = generation_of_index(self._files, index, self._files.size(index), path) or 0
        try:
            segment = self._files.open(names.segment_path(self._source, base, generation))
        except FileNotFoundError:
            return False
        try:
            self._copy(index, names.index_path(self._target, base))
            self._copied[base] = self._copy(segment, names.segment_path(self._target, base, generation))
        finally:
            self._files.close(segment)
        if self._progress is not None:
            self._progress(self._source.name, sum(self._copied.values()))
        return True

    def _copy(self, fd: int, target: Path) -> int:
        with self._files.new_file(target) as copy:
            while True:
                size_bytes = self._files.size(fd)
                self._files.copy_bytes(fd, copy, 0, size_bytes)
                if self._files.size(fd) >= size_bytes:
                    return size_bytes
                # The index was sealed in between, which cuts it: the copied pieces are of two moments.
                self._files.truncate(copy, 0)
