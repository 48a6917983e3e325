"""Segments of a bucket in a folder that several processes use at the same time: one fetches, the others wait for it.

A segment is locked while its files are fetched, opened or removed. The kernel releases the locks of a killed process;
what it had not completed is removed by the next one."""

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names

from ..objects.manifest import StoredDictionary, StoredObject, StoredSegment
from ..objects.manifests import LogObjects
from .fetched_segments import FetchedSegments, is_fetched

_LOCKS = 64
"""Few files for any number of segments. Two segments of one lock wait for each other."""
_LOOK_AGAIN_S = 0.01


class SharedSegments(FetchedSegments):
    """`FetchedSegments` for the processes of one user of a machine, as long as it runs: files that are there have been
    checked by the process that has fetched them."""

    def __init__(self, folder: Path, limit_bytes: int, *, files: Files | None = None) -> None:
        """folder: made when missing. limit_bytes: for all processes together; those in use are kept beyond it. Raises
        OSError."""
        files = files or Files()
        self._locks = folder / "locks"
        files.make_directories(self._locks)
        super().__init__(folder / "segments", limit_bytes, files=files)

    @contextmanager
    def use(
        self, objects: LogObjects, stored: StoredSegment, dictionary: StoredDictionary | None = None
    ) -> Iterator[Path]:
        """See `FetchedSegments.use`. Waits while another process fetches the segment."""
        name = self._name(objects, stored)
        fd = self._open_lock(name)
        try:
            while not self._files.try_lock(fd):
                time.sleep(_LOOK_AGAIN_S)
            if not self.holds(objects, stored):  # another process has removed it
                with self._lock:
                    self._entries.pop(name, None)
            with super().use(objects, stored, dictionary) as folder:
                with suppress(OSError):
                    os.utime(folder)  # the least recently used one goes first
                yield folder
        finally:
            self._files.close(fd)

    def holds(self, objects: LogObjects, stored: StoredSegment) -> bool:
        """Return whether the segment is there now."""
        return self.folder_of(objects, stored).exists()

    def _take_over(self) -> None:
        """Nothing is noted: other processes add and remove segments."""

    def _is_intact(self, path: Path, stored: StoredObject) -> bool:
        try:
            return self._files.stat(path).st_size == stored.size_bytes
        except OSError:
            return False

    def _evict(self) -> None:
        """Remove what killed processes had not completed, and the least recently used segments of all processes."""
        found: list[tuple[int, str, int]] = []
        for name in filter(is_fetched, self._files.names(self._folder)):
            path = self._folder / name
            if name.endswith(names.TEMPORARY_SUFFIX):
                self._remove_unless_locked(path)
                continue
            with suppress(OSError):  # removed in between
                found.append(self._age_of(name))
        total = sum(size for _, _, size in found)
        for _, name, size in sorted(found):
            if total <= self._limit_bytes:
                return
            if self._remove_unless_locked(self._folder / name):
                total -= size

    def _remove_unless_locked(self, path: Path) -> bool:
        """Remove a folder with files, unless a process, or another thread of this one, holds its lock."""
        fd = self._open_lock(path.name.partition(".")[0])
        try:
            if not self._files.try_lock(fd):
                return False
            self._remove(path)
            return True
        finally:
            self._files.close(fd)

    def _open_lock(self, name: str) -> int:
        return self._files.open_lock(self._locks / f"{zlib.crc32(name.encode()) % _LOCKS:02}.lock")
