"""Store read by a process that does not own it: no lock, no write; a live store or a copy of its files.

A record is published if the files prove it: an entry with a valid crc that points to bytes with a valid crc. The owner
writes records before their entries, so on one machine an existing entry has its bytes; after a power loss a reader gets
CorruptRecord at a torn tail until the owner has recovered it.

A view shows the store as of its last `refresh`. It never waits for the owner, and the owner does not notice it."""

import bisect
import errno
import importlib
import itertools
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

from timestone.disk.catalog import Catalog, CatalogRow, CatalogRows
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
from timestone.format.folder_listing import (
    base_offsets,
    halves_aside,
    known_missing,
    listed_bases,
    newest_generations,
)
from timestone.format.identity import identity_from_indexes
from timestone.format.store_listing import is_listed, listed_logs, logs_of_store
from timestone.format.topics import TopicDictionary
from timestone.readable import ReadableLog
from timestone.reading.listed_segments import ListedSegments
from timestone.reading.named_readers import Commitment, Commitments, Metadata, ReaderId, check_commit
from timestone.reading.remote_history import RemoteHistory
from timestone.reading.retention_hold import Pin
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.segment_list import LostRange, SegmentList, lost_behind
from timestone.reading.tail_cache import TailRun
from timestone.recovery.segment_look import Look, SegmentLooks
from timestone.segment import Segment

_OPEN_SEGMENTS = 256

HistoryOf = Callable[["LogView"], RemoteHistory | None]


class StoreView:
    """Read-only store. Made by `timestone.view`; usable from any thread."""

    def __init__(self, path: Path, *, files: Files | None = None) -> None:
        """Raises NotAStore if the directory is missing or has no log."""
        self.path = path
        self.files = files or Files()
        self.open_segments = SegmentCache(_OPEN_SEGMENTS)
        self.history_of: HistoryOf | None = None
        """What a bucket holds of a log; set before the first log is opened."""
        self._logs: dict[tuple[str, int], LogView] = {}
        self._logs_lock = threading.Lock()
        self._closed = False
        self._rows = CatalogRows(self.files, path / names.CATALOG_NAME, self._catalog)
        self._check_there()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StoreView {self.path}{': closed' if self._closed else ''}>"

    @property
    def location(self) -> str:
        """Return the location of the store, for messages."""
        return str(self.path)

    def _check_there(self) -> None:
        logs_of_store(self.files, self.path)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the view of {self.path} is closed")

    def log_names(self, *, server: bool = False) -> list[tuple[str, int]]:
        """Return the logs, sorted; with `server`, also those that a server writes about itself. Raises StoreClosed."""
        self._check_open()
        return [log for log in self._listed() if server or not names.is_server_log(log[0])]

    def _listed(self) -> list[tuple[str, int]]:
        return listed_logs(self.files, self.path, self._is_made)

    def log_as_of(self, name: str, partition: int, state: str | None) -> "LogView":
        """Return a log as of a state from `LogView.state` if it is kept, else as it is now."""
        return self.log(name, partition)

    def log(self, name: str, partition: int = 0) -> "LogView":
        """Return the one view of a log, refreshed now. Raises UnknownLog, CorruptLog, UnsupportedFormat."""
        if type(name) is not str or type(partition) is not int:
            names.validate_log(name, partition)
        with self._logs_lock:
            self._check_open()
            view = self._logs.get((name, partition))
            if view is None:
                return self._open_log_locked(name, partition)
            try:
                view.refresh()
            except UnknownLog:  # it was deleted, and perhaps created again
                view.close()
                del self._logs[name, partition]
                return self._open_log_locked(name, partition)
            return view

    def _open_log_locked(self, name: str, partition: int) -> "LogView":
        if not is_listed(self.files, self.path, (name, partition), self._is_made):
            raise UnknownLog(names.log_folder(name, partition), self.folders())
        view = LogView(self, name, partition)
        if self.history_of is not None:
            view.follow_history(self.history_of)
        self._logs[name, partition] = view
        return view

    def lacks_topics(self, name: str, partition: int) -> bool:
        """Return whether a log is there without its topic dictionary: neither deleted nor created again."""
        path = self.path / names.log_folder(name, partition) / names.TOPICS_NAME
        return is_listed(self.files, self.path, (name, partition), self._is_made) and not path.exists()

    def folders(self) -> tuple[str, ...]:
        """Return the folders of the existing logs, sorted by log."""
        return tuple(names.log_folder(*log) for log in self.log_names())

    def documents(self, space: str) -> dict[str, bytes]:
        """Return keys and values of a space of the catalogue, empty without one. Raises OSError, CorruptLog."""
        with self._catalog() as catalog:
            return catalog.items(space) if catalog else {}

    def document(self, space: str, key: str) -> bytes | None:
        """Return the value of a key in a space of the catalogue; None if there is none. Raises OSError, CorruptLog."""
        with self._catalog() as catalog:
            return catalog.get(space, key) if catalog else None

    def page(self, space: str, after: str, limit: int, text: str) -> tuple[dict[str, bytes], str | None]:
        """Return a page of a space of the catalogue, as `Catalog.page`. Raises OSError, CorruptLog."""
        with self._catalog() as catalog:
            return catalog.page(space, after, limit, text) if catalog else ({}, None)

    def readers(self) -> dict[ReaderId, Commitment]:
        """Return the commits of all named readers. Raises OSError, CorruptLog."""
        with self._catalog() as catalog:
            return Commitments(catalog).all() if catalog else {}

    def committed(self, reader: ReaderId) -> Commitment | None:
        """Return the commit of a named reader, or None. Raises OSError, CorruptLog."""
        with self._catalog() as catalog:
            return Commitments(catalog).get(reader) if catalog else None

    def commit_readers(
        self, offsets: Mapping[ReaderId, int], *, pin: Pin | None = None, metadata: Metadata | None = None
    ) -> None:
        """Store where named readers continue, as `Store.commit_readers` does, while another process may own the store:
        the only write of a view. Raises UnknownLog, OffsetOutOfRange, OSError, ReadOnlyStore if there is no catalogue
        or this user may not write it."""
        check_commit(offsets, lambda one: self.log(one.log, one.partition))
        with self._writable_catalog() as catalog:
            Commitments(catalog).put(offsets, Clock().now_us(), pin, metadata)

    def forget_readers(self, readers: Iterable[ReaderId]) -> None:
        """Remove commits and pins of named readers as `Store.forget_readers`. Raises OSError, ReadOnlyStore."""
        with self._writable_catalog() as catalog:
            Commitments(catalog).forget(readers)

    def row(self, name: str, partition: int) -> CatalogRow | None:
        """Return the catalogue's row about the end of a log, which the files do not show after retention of all, a
        power loss, or loss of the last segment; None if it cannot be read. Cheap if the catalogue is unchanged."""
        try:
            return self._rows.all().get((name, partition))
        except (OSError, TimestoneError):
            return None

    def _is_made(self, log: tuple[str, int]) -> bool:
        """Return whether the catalogue has the log, as of a complete folder; True without a readable catalogue."""
        try:
            with self._catalog() as catalog:
                return catalog is None or log in catalog.logs()
        except (OSError, TimestoneError):
            return True

    @contextmanager
    def _catalog(self) -> Iterator[Catalog | None]:
        """Open the catalogue for one read: a view holds no lock on it in between."""
        self._check_open()
        path = self.path / names.CATALOG_NAME
        if not path.exists():
            yield None
            return
        with closing(Catalog(path, read_only=True)) as catalog:
            yield catalog

    @contextmanager
    def _writable_catalog(self) -> Iterator[Catalog]:
        """Open the catalogue for one commit; its lock is held for that long and delays the owner."""
        self._check_open()
        path = self.path / names.CATALOG_NAME
        if not path.exists():
            raise ReadOnlyStore(self.path, f"there is no {names.CATALOG_NAME}")
        if not os.access(path, os.W_OK) or not os.access(self.path, os.W_OK):
            raise ReadOnlyStore(self.path, "this user may not write there")
        with closing(Catalog(path)) as catalog:
            yield catalog

    def close(self) -> None:
        with self._logs_lock:
            self._closed = True
            for view in self._logs.values():
                view.close()
        self.open_segments.clear()


class LogView(ReadableLog):
    """One log of a store view. Thread-safe."""

    def __init__(self, store: StoreView, name: str, partition: int) -> None:
        folder = store.path / names.log_folder(name, partition)
        self._store = store
        self._files = store.files
        try:
            bases, _ = base_offsets(self._files, folder)
            known = identity_from_indexes(self._files, folder, bases, name, partition)
            topics = TopicDictionary(self._files, folder / names.TOPICS_NAME, known=known)
        except FileNotFoundError:
            if not store.lacks_topics(name, partition):
                raise UnknownLog(folder.name, store.folders()) from None
            raise CorruptLog(folder, "it has no topic dictionary; open the store to recover it") from None
        super().__init__(folder, topics, store)
        self.epoch = 0
        self._segments = ListedSegments((), {}, lambda base: self._look_late((), base))
        self._segment_list = SegmentList(self._segments)
        self._looks = SegmentLooks(self._files, folder, self.id, store.open_segments)
        self._unserved: dict[int, str] = {}
        """Segments that are listed and could not be served at the last refresh, and the reasons."""
        self._lacking: set[int] = set()
        """Segments that had fewer records at the last refresh than were flushed."""
        self._files_end: int | None = None
        """End of the log according to its files at the last refresh."""
        self._synced_offset = 0
        self._committed: int | None = None
        """The committed offset of a replicated log; None for any other."""
        self._settled: int | None = None
        """The committed offset before the last looks. Readers see no more: it may have been cut between two looks."""
        self._history_of: HistoryOf | None = None
        self._refresh_lock = threading.Lock()
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    @property
    def state(self) -> str | None:
        """Key by which `StoreView.log_as_of` finds this state of the log; None for files, which have only one."""
        return None

    @property
    def segment_list(self) -> SegmentList:
        return self._segment_list

    @property
    def synced_offset(self) -> int:
        return self._synced_offset

    def follow_history(self, history_of: HistoryOf) -> None:
        """Read records below the local start from a bucket; asked again when the local start moves."""
        with self._refresh_lock:
            self._history_of = history_of
            self._history = history_of(self)

    def check_open(self) -> None:
        """Raise StoreClosed once the view is closed."""
        if self._closed:
            raise StoreClosed(f"the view of {self.folder} is closed")

    def refresh(self) -> int:
        """Read the state of the files again (appends, rolls, seals, deletions), and return the end offset. Cheap if
        little changed. A read does it by itself when files have disappeared. Raises UnknownLog if the log was deleted,
        UnsupportedFormat, OSError."""
        with self._refresh_lock:
            self.check_open()
            try:
                return self._refresh_locked()
            except FileNotFoundError as error:
                if str(error.filename) != str(self.folder) and self.folder.exists():
                    raise
                raise UnknownLog(self.folder.name, self._store.folders()) from None

    def _refresh_locked(self, row: CatalogRow | None = None, *, again: bool = False) -> int:
        """row: the catalogue's row, read before this call; None to read it only if nothing was appended. again: the
        call before has found that the committed offset had risen; this one may show what is below it."""
        present = self._files.names(self.folder)
        listed, _ = listed_bases(present)
        before = self._committed
        found = self._look_around(listed, self._unchanged(present))
        if not again and self._committed != before:
            return self._refresh_locked(row, again=True)
        deleted = self._deleted_of(listed, found)
        bases = [base for base in listed if base > deleted and (base not in found or found[base] is not None)]
        seen = {base: segment for base in bases if (segment := found.get(base)) is not None}
        segments = ListedSegments(bases, seen, lambda base: self._look_late(bases, base))
        for base, following in itertools.pairwise(bases):
            if base in seen:
                self._end_before(seen[base], following)
        # After the entries: the topics of all of them are known, and none is that of a log that was copied again.
        self.topics.follow()
        self.topics.refresh()
        end, end_before = segments[-1].end_offset if bases else 0, self._files_end
        # The row of a replica counts only without segments: a reset notes there first where the log begins again.
        if row is None and not (bases and self.is_replicated) and (end_before is None or end <= end_before):
            # The owner may have skipped offsets, or the last segment is missing. Or the owner appended and closed after
            # the files were listed: list them again, after the row was read.
            row = self._store.row(self.name, self.partition)
            if row is not None and row.next_offset > end:
                return self._refresh_locked(row)
        self._files_end, self._settled = end, before
        shown = end if before is None else max([min(end, before), *bases[:1]])
        self._end_offset = max(self._end_offset, shown, row.next_offset if row else 0)
        lost = [LostRange(*one) for one in known_missing(present) if one[0] > deleted]
        lost += self._lost(present, bases)
        if row is not None and bases:
            lost += lost_behind(segments[-1], row, lost)
        segment_list = SegmentList(segments, lost)
        # Set before the segment list, so that readers of the new list find the new start.
        before_start, self._start_offset = self._start_offset, segment_list.start(self._end_offset)
        self._synced_offset = max(self._synced_offset, self._start_offset)
        self._segments = segments
        self._segment_list = segment_list
        self._end_offset = max([self._end_offset, *(one.end for one in lost)])
        if self._history_of is not None and self._start_offset != before_start:
            self._history = self._history_of(self)
        self._open_records.clear()
        return self._end_offset

    def _lost(self, present: Sequence[str], bases: Sequence[int]) -> Iterator[LostRange]:
        """Yield the lost offsets of segments that are listed but not served, or that lack records."""
        aside, told = halves_aside(present), 0
        for base in sorted(self._unserved.keys() | self._lacking):
            # A damaged last index leaves only the bytes of its records: at least one. That of a replica may be cut.
            beyond = max(self._end_offset, base + (not self.is_replicated and base not in self._unserved))
            end = bases[place] if (place := bisect.bisect_right(bases, base)) < len(bases) else beyond
            if told <= base < end and base not in aside and (lost := self._looks.lost(base, end)):
                yield lost._replace(reason=self._unserved.get(base, lost.reason))
                told = end

    def _unchanged(self, present: Sequence[str]) -> dict[int, Segment]:
        """Return the sealed segments that were examined before and have no newer files. In a replicated log only those
        whose records are all committed: others may be cut, and written again with other records."""
        newest, newest_base = newest_generations(present), max(self._segments.seen(), default=0)
        return {
            base: segment
            for base, segment in self._segments.seen().items()
            if segment.trailer is not None
            and segment.trailer.generation == newest.get(base, 0)
            and base not in self._unserved
            # The committed offset may have risen in the newest one.
            and (self._settled is None or (base != newest_base and segment.end_offset <= self._settled))
        }

    def _look_around(self, listed: list[int], unchanged: dict[int, Segment]) -> dict[int, Segment | None]:
        """Examine the segments that may have changed: those that grew or were rewritten, those that contradict their
        names, and those at both ends of the log. None for one that is missing or belongs to another log."""
        before = self._segments.seen()
        found: dict[int, Segment | None] = dict(unchanged)
        # Segments that were not served are kept: without them, two of them would be found in turn, endlessly.
        self._unserved = {base: why for base, why in self._unserved.copy().items() if base in listed}
        changed = (before.keys() | self._unserved.keys()) - unchanged.keys()
        looks: dict[int, Look | None] = {}
        for base in (one for one in listed if one in changed):
            looks[base] = self._look_at(base, before.get(base))
        for base in reversed(listed):
            if base in unchanged:
                break  # when that was examined, everything before it was durable
            if base not in looks:
                looks[base] = self._look_at(base)
            look = looks[base]
            # In a replicated log, a new segment has no committed offset until that rises: an earlier one has it.
            if (
                look is not None
                and look.epoch is not None
                and look.durable_offset > base
                and look.committed != 0
            ):
                break
        for base in listed:
            if base not in found and base not in looks:
                looks[base] = self._look_at(base)
            if found.get(base) or looks.get(base):
                break
        for base, look in looks.items():
            found[base] = look.segment if look else None
            if look is not None:
                (self._lacking.add if look.lacks_records else self._lacking.discard)(base)
                self.epoch = max(self.epoch, look.epoch or 0)
                if look.committed is not None:  # behind the end of its segment, records were given up
                    self.is_replicated = self.topics.is_cut = True
                    self._committed = max(min(look.committed, look.segment.end_offset), self._committed or 0)
                self._synced_offset = max(self._synced_offset, look.durable_offset)
        return found

    def _look_at(self, base: int, known: Segment | None = None) -> Look | None:
        """Return a segment as it is now; None if its index is missing or belongs elsewhere."""
        try:
            look = self._looks.look(base, known, both=base in self._unserved)
        except FileNotFoundError as error:
            self._unserved[base] = f"{Path(error.filename).name}: {error.strerror}"
            return None
        self._unserved.pop(base, None)
        return look

    def _look_late(self, bases: Sequence[int], base: int) -> Segment:
        """Examine a segment of which only the name is known so far. Raises FileNotFoundError; the next refresh finds
        out why."""
        look = self._look_at(base)
        if look is None:
            path = names.index_path(self.folder, base)
            raise FileNotFoundError(errno.ENOENT, self._unserved.get(base, "it is gone"), str(path))
        place = bisect.bisect_right(bases, base)
        if place < len(bases):
            self._end_before(look.segment, bases[place])
        return look.segment

    def _end_before(self, segment: Segment, following: int) -> None:
        """Leave out entries that the owner wrote again, in the following segment, after a failed flush."""
        if segment.end_offset > following and self._looks.is_served(following):
            segment.count = following - segment.base_offset

    def _deleted_of(self, listed: Sequence[int], found: Mapping[int, Segment | None]) -> int:
        """Return the highest base offset that was deleted since the listing; -1 if none is missing. It and all before
        it are deleted, even if they existed when they were examined."""
        if all(found.values()):
            return -1
        present = self._files.names(self.folder)
        first = min(listed_bases(present)[0], default=math.inf)
        return max({base for base in listed if base < first} - halves_aside(present), default=-1)

    def _moved_on(self, segment_list: SegmentList, offset: int | None, error: FileNotFoundError) -> None:
        """Check the folder after a file was missing: retention renames files before the new segment list is published.
        If nothing has changed there, the segment is lost."""
        self.refresh()
        if offset is not None:
            self._check(offset, self.end_offset)
        if self._segments.has_lost((segment_list.local or segment_list).segments):
            return
        path = Path(error.filename or self.folder)
        base = names.parse_pair_base(path.name)
        if base is not None:
            self._unserved[base] = f"{path.name}: the file is missing"
            self.refresh()
        # Not if both files are there by now: the owner has written the segment again, and the caller reads it.
        if base not in self._unserved and base not in self._segments.bases:
            raise CorruptLog(path, "the file is missing") from error

    def close(self) -> None:
        with self._refresh_lock:  # which reads the file that this call closes
            self._closed = True
            self.topics.close()

    @property
    def _memory_offset(self) -> int:
        return self._end_offset

    def _in_tail(self, offset: int) -> TailRun | None:
        return None

    def _gathered(self, offset: int, max_records: int, max_bytes: int) -> list[TailRun]:
        return []


def view_store(
    path: str | os.PathLike[str], *, tail: str | os.PathLike[str] | None = None, files: Files | None = None
) -> StoreView:
    """Return a view of a store that any process may own, or of what a store has uploaded to a bucket: `path` is a
    folder, or a URL such as s3://BUCKET/PREFIX. tail: with a URL, the folder of the store that uploads there, for the
    records that are not in the bucket yet. Raises NotAStore; for a URL what `timestone_tiering.view_bucket` and
    `timestone_tiering.view_with_tail` raise; ValueError for `tail` with a folder."""
    if isinstance(path, str) and "://" in path:
        # Not an import: this package does not know the one that reads buckets.
        tiering = importlib.import_module("timestone_tiering")
        view: StoreView = tiering.view_bucket(path) if tail is None else tiering.view_with_tail(path, tail)
        return view
    if tail is not None:
        raise ValueError(f"invalid tail: expected the URL of a bucket beside it, got the folder {path}")
    return StoreView(names.store_directory(path), files=files)
