"""The thread that uploads what a store seals, log by log.

What belongs here: the claim on the prefix, whose turn it is, what follows an error, and what there is to say about it
all. A bucket that does not answer is asked again, after a wait that grows to a minute; nothing else in the store
waits for it."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, cast

from timestone.config import DAY_MS
from timestone.disk.files import Files
from timestone.errors import TimestoneError, UnsupportedFormat

from ..buckets.bucket import Bucket
from ..errors import (
    BucketError,
    BucketRefused,
    BucketUnavailable,
    DamagedObject,
    LeaderChanged,
    PrefixInUse,
    UnfitBucket,
)
from ..objects.layout import CLUSTER
from ..objects.manifest import Manifest
from .log_uploader import FOLLOW_S, LogUploader, UploadedLog
from .ownership import Documents, Leadership, LedLog, Owner, Ownership, probe
from .pace import Stopping, UploadPace
from .upload import SegmentChanged

_LOGGER = logging.getLogger("timestone.tiering")
_RETRY_FIRST_S = 1.0
_RETRY_MOST_S = 60.0
_CHANGED_S = 1.0
_REPORT_EVERY_S = 60.0
_COLLECT_EVERY_S = 6 * 3600.0
_ANSWER_S = 5.0
"""How long a start and a stop wait for a bucket that accepts calls and does not answer them."""
_FINAL = (PrefixInUse, UnfitBucket)
"""What no later try can change."""


class LogStatus(NamedTuple):
    """Progress of the upload of one log."""

    log: str
    start: int
    end: int
    stored_bytes: int
    segment_count: int
    waiting_segments: int
    waiting_bytes: int
    error: str | None


@dataclass(slots=True)
class UploadStatus:
    """State of the uploader and its counters since it began."""

    state: str = "starting"
    """starting, idle, uploading, paused (for the disk), waiting (for the bucket), stopped."""
    generation: int | None = None
    uploaded_bytes: int = 0
    uploaded_segments: int = 0
    deleted_objects: int = 0
    error_count: int = 0
    last_error: str | None = None


class Uploader:
    """Uploads the logs of one store. Any thread may call."""

    def __init__(
        self,
        bucket: Bucket,
        documents: Documents,
        logs: Callable[[], Iterable[UploadedLog]],
        *,
        files: Files,
        now_us: Callable[[], int],
        flush_s: Callable[[], float],
        bytes_per_s: int = 0,
        delete_delay_us: int = DAY_MS * 1000,
        is_replicated: bool = False,
        cluster: Callable[[], bytes | None] = lambda: None,
        known: Callable[[LogUploader, Manifest], None] = lambda uploader, manifest: None,
        note_error: Callable[[str], None] = lambda error: None,
    ) -> None:
        """logs: those of the store now. is_replicated: whether they are replicas, each of which is uploaded while it
        leads. cluster: returns what is to be noted in the bucket about their cluster; None while that is not known.
        known: see `LogUploader`. note_error: called when uploads begin to fail, or for
        another reason, and with an empty text when they no longer do."""
        self.bucket = bucket
        self._ownership = None if is_replicated else Ownership(bucket, documents, now_us)
        """Claim on the prefix, which replicas do not need."""
        self._status = UploadStatus()
        self._cluster: Callable[[], bytes | None] | None = cluster if is_replicated else None
        """None once it is noted."""
        self._logs = logs
        self._files = files
        self._now_us = now_us
        self._known = known
        self._note_error = note_error
        self._noted: str | None = None
        self._delete_delay_us = delete_delay_us
        # A few times within the delay, and not too often: each look lists the objects of all logs.
        self._collect_every_s = min(max(delete_delay_us / 4e6, 1.0), _COLLECT_EVERY_S)
        self._collect_at_s = time.monotonic() + self._collect_every_s
        self._pace = UploadPace(bytes_per_s, flush_s)
        self._uploaders: dict[int, LogUploader] = {}
        self._errors: dict[int, str] = {}
        self._due_s: dict[int, float] = {}
        """When a log is looked at again, which waits or met an error."""
        self._changed = ""
        self._reported = (time.monotonic(), 0, 0)
        """When the last line on progress was logged, and what was uploaded by then."""
        self._retry_s = 0.0
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Held to end a start, to stop, and to tell the store what is in the bucket."""
        self._claimed = threading.Event()
        """The first claim has an outcome."""
        self._starting = True
        self._refused: Exception | None = None

    def start(self) -> None:
        """Claim the prefix and begin. A bucket that does not answer is asked again in the background.

        Raises PrefixInUse, UnfitBucket, BucketRefused, DamagedObject, OSError: nothing has begun then."""
        self._thread = threading.Thread(target=self._run, name="timestone-tiering", daemon=True)
        self._thread.start()
        answered = self._claimed.wait(_ANSWER_S)
        with self._lock:
            self._starting = False
            if self._refused is not None:
                raise self._refused
            if not answered:
                self._status.last_error = f"{self.bucket.url}: no answer in {_ANSWER_S:.0f} s"

    def wake(self) -> None:
        """Something was sealed: look."""
        self._woken.set()

    def expire(self, log_id: int, start_offset: int) -> None:
        """Have the history of a log begin at an offset at the earliest: see `timestone.upkeep.tier`."""
        one = self._uploaders.get(log_id)
        if one is not None:  # else retention asks again once the history is known
            one.expire(start_offset)
            self.wake()

    def stop(self) -> None:
        """Give up what is being uploaded, and end the thread. One that waits for an answer of the bucket ends when it
        comes; the store is not touched by it."""
        self._pace.stop()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(_ANSWER_S)
        with self._lock:
            self._status.state = "stopped"

    def status(self) -> UploadStatus:
        """Return the state of the uploader."""
        if self._pace.paused:
            self._status.state = "paused"
        return self._status

    def log_status(self) -> list[LogStatus]:
        """Return the progress of each log, also while the bucket does not answer."""
        for log in self._logs():
            self.uploader_of(log)
        return [self._status_of(key, one) for key, one in sorted(self._uploaders.items())]

    def uploader_of(self, log: UploadedLog) -> LogUploader:
        """Return the uploader of one log, created at the first call."""
        key = log.topics.identity.log_id
        found = self._uploaders.get(key)
        if found is None:
            found = self._uploaders.setdefault(
                key,
                LogUploader(
                    log, self.bucket, self._owner_of(log), self._files, self._now_us, self._passed, self._tell
                ),
            )
        return found

    def _owner_of(self, log: UploadedLog) -> Owner:
        return Leadership(cast(LedLog, log)) if self._ownership is None else self._ownership

    def _run(self) -> None:
        try:
            while self._status.state != "stopped":
                try:
                    wait_s = self._work()
                    self._keep_error(next(iter(self._errors.values()), ""))
                except Stopping:
                    raise
                except Exception as error:
                    self._pace.wait(0)
                    if self._refuses_start(error):
                        return
                    wait_s = self._failed(error)
                    self._claimed.set()
                    self._pace.wait(wait_s)  # also when there is something new to upload
                    continue
                self._woken.wait(wait_s)
                self._woken.clear()
                self._pace.wait(0)
        except Stopping:
            return

    def _refuses_start(self, error: Exception) -> bool:
        """Hand an error of the first claim to `start`, when it waits and has to raise it."""
        if self._claimed.is_set() or isinstance(error, BucketUnavailable):
            return False
        with self._lock:
            self._refused = error if self._starting else None
        self._claimed.set()
        return self._refused is not None

    def _work(self) -> float | None:
        """Upload until nothing is left; in how many seconds there may be more. Raises what ends the round."""
        if self._ownership is None:
            self._claimed.set()
        elif self._ownership.generation is None:
            self._claim(self._ownership)
        if self._cluster is not None and (noted := self._cluster()) is not None:
            self._warn_of_unfit_bucket()
            self.bucket.write(CLUSTER, (noted,))
            self._cluster = None
        while True:
            waits = [wait_s for log in self._logs() if (wait_s := self._step(log)) is not None]
            if not waits:
                self._status.state = "idle"
                self._report()
                return self._collect() if self._ownership is not None else min(self._collect(), FOLLOW_S)
            self._report(_REPORT_EVERY_S)
            if min(waits) > 0:
                return min(waits)

    def _warn_of_unfit_bucket(self) -> None:
        """Log a warning where the bucket ignores create-only: replicas upload without it, but nothing would tell that
        another cluster uploads to the same place. Raises BucketError."""
        with suppress(BucketRefused):  # without the right to delete what it tries
            try:
                probe(self.bucket)
            except UnfitBucket as error:
                _LOGGER.warning("tiering: %s; nodes of a cluster upload all the same", error)

    def _step(self, log: UploadedLog) -> float | None:
        one = self.uploader_of(log)
        key = log.topics.identity.log_id
        if (left_s := self._due_s.get(key, 0.0) - time.monotonic()) > 0:
            return left_s
        try:
            self._status.state = "uploading"
            wait_s = one.step()
        except SegmentChanged as error:
            # Compression or retention was quicker, which happens once; what stays so is damage.
            if self._changed == str(error):
                self._note(key, error)
            self._changed = str(error)
            self._due_s[key] = time.monotonic() + _CHANGED_S
            return _CHANGED_S
        except LeaderChanged:
            self._due_s[key] = time.monotonic() + _CHANGED_S
            return _CHANGED_S
        except (BucketError, Stopping, *_FINAL):
            raise
        except (TimestoneError, OSError) as error:
            # Of this log: the others continue, and it is looked at again later, for it may have been mended.
            self._note(key, error)
            self._due_s[key] = time.monotonic() + _RETRY_MOST_S
            return _RETRY_MOST_S
        self._errors.pop(key, None)
        self._retry_s = 0.0
        if wait_s == 0.0:
            self._status.uploaded_segments += 1
        elif wait_s is not None:
            self._due_s[key] = time.monotonic() + wait_s
        return wait_s

    def _report(self, after_s: float = 0.0) -> None:
        """Log what was uploaded since the last line, and what waits, unless the last line is not so old."""
        now_s, (reported_s, count, size) = time.monotonic(), self._reported
        status = self._status
        if status.uploaded_segments == count or now_s < reported_s + after_s:
            return
        waiting = [one.backlog() for one in self._uploaders.values()]
        _LOGGER.info(
            "%s: uploaded segments: %d, bytes: %d; waiting segments: %d, bytes: %d",
            self.bucket.url,
            status.uploaded_segments - count,
            status.uploaded_bytes - size,
            sum(one.segment_count for one in waiting),
            sum(one.size_bytes for one in waiting),
        )
        self._reported = (now_s, status.uploaded_segments, status.uploaded_bytes)

    def _collect(self) -> float:
        """Delete objects that nothing needs any more, when it is time; in how many seconds to look again."""
        if time.monotonic() >= self._collect_at_s:
            for key, one in list(self._uploaders.items()):
                try:
                    deleted = one.collect(self._delete_delay_us)
                except (DamagedObject, UnsupportedFormat) as error:
                    self._note(key, error)
                    continue
                self._status.deleted_objects += deleted
            self._collect_at_s = time.monotonic() + self._collect_every_s
        return max(0.0, self._collect_at_s - time.monotonic())

    def _claim(self, ownership: Ownership) -> None:
        self._status.generation = ownership.claim()
        self._claimed.set()
        _LOGGER.info("%s: claimed with generation %d", self.bucket.url, self._status.generation)

    def _tell(self, uploader: LogUploader, manifest: Manifest) -> None:
        """Hand a manifest to the store, unless it was stopped: the store may be closed then."""
        with self._lock:
            if self._status.state == "stopped":
                raise Stopping("the upload was stopped")
            self._known(uploader, manifest)

    def _passed(self, size_bytes: int) -> None:
        self._pace(size_bytes)
        self._status.uploaded_bytes += size_bytes

    def _failed(self, error: Exception) -> float:
        """Note an error; in how many seconds to try again."""
        expected = isinstance(error, TimestoneError | OSError)
        if str(error) != self._status.last_error or not expected:
            _LOGGER.error("tiering: %s", error, exc_info=not expected)
        self._status.error_count += 1
        self._status.last_error = str(error)
        self._keep_error(str(error))
        if isinstance(error, _FINAL):
            self._status.state = "stopped"
            return 0.0
        self._status.state = "waiting"
        self._retry_s = min(max(2 * self._retry_s, _RETRY_FIRST_S), _RETRY_MOST_S)
        return self._retry_s * random.uniform(0.5, 1.0)

    def _keep_error(self, error: str) -> None:
        with self._lock:
            if error == self._noted or self._status.state == "stopped":
                return
            self._noted = error
            try:
                self._note_error(error)
            except OSError as failure:
                _LOGGER.warning("tiering: %s", failure)

    def _note(self, key: int, error: Exception) -> None:
        if self._errors.get(key) != str(error):
            _LOGGER.error("tiering: %s", error)
        self._errors[key] = str(error)
        self._status.error_count += 1

    def _status_of(self, key: int, one: LogUploader) -> LogStatus:
        manifest, backlog = one.manifest, one.backlog()
        return LogStatus(
            one.log.folder.name,
            manifest.start if manifest else 0,
            manifest.end if manifest else one.noted_end,
            manifest.size_bytes if manifest else 0,
            manifest.segment_count if manifest else 0,
            backlog.segment_count,
            backlog.size_bytes,
            self._errors.get(key),
        )
