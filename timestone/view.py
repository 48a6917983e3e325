"""A store read by a process that does not own it: no lock, no write, live or copied, with a crashed owner or
a running one.

What is published is what the files prove: an entry whose crc holds, pointing to bytes whose crc holds. The
owner writes records before their entries, so on one machine an entry that is there has its bytes; after a
power loss a reader meets CorruptRecord at a torn tail until the owner has recovered it.

A view is as of its last `refresh`. It never waits for the owner and the owner never notices it.
"""

import bisect
import errno
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from timestone.disk.catalog import Catalog, CatalogRow
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.errors import (
    CorruptLog,
    ReadOnlyStore,
    StoreClosed,
    TimestoneError,
    UnknownLog,
)
from timestone.format import names
from timestone.format.folder_listing import base_offsets, known_missing, listed_bases
from timestone.format.identity import identity_from_indexes
from timestone.format.store_listing import listed_logs, logs_of_store
from timestone.format.topics import TopicDictionary
from timestone.index import Checkpoint, DamagedIndex, IndexHeader, Trailer
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES, entry_position
from timestone.readable import ReadableLog
from timestone.reading.listed_segments import ListedSegments
from timestone.reading.named_readers import Commitment, Commitments, ReaderId, check_commit, checked
from timestone.reading.retention_hold import Pin
from timestone.reading.segment_cache import OpenSegments
from timestone.reading.segment_list import History
from timestone.reading.tail_cache import TailRun
from timestone.recovery.segment_scan import examine, read_trailer
from timestone.segment import Segment

_OPEN_SEGMENTS = 256
_CHUNK_ENTRIES = 1 << 14
_SETTLED_US = 1_000_000
"""Longer than any file system takes to tell one time of change from the next."""


class StoreView:
    """A store to read from. Made by `timestone.view`; usable from any thread."""

    def __init__(self, path: Path, *, files: Files | None = None) -> None:
        """Raises NotAStore when the directory is missing or has no log."""
        self.path = path
        self.files = files or Files()
        self.open_segments = OpenSegments(_OPEN_SEGMENTS)
        self._logs: dict[tuple[str, int], LogView] = {}
        self._logs_lock = threading.Lock()
        self._closed = False
        self._rows: dict[tuple[str, int], CatalogRow] = {}
        self._rows_version: tuple[int, int, int] | None = None
        """Of the catalogue when the rows were read: which file, when it was changed, and its size."""
        self._rows_lock = threading.Lock()
        logs_of_store(self.files, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StoreView {self.path}{': closed' if self._closed else ''}>"

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the view of {self.path} is closed")

    def log_names(self) -> list[tuple[str, int]]:
        """Name and partition of each log there is now, sorted. Raises StoreClosed."""
        self._check_open()
        return listed_logs(self.files, self.path, self._is_made)

    def log(self, name: str, partition: int = 0) -> "LogView":
        """A log as it is now; one view a log, refreshed by this call. Raises UnknownLog, CorruptLog,
        UnsupportedFormat."""
        with self._logs_lock:
            self._check_open()
            view = self._logs.get((name, partition))
            if view is None:
                return self._open_log_locked(name, partition)
            try:
                view.refresh()
            except UnknownLog:  # it was deleted, and perhaps made again
                view.close()
                del self._logs[name, partition]
                return self._open_log_locked(name, partition)
            return view

    def _open_log_locked(self, name: str, partition: int) -> "LogView":
        if (name, partition) not in self.log_names():
            raise UnknownLog(names.log_folder(name, partition), self.folders())
        view = self._logs[name, partition] = LogView(self, name, partition)
        return view

    def folders(self) -> tuple[str, ...]:
        """The folders of the logs there are now, sorted by log."""
        return tuple(names.log_folder(*log) for log in self.log_names())

    def documents(self, space: str) -> dict[str, bytes]:
        """The keys and values of a space of the catalogue; empty when there is none. Raises OSError,
        CorruptLog."""
        with self._catalog() as catalog:
            return catalog.items(space) if catalog else {}

    def readers(self) -> dict[ReaderId, Commitment]:
        """All named readers that have committed. Raises OSError, CorruptLog."""
        with self._catalog() as catalog:
            return Commitments(catalog).all() if catalog else {}

    def committed(self, reader: ReaderId) -> Commitment | None:
        """What a named reader has committed, or None. Raises OSError, CorruptLog."""
        with self._catalog() as catalog:
            return Commitments(catalog).get(reader) if catalog else None

    def commit_readers(self, offsets: Mapping[ReaderId, int], *, pin: Pin | None = None) -> None:
        """Store where named readers continue, as `Store.commit_readers` does and beside the process that owns the
        store: the one thing that a view writes.

        Raises UnknownLog, OffsetOutOfRange, OSError, ReadOnlyStore when there is no catalogue or this user may
        not write it."""
        check_commit(
            offsets, {reader: self.log(reader.log, reader.partition) for reader in map(checked, offsets)}
        )
        with self._writable_catalog() as catalog:
            Commitments(catalog).put(offsets, Clock().now_us(), pin)

    def forget_readers(self, readers: Iterable[ReaderId]) -> None:
        """Remove what named readers have committed, pins included; see `Store.forget_readers`. Raises OSError,
        ReadOnlyStore."""
        with self._writable_catalog() as catalog:
            Commitments(catalog).forget(readers)

    def next_offset(self, name: str, partition: int) -> int:
        """What the catalogue says of the end of a log, which its files do not tell when retention has deleted them
        all, or when a power loss has made the owner leave offsets out; 0 when it cannot be read. Cheap when the
        catalogue is as it was."""
        try:
            # Not by a look into the file: to close it would release the locks that SQLite holds in this process.
            found = self.files.stat(self.path / names.CATALOG_NAME)
            version = found.st_ino, found.st_mtime_ns, found.st_size
            with self._rows_lock:
                if version != self._rows_version:
                    with self._catalog() as catalog:
                        self._rows = catalog.logs() if catalog else {}
                    # What was written just now may be written again without a difference in time.
                    settled = Clock().now_us() - found.st_mtime_ns // 1000 > _SETTLED_US
                    self._rows_version = version if settled else None
                row = self._rows.get((name, partition))
        except (OSError, TimestoneError):
            return 0
        return row.next_offset if row else 0

    def _is_made(self, log: tuple[str, int]) -> bool:
        """Does the catalogue have the log? The owner puts it there when it has made the folder with all its files. True
        without a catalogue that can be read."""
        try:
            with self._catalog() as catalog:
                return catalog is None or log in catalog.logs()
        except (OSError, TimestoneError):
            return True

    @contextmanager
    def _catalog(self) -> Iterator[Catalog | None]:
        """The catalogue as it is now, for one look: a view holds no lock on it in between."""
        self._check_open()
        path = self.path / names.CATALOG_NAME
        if not path.exists():
            yield None
            return
        catalog = Catalog(path, read_only=True)
        try:
            yield catalog
        finally:
            catalog.close()

    @contextmanager
    def _writable_catalog(self) -> Iterator[Catalog]:
        """The catalogue for one commit. Its lock is held for as long as that takes, then the owner's turn comes."""
        self._check_open()
        path = self.path / names.CATALOG_NAME
        if not path.exists():
            raise ReadOnlyStore(self.path, f"there is no {names.CATALOG_NAME}")
        if not os.access(path, os.W_OK) or not os.access(self.path, os.W_OK):
            raise ReadOnlyStore(self.path, "this user may not write there")
        catalog = Catalog(path)
        try:
            yield catalog
        finally:
            catalog.close()

    def close(self) -> None:
        with self._logs_lock:
            self._closed = True
            for view in self._logs.values():
                view.close()
        self.open_segments.clear()


class _Look(NamedTuple):
    """What the files of a segment say."""

    segment: Segment
    epoch: int | None
    """None when the header is damaged."""
    durable_offset: int
    """The records below it were flushed."""


class LogView(ReadableLog):
    """One log of a store view. Thread-safe."""

    def __init__(self, store: StoreView, name: str, partition: int) -> None:
        folder = store.path / names.log_folder(name, partition)
        self._store = store
        self._files = store.files
        bases, _ = base_offsets(self._files, folder)
        known = identity_from_indexes(self._files, folder, bases, name, partition)
        try:
            topics = TopicDictionary(self._files, folder / names.TOPICS_NAME, known=known)
        except FileNotFoundError:
            raise CorruptLog(folder, "it has no topic dictionary; open the store to recover it") from None
        super().__init__(folder, topics, store)
        self.epoch = 0
        self._segments = ListedSegments((), {}, lambda base: self._look_late((), base))
        self._history = History(self._segments)
        self._doubtful: set[int] = set()
        """Segments that were not what their names say when they were looked at."""
        self._files_end: int | None = None
        """Where the log ended by its files at the last look."""
        self._synced_offset = 0
        self._refresh_lock = threading.Lock()
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    @property
    def history(self) -> History:
        return self._history

    @property
    def synced_offset(self) -> int:
        return self._synced_offset

    def check_open(self) -> None:
        """Raise StoreClosed once the view is closed."""
        if self._closed:
            raise StoreClosed(f"the view of {self.folder} is closed")

    def refresh(self) -> int:
        """Look at the files again: appends, rolls, seals, deletions. Returns the end offset. Cheap when
        little changed. A read does it by itself when it finds that files have gone.

        Raises UnknownLog when the log was deleted, UnsupportedFormat, OSError.
        """
        with self._refresh_lock:
            self.check_open()
            return self._refresh_locked()

    def _refresh_locked(self) -> int:
        try:
            present = self._files.names(self.folder)
        except FileNotFoundError:
            raise UnknownLog(self.folder.name, self._store.folders()) from None
        self.topics.follow()
        listed, _ = listed_bases(present)
        found = self._look_around(listed, self._unchanged(present))
        deleted = self._deleted_of(found)
        bases = [base for base in listed if base > deleted and (base not in found or found[base] is not None)]
        seen = {base: segment for base in bases if (segment := found.get(base)) is not None}
        segments = ListedSegments(bases, seen, lambda base: self._look_late(bases, base))
        for base, following in itertools.pairwise(bases):
            if base in seen:
                self._end_before(seen[base], following)
        self.topics.refresh()  # after the entries, so that each topic they use is known
        end, before = segments[-1].end_offset if bases else 0, self._files_end
        self._files_end = end
        if before is None or end <= before:
            # Nothing was appended since: the owner may have left offsets out, or have deleted the last segment.
            end = max(end, self._store.next_offset(self.name, self.partition))
        self._end_offset = max(self._end_offset, end)
        # The start before the history: whoever sees the new history, sees the new start.
        self._start_offset = bases[0] if bases else self._end_offset
        self._synced_offset = max(self._synced_offset, self._start_offset)
        self._segments = segments
        self._history = History(segments, known_missing(present))
        self._open_records.clear()
        return self._end_offset

    def _unchanged(self, present: Sequence[str]) -> dict[int, Segment]:
        """The sealed segments that were looked at before and have no newer files."""
        newest = _newest_generations(present)
        return {
            base: segment
            for base, segment in self._segments.seen().items()
            if segment.trailer is not None and segment.trailer.generation == newest.get(base, 0)
        }

    def _look_around(self, listed: list[int], unchanged: dict[int, Segment]) -> dict[int, Segment | None]:
        """The segments that are known or have to be: those that grew or were rewritten, those that turned out not to
        be what their names say, and those at both ends of the log. None for what is gone or not the log's."""
        before = self._segments.seen()
        found: dict[int, Segment | None] = dict(unchanged)
        doubtful = set(self._doubtful)
        self._doubtful -= doubtful
        changed = (before.keys() | doubtful) - unchanged.keys()
        looks: dict[int, _Look | None] = {}
        for base in (one for one in listed if one in changed):
            looks[base] = self._look_at(base, before.get(base))
        for base in reversed(listed):
            if base in unchanged:
                break  # when that was looked at, all in front of it was durable
            if base not in looks:
                looks[base] = self._look_at(base, None)
            look = looks[base]
            if look is not None and look.epoch is not None and look.durable_offset > base:
                break
        for base in listed:
            if base not in found and base not in looks:
                looks[base] = self._look_at(base, None)
            if found.get(base) or looks.get(base):
                break
        for base, look in looks.items():
            found[base] = look.segment if look else None
            if look is not None:
                self.epoch = max(self.epoch, look.epoch or 0)
                self._synced_offset = max(self._synced_offset, look.durable_offset)
        return found

    def _look_late(self, bases: Sequence[int], base: int) -> Segment:
        """A segment that so far only its name is known of. Raises FileNotFoundError, and the next refresh knows why."""
        look = self._look_at(base, None)
        if look is None:
            self._doubtful.add(base)
            path = names.index_path(self.folder, base)
            raise FileNotFoundError(errno.ENOENT, "it is gone, or not of this log", str(path))
        place = bisect.bisect_right(bases, base)
        if place < len(bases):
            self._end_before(look.segment, bases[place])
        return look.segment

    def _end_before(self, segment: Segment, following: int) -> None:
        """Leave out entries that a failed flush made the owner write again, in the segment that follows."""
        if segment.end_offset > following and self._look_at(following, None) is not None:
            segment.count = following - segment.base_offset

    def _deleted_of(self, found: Mapping[int, Segment | None]) -> int:
        """The highest base offset that was deleted while its turn came; -1 for none. Those before it are deleted
        too, though they were still there when they were looked at."""
        missing = {base for base, segment in found.items() if segment is None}
        if not missing:
            return -1
        present, _ = base_offsets(self._files, self.folder)
        return max(missing.difference(present), default=-1)

    def _moved_on(self, history: History, offset: int, error: FileNotFoundError) -> None:
        """A file was gone. Retention renames it before its owner says so: look at the folder."""
        self.refresh()
        self._check(offset, self.end_offset)
        if not self._segments.has_lost(history.segments):
            raise CorruptLog(Path(error.filename or self.folder), "the file is missing") from error

    def close(self) -> None:
        with self._refresh_lock:  # which reads the file that is closed here
            self._closed = True
            self.topics.close()

    @property
    def _memory_offset(self) -> int:
        return self._end_offset

    def _in_tail(self, offset: int) -> TailRun | None:
        return None

    def _look_at(self, base: int, known: Segment | None) -> _Look | None:
        """A segment as it is now; None when its files are gone or are not the log's."""
        path = names.index_path(self.folder, base)
        try:
            fd = self._files.open(path)
        except FileNotFoundError:
            return None
        try:
            page = self._files.pread(fd, HEADER_BYTES, 0)
            epoch: int | None = None
            try:
                header = IndexHeader.decode(page, path)
            except DamagedIndex:
                header = IndexHeader(self.id, base, 0, 0, bytes(16))
            else:
                epoch = header.epoch
            if (header.log_id, header.base_offset) != (self.id, base):
                return None
            trailer = read_trailer(self._files, fd, path, self.id, base, self._files.size(fd))
            if trailer is None:
                trailer = self._trailer_of_rewritten(base)
            if trailer is not None:
                if known is None or trailer != known.trailer:
                    known = self._segment(base, trailer, header.known_epoch)
                return _Look(known, epoch, base + trailer.entry_count)
            segment = known or self._segment(base, None, header.known_epoch)
            checkpoint = Checkpoint.latest(page, self.id, base)
            durable = checkpoint.entry_count if checkpoint else 0
            segment.count = self._count(fd, segment, max(segment.count, durable))
            return _Look(segment, epoch, base + min(durable, segment.count))
        finally:
            self._files.close(fd)

    def _trailer_of_rewritten(self, base: int) -> Trailer | None:
        """For a segment that was rewritten and whose own trailer does not hold: that alone names the file it lies in.
        None for any other."""
        try:
            self._files.stat(names.segment_path(self.folder, base))
            return None
        except FileNotFoundError:
            pass
        try:
            finding = examine(self._files, self.folder, base, self.id)
        except FileNotFoundError:
            return None  # it is being deleted
        return finding.trailer_for_readers(self.id) if finding.serves else None

    def _segment(self, base: int, trailer: Trailer | None, epoch: int | None) -> Segment:
        opened = self._store.open_segments
        return Segment(self._files, self.folder, base, self.id, opened, trailer=trailer, epoch=epoch)

    def _count(self, fd: int, segment: Segment, count: int) -> int:
        """How many entries are published: continue from what is known until the first that does not hold.

        An entry is looked at with pread, which cannot touch a page behind the end of the file.
        """
        # An index that is just being made has not even its header page.
        room = max(0, self._files.size(fd) - HEADER_BYTES) // ENTRY_BYTES
        count = min(count, room)
        while count < room:
            raw = self._files.pread(
                fd, min(_CHUNK_ENTRIES, room - count) * ENTRY_BYTES, entry_position(count)
            )
            entries = np.frombuffer(raw, dtype=ENTRY, count=len(raw) // ENTRY_BYTES)
            empty = np.flatnonzero(entries["timestamp_us"] == 0)
            entries = entries[: int(empty[0])] if len(empty) else entries
            valid = segment.seal.valid(entries, count)
            good = int(valid.argmin()) if not valid.all() else len(valid)
            count += good
            if good < _CHUNK_ENTRIES:
                break
        return count


def _newest_generations(present: Iterable[str]) -> dict[int, int]:
    """Of the segments that were rewritten, or are being rewritten: the highest number that a file has."""
    newest: dict[int, int] = {}
    for name in present:
        # Counted first: of ten thousand names, few or none are of this kind.
        if name.count(".") > 1 and (segment := names.parse_segment(name)) is not None:
            newest[segment[0]] = max(segment[1], newest.get(segment[0], 0))
    return newest


def view_store(path: str | os.PathLike[str], *, files: Files | None = None) -> StoreView:
    """Read a store that any process may own. Raises NotAStore."""
    return StoreView(names.store_directory(path), files=files)
