"""Segments of a bucket as files in a local folder of bounded size.

Each segment has a folder of its own, with the names that `timestone.segment.Segment` expects: index, records, and the
dictionary when the records need one. A folder gets its name when it is complete, so a process that is killed leaves
nothing half done. What an earlier process has left is compared with the hashes of the manifest before its first use."""

import errno
import logging
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from timestone.disk.files import Files
from timestone.format import names

from ..buckets.bucket import PIECE_BYTES
from ..errors import BucketUnavailable, DamagedObject
from ..objects.manifest import Manifest, StoredDictionary, StoredObject, StoredSegment, content_hash
from ..objects.manifests import LogObjects

_LOGGER = logging.getLogger("timestone.tiering")
_NAME = re.compile(r"[0-9a-f]{16}-[0-9]{20}-.+")
"""Id of the log, base offset, and the rest of the name of the object."""
_TRIES = 2
"""An object with the wrong bytes is fetched once more: the transfer may have been at fault."""


class FetchStatus(NamedTuple):
    """Counters and contents of a cache of segments."""

    cached_bytes: int = 0
    cached_segments: int = 0
    fetched_bytes: int = 0
    fetched_segments: int = 0
    hits: int = 0
    """Uses of a segment that was in the folder."""


@dataclass(slots=True)
class _Entry:
    size_bytes: int
    users: int = 0
    checked: bool = False
    """Its files are complete and have the expected bytes."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by the caller that fetches; the others wait for it."""


def dictionary_of(manifest: Manifest, stored: StoredSegment) -> StoredDictionary | None:
    """Return the dictionary that the records of a segment were compressed with; None for none. Raises DamagedObject
    when the manifest does not name it."""
    number = stored.trailer.frames.dictionary if stored.trailer.frames else 0
    if not number:
        return None
    for one in manifest.dictionaries:
        if one.number == number:
            return one
    raise DamagedObject(
        manifest.place.manifest(manifest.version),
        f"dictionary {number} of {stored.segment.name} is not named",
    )


class FetchedSegments:
    """The most recently used segments of a bucket. Any thread may call; the folder belongs to one process at a time."""

    def __init__(
        self, folder: Path, limit_bytes: int, *, min_free_bytes: int = 0, files: Files | None = None
    ) -> None:
        """folder: made when missing. limit_bytes: segments in use are kept beyond it. min_free_bytes: must stay free on
        the disk. Raises OSError."""
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._min_free_bytes = min_free_bytes
        self._files = files or Files()
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._fetched_bytes = self._fetched_segments = self._hits = 0
        self._away: BucketUnavailable | None = None
        """The last error of a bucket that does not answer."""
        self._asking = threading.Lock()
        """Held by the one caller that asks it then."""
        self._files.make_directories(folder)
        self._take_over()
        self._evict()

    @contextmanager
    def use(
        self, objects: LogObjects, stored: StoredSegment, dictionary: StoredDictionary | None = None
    ) -> Iterator[Path]:
        """Yield the folder with the files of a segment, fetched if they are not there. They stay until the block ends;
        files that were opened in it can be read for as long as they are open. dictionary: see `dictionary_of`.

        Raises DamagedObject when the bucket has other bytes, ObjectMissing, BucketError, OSError."""
        name = self._name(objects, stored)
        with self._lock:
            entry = self._entries.setdefault(name, _Entry(_size(stored, dictionary)))
            entry.users += 1
            self._entries.move_to_end(name)
        try:
            if entry.checked or not self._made_ready(entry, name, objects, stored, dictionary):
                self._hits += 1
            yield self._folder / name
        finally:
            with self._lock:
                entry.users -= 1
                if not entry.checked and not entry.users:
                    self._entries.pop(name, None)
            self._evict()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask the bucket within the block. While it does not answer, one caller at a time does, and the others have the
        last error at once: callers have few threads, with which they read from the disk, too. Raises
        BucketUnavailable."""
        if self._away is None:
            yield from self._noted()
            return
        with self._alone(self._asking):
            yield from self._noted()

    def _noted(self) -> Iterator[None]:
        away = None
        try:
            yield
        except BucketUnavailable as error:
            away = error
            raise
        finally:
            self._away = away

    @contextmanager
    def _alone(self, lock: threading.Lock) -> Iterator[None]:
        """Hold a lock that is held while the bucket is asked. Raises BucketUnavailable instead of waiting for it while
        the bucket does not answer."""
        away = self._away
        if not lock.acquire(blocking=away is None):
            raise BucketUnavailable(str(away))
        try:
            yield
        finally:
            lock.release()

    def folder_of(self, objects: LogObjects, stored: StoredSegment) -> Path:
        """Return the folder of the files of a segment, which may be absent."""
        return self._folder / self._name(objects, stored)

    def holds(self, objects: LogObjects, stored: StoredSegment) -> bool:
        """Return whether `use` would fetch nothing now, unless the files turn out to be damaged."""
        return self._name(objects, stored) in self._entries

    def status(self) -> FetchStatus:
        """Return the counters and the contents."""
        with self._lock:
            sizes = [one.size_bytes for one in self._entries.values()]
        return FetchStatus(sum(sizes), len(sizes), self._fetched_bytes, self._fetched_segments, self._hits)

    def _name(self, objects: LogObjects, stored: StoredSegment) -> str:
        stem = stored.segment.name.rpartition("/")[2].removesuffix(names.SEGMENT_SUFFIX)
        return f"{objects.place.log_id:016x}-{stem}"

    def _take_over(self) -> None:
        """Note what earlier processes have left, the oldest first, and remove what they had not completed."""
        found: list[tuple[int, str, int]] = []
        for name in self._files.names(self._folder):
            path = self._folder / name
            if not is_fetched(name):
                _LOGGER.warning("%s: ignored: it is not a segment of the bucket", path)
                continue
            if name.endswith(names.TEMPORARY_SUFFIX):
                self._remove(path)
                continue
            try:
                found.append(self._age_of(name))
            except OSError as error:
                _LOGGER.warning("%s: ignored: %s", path, error)
        for _, name, size in sorted(found):
            self._entries[name] = _Entry(size)

    def _age_of(self, name: str) -> tuple[int, str, int]:
        """Return when the files of a segment were last used, its name, and their bytes. Raises OSError."""
        path = self._folder / name
        size = sum(self._files.stat(path / inner).st_size for inner in self._files.names(path))
        return self._files.stat(path).st_mtime_ns, name, size

    def _made_ready(
        self,
        entry: _Entry,
        name: str,
        objects: LogObjects,
        stored: StoredSegment,
        dictionary: StoredDictionary | None,
    ) -> bool:
        """Have the files of a segment in its folder; were they fetched?"""
        with self._alone(entry.lock):
            if entry.checked:
                return False
            fetched = self._fetch_missing(self._folder / name, objects, stored, dictionary)
            entry.size_bytes, entry.checked = _size(stored, dictionary), True
            return fetched

    def _fetch_missing(
        self, path: Path, objects: LogObjects, stored: StoredSegment, dictionary: StoredDictionary | None
    ) -> bool:
        wanted = _wanted(path, stored, dictionary)
        if path.exists():
            if all(self._is_intact(file, one) for file, one in wanted):
                return False
            self._remove(path)
        self._evict()
        self._check_space(path, _size(stored, dictionary))
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{names.TEMPORARY_SUFFIX}")
        try:
            self._files.make_directory(temporary)
            with self.asking():
                for file, one in wanted:
                    self._fetch(objects, one, temporary / file.name)
            self._files.rename(temporary, path)
        except BaseException:
            self._remove(temporary)
            raise
        self._fetched_segments += 1
        return True

    def _fetch(self, objects: LogObjects, stored: StoredObject, path: Path) -> None:
        """Fetch an object to a new file. Raises DamagedObject, BucketError, OSError."""
        for remaining in reversed(range(_TRIES)):
            fd = self._files.create(path)
            try:
                position = 0
                for piece in objects.pieces(stored):
                    self._files.write_all(fd, piece, position)
                    position += len(piece)
                self._fetched_bytes += position
                return
            except DamagedObject:
                self._files.unlink(path)
                if not remaining:
                    raise
            finally:
                self._files.close(fd)

    def _is_intact(self, path: Path, stored: StoredObject) -> bool:
        try:
            with self._files.opened(path) as fd:
                found, position = content_hash(), 0
                while piece := self._files.read_all(fd, PIECE_BYTES, position):
                    found.update(piece)
                    position += len(piece)
        except OSError:
            return False
        return position == stored.size_bytes and found.hexdigest() == stored.hash

    def _evict(self) -> None:
        """Remove the least recently used segments until those that are there or on their way are within the limit."""
        with self._lock:
            total = sum(one.size_bytes for one in self._entries.values())
            for name, one in list(self._entries.items()):
                if total <= self._limit_bytes:
                    return
                if not one.users:
                    self._remove(self._folder / name)
                    del self._entries[name]
                    total -= one.size_bytes

    def _check_space(self, path: Path, size_bytes: int) -> None:
        free_bytes = self._files.free_bytes(self._folder)
        if free_bytes < self._min_free_bytes + size_bytes:
            raise OSError(
                errno.ENOSPC,
                f"{os.strerror(errno.ENOSPC)}: fetching a segment of {size_bytes} bytes has to leave "
                f"{self._min_free_bytes} bytes free, there are {free_bytes}",
                str(path),
            )

    def _remove(self, path: Path) -> None:
        """Remove a folder with files, or a file in its place; what cannot be removed is found by the next process."""
        with suppress(OSError):
            if not path.is_dir():
                return self._files.unlink(path)
            for name in self._files.names(path):
                self._files.unlink(path / name)
            self._files.remove_directory(path)


def is_fetched(name: str) -> bool:
    """Return whether a name in the folder is one of a segment, complete or not. Others are left alone."""
    return _NAME.fullmatch(name) is not None


def _wanted(
    folder: Path, stored: StoredSegment, dictionary: StoredDictionary | None
) -> list[tuple[Path, StoredObject]]:
    base = stored.base
    wanted = [
        (names.segment_path(folder, base, stored.trailer.generation), stored.segment),
        (names.index_path(folder, base), stored.index),
    ]
    if dictionary is not None:
        wanted.append((names.dictionary_path(folder, dictionary.number), dictionary.object))
    return wanted


def _size(stored: StoredSegment, dictionary: StoredDictionary | None) -> int:
    return stored.size_bytes + (dictionary.object.size_bytes if dictionary else 0)
