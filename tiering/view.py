"""What a store has uploaded, read from the bucket like a store: `timestone.view("s3://bucket/prefix")`.

A log is as of its newest manifest when it was asked for, which says of each segment what a read has to know to leave it
out: offsets and times. Its topics are read from the end of its index. Only segments that are read are fetched, once,
into a folder of bounded size."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from timestone.disk.catalog import Catalog
from timestone.disk.files import Files
from timestone.errors import HistoryUnavailable, ReadOnlyStore, StoreClosed, UnknownLog
from timestone.format import names
from timestone.format.topics import TopicDictionary
from timestone.readable import ReadableLog
from timestone.reading.segment_list import LostRange, SegmentList
from timestone.view import LogView, StoreView

from .buckets.bucket import Bucket
from .buckets.bucket_url import open_bucket
from .errors import NoHistory, ObjectMissing
from .objects.history import LogHistory, listed_logs, log_histories, topic_dictionary
from .objects.layout import LogPlace, parse_version, version_name
from .objects.manifest import Manifest
from .objects.manifests import LogObjects
from .reading.fetched_segments import FetchedSegments, FetchStatus, dictionary_of
from .reading.remote_segment import RemoteSegment
from .reading.shared_segments import SharedSegments
from .reading.temporary_folder import TemporaryFolder

CACHE_BYTES = 1 << 30


def view_bucket(
    url: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    cache: Path | None = None,
    cache_bytes: int = CACHE_BYTES,
    shared: Path | None = None,
) -> "BucketView":
    """Read the logs below a prefix of a bucket: s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER.

    endpoint, region: instead of those of the environment. cache: folder for fetched segments, which one process at a
    time may use and the next one finds; a temporary one when it is None. cache_bytes: how much it holds. shared:
    instead of `cache`, a folder that several processes use at the same time, and none removes.

    Raises NoHistory when there is no log, TieringError for a URL that is not valid, BucketError, OSError."""
    bucket = open_bucket(url, endpoint=endpoint, region=region)
    return BucketView(bucket, cache=cache, cache_bytes=cache_bytes, shared=shared)


class BucketView(StoreView):
    """The logs below a prefix of a bucket. Made by `view_bucket`; usable from any thread. It has no readers and no
    documents: commits of named readers raise ReadOnlyStore."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        cache: Path | None = None,
        cache_bytes: int = CACHE_BYTES,
        shared: Path | None = None,
    ) -> None:
        """See `view_bucket`."""
        self.bucket = bucket
        self._temporary = TemporaryFolder()
        self._folder = self._temporary.path
        try:
            self.fetched = (
                FetchedSegments(cache or self._folder / "segments", cache_bytes)
                if shared is None
                else SharedSegments(shared, cache_bytes)
            )
            super().__init__(Path(bucket.url))
        except BaseException:
            self._temporary.close()
            raise

    def __repr__(self) -> str:
        return f"<BucketView {self.bucket.url}{': closed' if self._closed else ''}>"

    @property
    def location(self) -> str:
        return self.bucket.url

    def fetch_status(self) -> FetchStatus:
        """Counters of fetched segments, and the contents of the cache."""
        return self.fetched.status()

    def _listed(self) -> list[tuple[str, int]]:
        """Return name and partition of each log that has a manifest, sorted. Raises BucketError."""
        return listed_logs(self.bucket)

    def log_as_of(self, name: str, partition: int, state: str | None) -> LogView:
        """Return a log as of the manifest that `LogView.state` named, without a listing; as of the newest one if that
        was deleted. Raises what `log` does."""
        self._check_open()
        if state is None:
            return self.log(name, partition)
        log_id, _, version = state.partition("/")
        place = LogPlace(int(log_id, 16), name, partition)
        objects = LogObjects(self.bucket, place)
        try:
            manifest = Manifest.decode(
                self.bucket.read(place.manifest(parse_version(version))), place, parse_version(version)
            )
        except ObjectMissing:
            return self.log(name, partition)
        return self._viewed(LogHistory(objects, manifest))

    def log_at(self, place: LogPlace) -> LogView | None:
        """Return a log by its id, as of its newest manifest, without a look at others; None if there is none. Raises
        DamagedObject, UnsupportedFormat, BucketError."""
        self._check_open()
        objects = LogObjects(self.bucket, place)
        manifest = objects.newest()
        return None if manifest is None else self._viewed(LogHistory(objects, manifest))

    def _viewed(self, history: LogHistory) -> LogView:
        place = history.manifest.place
        with self._logs_lock:
            view = self._logs[place.log, place.partition] = BucketLog(self, history, self._folder)
        return view

    def close(self) -> None:
        """Close the logs, and remove what was fetched to a temporary folder."""
        super().close()
        self._temporary.close()

    def _check_there(self) -> None:
        """Nothing is asked of a bucket before the first log."""

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the view of {self.bucket.url} is closed")

    def _open_log_locked(self, name: str, partition: int) -> LogView:
        try:
            found = log_histories(self.bucket, [names.log_folder(name, partition)])
        except NoHistory:
            found = []
        history = next((one for one in found if one.manifest.place.partition == partition), None)
        if history is None or history.manifest.place.log != name:
            raise UnknownLog(names.log_folder(name, partition), self.folders())
        view = self._logs[name, partition] = BucketLog(self, history, self._folder)
        return view

    @contextmanager
    def _catalog(self) -> Iterator[Catalog | None]:
        self._check_open()
        yield None

    def _writable_catalog(self) -> NoReturn:
        self._check_open()
        raise ReadOnlyStore(self.path, "a bucket has no readers: keep the offset elsewhere")


class BucketLog(LogView):
    """One log of a bucket, as of a manifest. Thread-safe."""

    def __init__(self, store: BucketView, history: LogHistory, folder: Path) -> None:
        """folder: for the topic dictionary. Raises DamagedObject, BucketError, OSError."""
        self._store = store
        self._objects = history.objects
        self._manifest = history.manifest
        self._files = Files()
        self._topics_path = folder / f"{history.manifest.place.log_id:016x}.topics"
        self._topics_path.write_bytes(topic_dictionary(history.objects, history.manifest))
        topics = TopicDictionary(self._files, self._topics_path)
        ReadableLog.__init__(self, folder / history.folder, topics, store)
        self._refresh_lock = threading.Lock()
        self._remote: dict[str, RemoteSegment] = {}
        self._take(history.manifest)

    def __repr__(self) -> str:
        return f"<BucketLog {self.folder.name}: offsets [{self.start_offset}, {self.end_offset})>"

    @property
    def state(self) -> str:
        return f"{self.id:016x}/{version_name(self._manifest.version)}"

    def refresh(self) -> int:
        """Look for a newer manifest. Returns the end offset. Raises UnknownLog when the log is gone, DamagedObject,
        BucketError."""
        with self._refresh_lock:
            self.check_open()
            manifest = self._objects.newest()
            if manifest is None:
                raise UnknownLog(self.folder.name, self._store.folders())
            if manifest.version != self._manifest.version:
                if manifest.topic_count > self._manifest.topic_count:
                    # The names that are there stay where they are, so the file only grows.
                    self._topics_path.write_bytes(topic_dictionary(self._objects, manifest))
                    self.topics.refresh()
                self._take(manifest)
        return self._end_offset

    def close(self) -> None:
        with self._refresh_lock:
            self._closed = True
            self.topics.close()

    def _take(self, manifest: Manifest) -> None:
        assert isinstance(self._store, BucketView)
        store, made = self._store, self._remote
        self._remote = {
            stored.segment.name: made.get(stored.segment.name)
            or RemoteSegment(
                store.fetched,
                self._objects,
                stored,
                dictionary_of(manifest, stored),
                self._files,
                store.open_segments,
            )
            for stored in self._objects.segments(manifest)
        }
        segments = list(self._remote.values())
        self._manifest = manifest
        self.epoch = max((segment.epoch or 0 for segment in segments), default=0)
        self._end_offset = max(self._end_offset, manifest.end)
        self._synced_offset = self._end_offset
        self._start_offset = manifest.start
        self._segment_list = SegmentList(segments, [LostRange(*gap) for gap in manifest.missing])
        self._open_records.clear()

    def _moved_on(self, segment_list: SegmentList, offset: int | None, error: FileNotFoundError) -> NoReturn:
        """Handle a fetched file that another program removed."""
        if offset is None:
            offset = self.start_offset
        following = segment_list.locate(offset)
        first, end = (
            (offset, offset + 1) if following is None else (following.base_offset, following.end_offset)
        )
        raise HistoryUnavailable(first, end, f"{error.filename} was removed") from error
