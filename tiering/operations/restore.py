"""A store made of what a bucket has: every log up to its newest manifest, or up to a time.

    DIR.partial/RESTORE     locked by the restore that works; says of what, so that only the same one is resumed
    segments and topics     of each log (`download`), which keeps what an earlier run has fetched
    catalogue               last: settings, next offsets, and an epoch above all of the history
    DIR                     the finished folder under its name; then RESTORE goes

The restored store has no claim on the prefix: it uploads there only after `claim_prefix`, when the one that uploaded
before is gone for good. Named readers, sessions and retained messages are not in a bucket."""

import errno
import json
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from timestone.config import LogConfig
from timestone.disk.catalog import Catalog, CatalogRow
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.format import names
from timestone.index import plain_page
from timestone.kernel.entries import HEADER_BYTES
from timestone.reading.segment_cache import SegmentCache
from timestone.repair.log_copy import LogCopy
from timestone.replication.names_used import SPACE as NAMES_SPACE
from timestone.replication.names_used import used_document
from timestone.segment import Segment
from timestone.view import view_store

from ..buckets.bucket import Bucket
from ..objects.history import LogHistory, identity_of, log_histories
from ..objects.manifest import StoredSegment
from .download import DownloadedLog, LogDownload, Progress

MARK_NAME = "RESTORE"
_PARTIAL_SUFFIX = ".partial"
_READ_BYTES = 8 << 20
_READ_RECORDS = 1 << 16


def restore_store(
    bucket: Bucket,
    target: Path,
    *,
    until_us: int | None = None,
    logs: Collection[str] = (),
    for_cluster: bool = False,
    progress: Progress = lambda log, done, total: None,
    files: Files | None = None,
) -> list[DownloadedLog]:
    """Make a store in `target`, which must not exist or be empty. It appears there when it is complete and durable.

    until_us: only records that were appended before this time. logs: names of logs or partitions; all when it is empty.
    for_cluster: the logs stay replicas.
    Killed anywhere, the same call resumes it. Raises NoHistory, FileExistsError, DamagedObject, UnsupportedFormat,
    BucketError, OSError; what was fetched by then is kept in `<target>.partial`."""
    files = files or Files()
    wanted = {"url": bucket.url, "until_us": until_us, "logs": sorted(logs)}
    if for_cluster:
        wanted["for_cluster"] = True
    if _is_marked(files, target, wanted):  # an earlier run had only this left to do
        files.unlink(target / MARK_NAME)
        return list(_complete_logs(target))
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise FileExistsError(errno.ENOTEMPTY, "is not empty; restore to a new folder", str(target))
    histories = log_histories(bucket, logs)
    files.make_directories(target.parent)
    partial = names.with_suffix(target, _PARTIAL_SUFFIX)
    mark = _claim(files, partial, wanted)
    try:
        _remove_others(files, partial, {one.folder for one in histories})
        parts = [_LogRestore(files, one, partial, until_us, is_replica=for_cluster) for one in histories]
        _check_space(files, partial, parts)
        restored = [part.run(progress) for part in parts]
        _write_catalog(partial, parts, for_cluster=for_cluster)
        files.sync_directory(partial)
        with suppress(FileNotFoundError):
            files.remove_directory(target)  # it is empty
        files.rename(partial, target)
        files.sync_directory(target.parent)
        files.unlink(target / MARK_NAME)
        files.sync_directory(target)
    finally:
        files.close(mark)
    return restored


class _LogRestore:
    """The part of one log."""

    def __init__(
        self, files: Files, history: LogHistory, store: Path, until_us: int | None, *, is_replica: bool
    ) -> None:
        self._files, self._is_replica = files, is_replica
        self._history = history
        self._until_us = until_us
        found = history.objects.segments(history.manifest)
        if until_us is not None:
            found = [one for one in found if one.trailer.first_timestamp_us < until_us]
        self._epochs = [one.epoch or 0 for one in found]
        self._download = LogDownload(history, store, found, files=files)
        self._end = history.manifest.end if until_us is None else history.manifest.start

    @property
    def key(self) -> tuple[str, int]:
        return self._history.manifest.place.log, self._history.manifest.place.partition

    @property
    def size_bytes(self) -> int:
        return self._download.size_bytes

    def run(self, progress: Progress) -> DownloadedLog:
        segments = list(self._download.segments)
        fetched = self._download.run(progress)
        if self._until_us is not None and segments:
            self._end = self._cut(segments[-1], self._until_us)
        for one in () if self._is_replica else segments:
            self._part_from_cluster(one)
        return DownloadedLog(
            *self.key,
            segments[0].base if segments else self._end,
            self._end,
            sum(1 for one in segments if one.base < self._end),
            sum(one.size_bytes for one in segments if one.base < self._end),
            fetched,
        )

    @property
    def names_used(self) -> bytes:
        """Return what a replica notes of the topic names that records use which retention has deleted: no id of the
        history is given again."""
        manifest = self._history.manifest
        return used_document(manifest.place.log_id, manifest.topic_count, {})

    def row(self) -> CatalogRow:
        """Return the row of the catalogue. Its epoch is above that of the history, which shows that another store
        continues it; that of a replica comes from its cluster."""
        known = {field.name for field in fields(LogConfig)}
        settings: dict[str, Any] = {
            name: value for name, value in self._history.manifest.settings.items() if name in known
        }
        return CatalogRow(
            LogConfig(**settings), self._end, max(self._epochs, default=0) + (not self._is_replica)
        )

    def _part_from_cluster(self, stored: StoredSegment) -> None:
        """Make the segment of a replica one of a store of its own."""
        path = names.index_path(self._download.folder, stored.base)
        try:
            with self._files.opened(path, write=True) as fd:
                page = self._files.read_all(fd, HEADER_BYTES, 0)
                if (plain := plain_page(page, path)) != page:
                    self._files.write_all(fd, plain, 0)
                    self._files.fdatasync(fd)
        except FileNotFoundError:
            pass  # nothing of it is in front of the time of the restore

    def _cut(self, last: StoredSegment, until_us: int) -> int:
        """Leave out the records of the last segment from a time on; where the log ends then."""
        files, folder, trailer = self._files, self._download.folder, last.trailer
        segment = Segment(
            files, folder, last.base, trailer.log_id, SegmentCache(1), trailer=trailer, epoch=last.epoch
        )
        count = segment.first_at_or_after(until_us)
        if count == segment.count:
            return last.end
        shorter = folder / "shorter"
        with suppress(FileNotFoundError):
            shutil.rmtree(shorter)
        if count:
            files.make_directory(shorter)
            _copy_records(files, segment, count, shorter, self._history)
        segment.release()
        self._download.remove(last)
        if count:
            for name in sorted(files.names(shorter), reverse=True):  # the index last
                files.rename(shorter / name, folder / name)
            files.remove_directory(shorter)
        files.sync_directory(folder)
        return last.base + count


def _copy_records(files: Files, segment: Segment, count: int, folder: Path, history: LogHistory) -> None:
    """Write the first records of a segment as a sealed segment in another folder."""
    clock = Clock()
    identity, now_us = identity_of(history.manifest), clock.now_us()
    made = LogCopy(files, folder, identity, now_us=now_us, boot_id=clock.boot_id(), create=False)
    with closing(made) as copy:
        ordinal = 0
        while ordinal < count:
            run = segment.read(
                ordinal, max_records=min(count - ordinal, _READ_RECORDS), max_bytes=_READ_BYTES
            )
            copy.add(
                segment.base_offset + ordinal, run.entries, run.data, run.position, epoch=segment.epoch or 0
            )
            ordinal += len(run.entries)
        copy.finish()


def _claim(files: Files, folder: Path, wanted: dict[str, Any]) -> int:
    """Make the folder of an unfinished restore, or take over what a killed one of the same has left; it is ours until
    the descriptor is closed. Raises FileExistsError."""
    mark = folder / MARK_NAME
    try:
        files.make_directory(folder)
    except FileExistsError:
        if not mark.exists() and files.names(folder):
            raise FileExistsError(
                errno.EEXIST, "is already there, and is not a restore", str(folder)
            ) from None
    fd = files.open_lock(mark)
    try:
        if not files.try_lock(fd):
            raise FileExistsError(errno.EEXIST, "another restore is being written there", str(folder))
        said = json.dumps(wanted).encode()
        if files.read_all(fd, files.size(fd), 0) != said:
            _remove_others(files, folder, set())
            files.truncate(fd, 0)
            files.write_all(fd, said, 0)
            files.fdatasync(fd)
    except BaseException:
        files.close(fd)
        raise
    return fd


def _is_marked(files: Files, folder: Path, wanted: dict[str, Any]) -> bool:
    try:
        return files.read_file(folder / MARK_NAME) == json.dumps(wanted).encode()
    except (FileNotFoundError, NotADirectoryError):
        return False


def _complete_logs(store: Path) -> Iterator[DownloadedLog]:
    with view_store(store) as view:
        for log in (view.log(*one) for one in view.log_names()):
            trailers = [one.trailer for one in log.segment_list.sealed() if one.trailer is not None]
            stored_bytes = sum(one.stored_bytes + one.file_bytes for one in trailers)
            yield DownloadedLog(
                log.name, log.partition, log.start_offset, log.end_offset, len(trailers), stored_bytes, 0
            )


def _remove_others(files: Files, folder: Path, kept: Collection[str]) -> None:
    for path in (folder / name for name in files.names(folder) if name not in kept and name != MARK_NAME):
        shutil.rmtree(path) if path.is_dir() else files.unlink(path)


def _check_space(files: Files, folder: Path, parts: Sequence[_LogRestore]) -> None:
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    needed, free = sum(part.size_bytes for part in parts) - there, files.free_bytes(folder)
    if needed > free:
        raise OSError(errno.ENOSPC, f"the restore needs {needed} bytes, there are {free}", str(folder))


def _write_catalog(folder: Path, parts: Sequence[_LogRestore], *, for_cluster: bool) -> None:
    with closing(Catalog(folder / names.CATALOG_NAME)) as catalog:
        if for_cluster:
            used: dict[str, bytes | None] = {names.log_folder(*part.key): part.names_used for part in parts}
            catalog.put_many(NAMES_SPACE, used)
        catalog.put_logs({part.key: part.row() for part in parts})
