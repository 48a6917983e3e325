"""A store and its bucket: what `timestone serve --tier URL` runs, and what a Python program attaches itself.

with timestone.open("data") as store, StoreTier(store, TierConfig(url="s3://bucket/prefix")) as tier: ...
"""

from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Self

from timestone.errors import StoreClosed, UnknownLog
from timestone.log import Log
from timestone.store import Store

from .buckets.bucket import Bucket
from .buckets.bucket_url import open_bucket
from .config import TierConfig
from .errors import TieringError
from .objects.layout import LogPlace
from .objects.manifest import Manifest
from .reading.fetched_segments import FetchedSegments, FetchStatus
from .reading.histories import Histories
from .reading.local_view import FOLDER, folder_of_copies, note_error, note_source
from .uploading.log_uploader import LogUploader
from .uploading.uploader import LogStatus, Uploader, UploadStatus


class StoreTier:
    """Keeps the sealed segments of an open store in a bucket. Any thread may call."""

    def __init__(
        self,
        store: Store,
        config: TierConfig,
        *,
        bucket: Bucket | None = None,
        is_replicated: bool = False,
        left_out: Collection[str] = (),
        cluster: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """bucket: another one than that of the URL. is_replicated: the logs are replicas of a cluster, each of which
        is uploaded while it leads. left_out: names of logs that are not uploaded. cluster: returns what a restore has
        to know of the cluster; None while it is not known. Raises TieringError for a setting that is not valid."""
        self.config = config
        self.is_replicated = is_replicated
        self._store, self._left_out = store, frozenset(left_out)
        if config.url is None:
            raise TieringError("invalid URL of a tier: expected s3://BUCKET/PREFIX or another one, got none")
        chosen = bucket or open_bucket(config.url, endpoint=config.endpoint, region=config.region)
        self._uploader = Uploader(
            chosen,
            store.documents,
            self._logs,
            files=store.files,
            now_us=store.now_us,
            flush_s=self._flush_s,
            bytes_per_s=config.upload_bytes_per_s,
            delete_delay_us=config.remote_delete_delay_ms * 1000,
            is_replicated=is_replicated,
            cluster=cluster,
            known=self._known,
            note_error=lambda error: note_error(store.files, store.path, error),
        )
        self._fetched: FetchedSegments | None = None
        self._histories: Histories | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Claim the prefix and begin to upload. A bucket that does not answer is asked again in the background.

        Raises PrefixInUse, UnfitBucket, BucketRefused, DamagedObject, OSError: nothing has begun then."""
        self._attach_known()
        self._store.tier = self  # first, so that no seal is missed
        try:
            self._uploader.start()
        except BaseException:
            self._store.tier = None
            raise
        for log in self._logs():
            log.retention.expect()  # a segment that grows may be old enough to be sealed

    def close(self) -> None:
        """Upload no more. What is not in the bucket yet is uploaded after the next start. What only the bucket has can
        be read until the store is closed."""
        self._store.tier = None
        self._uploader.stop()

    def keeps(self, name: str) -> bool:
        """Return whether logs of this name are uploaded: see `timestone.upkeep.tier`."""
        return name not in self._left_out

    def look(self) -> None:
        """Look for something to upload, or that was uploaded: see `timestone.upkeep.tier`."""
        self._uploader.wake()

    def expire(self, log_id: int, start_offset: int) -> None:
        """Delete what is past the retention of a log: see `timestone.upkeep.tier`."""
        self._uploader.expire(log_id, start_offset)

    @property
    def url(self) -> str:
        """Address of the bucket, without credentials."""
        return self._uploader.bucket.url

    def status(self) -> UploadStatus:
        """Return the state of the uploader, and its counters since it began."""
        return self._uploader.status()

    def log_status(self) -> list[LogStatus]:
        """Return how far each log is uploaded."""
        return self._uploader.log_status()

    def fetch_status(self) -> FetchStatus:
        """Return the counters of segments fetched from the bucket, and those that are on the local disk."""
        return FetchStatus() if self._fetched is None else self._fetched.status()

    def _attach_known(self) -> None:
        """Let the logs be read as far as copies of the manifests know what the bucket has. Raises OSError."""
        folder, bucket = self._store.path / FOLDER, self._uploader.bucket
        self._fetched = FetchedSegments(
            folder / "cache",
            self.config.cache_bytes,
            min_free_bytes=self._store.config.min_free_bytes,
            files=self._store.files,
        )
        copies = folder_of_copies(self._store.path, bucket)
        self._histories = Histories(copies, self._fetched, self._store.files, self._store.open_segments)
        note_source(self._store.files, self._store.path, self.config, self._left_out)
        for log in self._logs():
            history = self._histories.known(bucket, LogPlace(log.id, log.name, log.partition))
            if history is not None and history.end <= log.end_offset:
                log.attach_history(history)
                self._uploader.uploader_of(log).noted_end = history.end
            if log.is_replicated and not log.config.compact:
                log.await_history(log.local_start_offset)

    def _known(self, uploader: LogUploader, manifest: Manifest) -> None:
        assert self._histories is not None
        start = max(manifest.start, uploader.expired_to)
        history, log = self._histories.note(uploader.objects, manifest, start), uploader.log
        with log.rewrites.lock:  # a replica does not begin at another offset in between
            if uploader.has_seen(log.local_start_offset):
                log.attach_history(history)
        log.expect_upkeep()

    def _logs(self) -> Iterator[Log]:
        try:
            for name, partition in self._store.log_names():
                if name in self._left_out:
                    continue
                try:
                    yield self._store.log(name, partition, create=False)
                except UnknownLog:
                    continue  # deleted since it was listed
        except StoreClosed:
            return

    def _flush_s(self) -> float:
        return max((log.flush_s for log in self._logs()), default=0.0)
