"""Segments from a bucket into the folder of a log, which can be opened as a part of a store or viewed.

A file gets its name when it is complete and flushed, the index of a segment last, so a download that is killed is
resumed: what is there already is not fetched again. Files that the manifest does not name are removed."""

import errno
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from timestone.disk.files import Data, Files
from timestone.format import names
from timestone.index import TRAILER_BYTES

from ..buckets.bucket import Bucket
from ..objects.history import LogHistory, log_histories, topic_dictionary
from ..objects.manifest import StoredDictionary, StoredObject, StoredSegment

Progress = Callable[[str, int, int], None]
"""Called with the folder name of a log, and of how many bytes how many are there."""
MARK_NAME = "DOWNLOAD"
"""The file with the URL of the bucket that a folder was filled from."""
_SEGMENTS_AT_ONCE = 4


class DownloadedLog(NamedTuple):
    """One log in a folder or a store that was filled from a bucket."""

    log: str
    partition: int
    start_offset: int
    end_offset: int
    segment_count: int
    stored_bytes: int
    fetched_segments: int
    """Without those that were there already."""


def download_logs(
    bucket: Bucket,
    target: Path,
    *,
    logs: Collection[str] = (),
    progress: Progress = lambda log, done, total: None,
    files: Files | None = None,
) -> list[DownloadedLog]:
    """Bring the segments of logs into a folder that can be viewed; run again, it fetches what is new.

    logs: names of logs or partitions; all when it is empty. Raises NoHistory, FileExistsError for a folder that has
    other files or was opened as a store, DamagedObject, UnsupportedFormat, BucketError, OSError."""
    files = files or Files()
    histories = log_histories(bucket, logs)
    mark, said = target / MARK_NAME, bucket.url.encode()
    if (target / names.CATALOG_NAME).exists():
        raise FileExistsError(errno.EEXIST, "is a store; download to another folder", str(target))
    if not mark.exists() and target.exists() and any(target.iterdir()):
        raise FileExistsError(errno.ENOTEMPTY, "is not empty; download to a new folder", str(target))
    if mark.exists() and files.read_file(mark) not in (said, b""):
        raise FileExistsError(errno.EEXIST, f"has the logs of another bucket than {bucket.url}", str(target))
    files.make_directories(target)
    fd = files.open_lock(mark)
    try:
        if not files.try_lock(fd):
            raise FileExistsError(errno.EEXIST, "another download is being written there", str(target))
        files.write_all(fd, said, 0)
        done = []
        for one in histories:
            segments = one.objects.segments(one.manifest)
            fetched = LogDownload(one, target, segments, files=files).run(progress)
            done.append(
                DownloadedLog(
                    one.manifest.place.log,
                    one.manifest.place.partition,
                    segments[0].base if segments else one.manifest.start,
                    one.manifest.end,
                    len(segments),
                    sum(segment.size_bytes for segment in segments),
                    fetched,
                )
            )
        files.sync_directory(target)
        return done
    finally:
        files.close(fd)


class LogDownload:
    """The download of one log to its folder in a store."""

    def __init__(
        self, history: LogHistory, store: Path, segments: Sequence[StoredSegment], *, files: Files
    ) -> None:
        """segments: those of the manifest to fetch, in order."""
        self.folder = store / history.folder
        self.segments = segments
        self._objects = history.objects
        self._manifest = history.manifest
        self._files = files

    @property
    def size_bytes(self) -> int:
        """Total size of its files."""
        others = [
            *(one.object for one in self._manifest.topics),
            *(one.object for one in self._dictionaries()),
        ]
        return sum(one.size_bytes for one in self.segments) + sum(one.size_bytes for one in others)

    def run(self, progress: Progress) -> int:
        """Make the folder complete; how many segments had to be fetched. Raises DamagedObject, ObjectMissing,
        BucketError, OSError, after which it can be run again."""
        self._files.make_directories(self.folder)
        self._remove_strangers()
        self._write(self.folder / names.TOPICS_NAME, topic_dictionary(self._objects, self._manifest))
        for one in self._dictionaries():
            path = names.dictionary_path(self.folder, one.number)
            if not self._has_size(path, one.object.size_bytes):
                self._fetch(one.object, path)
        for first, end in self._manifest.missing:
            if self.segments and first < self.segments[-1].end:
                self._write(names.missing_path(self.folder, first, end), b"")
        fetched = done_bytes = 0
        with ThreadPoolExecutor(_SEGMENTS_AT_ONCE) as pool:
            try:
                for stored, was_fetched in zip(
                    self.segments, pool.map(self._complete, self.segments), strict=True
                ):
                    fetched += was_fetched
                    done_bytes += stored.size_bytes
                    progress(self.folder.name, done_bytes, self.size_bytes)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        self._files.sync_directory(self.folder)
        return fetched

    def remove(self, stored: StoredSegment) -> None:
        """Remove a segment that was fetched, its index first."""
        self._files.unlink(names.index_path(self.folder, stored.base))
        self._files.unlink(self._segment_path(stored))

    def _complete(self, stored: StoredSegment) -> bool:
        """Fetch a segment unless it is there; was it fetched?"""
        segment, index = self._segment_path(stored), names.index_path(self.folder, stored.base)
        if self._is_there(stored, segment, index):
            return False
        with suppress(FileNotFoundError):
            self._files.unlink(index)  # of another upload of the same offsets
        self._fetch(stored.segment, segment)
        self._fetch(stored.index, index)
        return True

    def _is_there(self, stored: StoredSegment, segment: Path, index: Path) -> bool:
        if not self._has_size(segment, stored.segment.size_bytes):
            return False
        if not self._has_size(index, stored.index.size_bytes):
            return False
        with self._files.opened(index) as fd:
            end = self._files.read_all(fd, TRAILER_BYTES, stored.index.size_bytes - TRAILER_BYTES)
        return end == stored.trailer.encode()

    def _has_size(self, path: Path, size_bytes: int) -> bool:
        try:
            return self._files.stat(path).st_size == size_bytes
        except FileNotFoundError:
            return False

    def _fetch(self, stored: StoredObject, path: Path) -> None:
        self._write_pieces(path, self._objects.pieces(stored))

    def _write(self, path: Path, data: bytes) -> None:
        self._write_pieces(path, iter((data,)))

    def _write_pieces(self, path: Path, pieces: Iterator[Data]) -> None:
        temporary = names.with_suffix(path, names.TEMPORARY_SUFFIX)
        with suppress(FileNotFoundError):
            self._files.unlink(temporary)
        with self._files.new_file(temporary) as fd:
            position = 0
            for piece in pieces:
                self._files.write_all(fd, piece, position)
                position += len(piece)
        self._files.rename(temporary, path)

    def _segment_path(self, stored: StoredSegment) -> Path:
        return names.segment_path(self.folder, stored.base, stored.trailer.generation)

    def _dictionaries(self) -> list[StoredDictionary]:
        used = {one.trailer.frames.dictionary for one in self.segments if one.trailer.frames}
        return [one for one in self._manifest.dictionaries if one.number in used]

    def _remove_strangers(self) -> None:
        """Remove what an earlier download of another manifest has left."""
        wanted = {names.index_path(self.folder, one.base).name for one in self.segments}
        wanted |= {self._segment_path(one).name for one in self.segments}
        present = sorted(
            self._files.names(self.folder), key=lambda name: not name.endswith(names.INDEX_SUFFIX)
        )
        for name in present:  # the indexes first
            if name not in wanted and name != names.TOPICS_NAME and names.parse_dictionary(name) is None:
                path = self.folder / name
                shutil.rmtree(path) if path.is_dir() else self._files.unlink(path)
