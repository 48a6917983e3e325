"""Salvage: copies all provable records of a damaged store into a new one.

Records keep their offsets, times, topics and headers, so a consumer continues with the copy at the same offset as with
the original. Where an offset is missing, a segment of the copy ends. The copy continues after every offset that a
reader of the original may have seen. The original is only read.

    proof                   entry and bytes, see `record_verifier.py`
    examined                the files of the log, those that a recovery quarantined, those that a seal has not finished
    two with one offset     files in place count before quarantined ones, the higher epoch before the lower
    a log that no file      cannot be saved: the crc of every entry is salted with the log's id
      can name"""

import errno
import json
from collections.abc import Callable, Collection
from contextlib import closing
from functools import partial
from pathlib import Path

from timestone.disk.catalog import Catalog, CatalogRow
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.disk.lock import is_owned, read_owner
from timestone.errors import StoreLocked, TimestoneError
from timestone.format import names
from timestone.format.store_listing import logs_of_store
from timestone.repair.log_salvager import LogSalvager, Progress, Salvaged
from timestone.repair.salvage_report import SalvageReport

REPORT_NAME = "salvage.json"
_PARTIAL_SUFFIX = ".partial"


def salvage_store(
    source: Path,
    target: Path,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> SalvageReport:
    """Copy the provable part of the store in `source` into a new store in `target`, which must not exist. It appears
    there when complete, with the report in `salvage.json`. Raises NotAStore, StoreLocked if a process owns the
    source, FileExistsError, ValueError for a target within the source, and OSError if the target cannot be written
    (the unfinished copy stays in `<target>.partial`)."""
    files = files or Files()
    logs = logs_of_store(files, source)
    lock = source / names.LOCK_NAME
    if is_owned(files, lock):
        raise StoreLocked(source, *read_owner(files, lock))
    if target.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"invalid target {target}: expected a path outside of {source}")
    unfinished = target.with_name(target.name + _PARTIAL_SUFFIX)
    for path in (target, unfinished):
        if path.exists():
            raise FileExistsError(errno.EEXIST, "is already there", str(path))
    files.make_directory(unfinished)
    old = _OldCatalog(source / names.CATALOG_NAME)
    salvaged = [
        LogSalvager(files, clock or Clock(), source, unfinished, log, old.rows.get(log), progress).run()
        for log in logs
    ]
    old.note_missing(logs)
    old.copy_to(unfinished / names.CATALOG_NAME, salvaged)
    report = SalvageReport(str(source), str(target), tuple(one.report for one in salvaged), tuple(old.notes))
    files.write_file(unfinished / REPORT_NAME, json.dumps(report.to_json(), indent=2).encode())
    files.sync_directory(unfinished)
    files.rename(unfinished, target)
    files.sync_directory(target.parent)
    return report


class _OldCatalog:
    """Readable part of the catalogue of the source."""

    def __init__(self, path: Path) -> None:
        self.rows: dict[tuple[str, int], CatalogRow] = {}
        self.notes: list[str] = []
        self._documents: dict[str, dict[str, bytes]] = {}
        if not path.exists():
            self.notes.append(f"there is no {path.name}: settings, sessions and named readers are lost")
            return
        try:
            catalog = Catalog(path, read_only=True)
        except (OSError, TimestoneError) as error:
            self.notes.append(f"{error}; settings, sessions and named readers are lost")
            return
        try:
            broken: list[str] = []
            self._take("settings", lambda: self.rows.update(catalog.logs(broken)))
            spaces: list[str] = []
            self._take("sessions and named readers", lambda: spaces.extend(catalog.spaces()))
            for space in spaces:
                self._take(space, partial(self._take_space, catalog, space, broken))
            self.notes += [f"{path.name}: {one}; it is lost" for one in broken]
        finally:
            catalog.close()

    def _take_space(self, catalog: Catalog, space: str, broken: list[str]) -> None:
        self._documents[space] = catalog.items(space, broken)

    def _take(self, what: str, read: Callable[[], None]) -> None:
        try:
            read()
        except (OSError, TimestoneError, ValueError, TypeError) as error:
            self.notes.append(f"{error}; {what} could not be read")

    def note_missing(self, logs: Collection[tuple[str, int]]) -> None:
        """Note the logs in the catalogue that have no folder."""
        for one in sorted(self.rows.keys() - set(logs)):
            self.notes.append(f"{names.log_folder(*one)}: its folder is missing; all of it is lost")

    def copy_to(self, path: Path, salvaged: list[Salvaged]) -> None:
        with closing(Catalog(path)) as catalog:
            for one in salvaged:
                if one.epoch is not None:
                    log, partition = one.report.log, one.report.partition
                    catalog.put_log(log, partition, one.config, one.report.end_offset, one.epoch)
            for space, items in self._documents.items():
                catalog.put_many(space, items)
