"""Uploads of sealed segments beside obstore, and appends beside uploads."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.store import from_url

import timestone
from timestone import LogConfig, Store
from timestone.config import Compression
from timestone_tiering import StoreTier, TierConfig
from timestone_tiering.buckets.aws_profile import s3_settings
from timestone_tiering.buckets.bucket_url import open_bucket

from ..engine.workload import Workload
from ..errors import BenchmarkError

LOG = "telemetry"
RECORD_BYTES = 200
_BATCH = 4096
_APPENDED_AT_ONCE = 100
_TOPICS = 1000
_SEGMENTS = 4
_LOOK_S = 0.002


class Target:
    """A part of a bucket for the benchmark, with a new prefix for each run."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/timestone-bench-{os.getpid()}"
        self._numbers = count()

    def new_url(self) -> str:
        return f"{self._url}/{next(self._numbers)}"

    def clear(self, url: str) -> None:
        """Delete what a run has left."""
        bucket = open_bucket(url)
        bucket.delete([one.name for one in bucket.objects("")])


def client(url: str) -> Any:
    """Return obstore for a prefix of a bucket, with its own settings except for the address and the credentials."""
    settings = s3_settings(os.environ) if urlsplit(url).scheme == "s3" else {"mkdir": True}
    plain: Any = {"allow_http": str(settings.get("endpoint", "")).startswith("http://")}
    return (
        from_url(url, **settings) if "mkdir" in settings else from_url(url, client_options=plain, **settings)
    )


class Uploads:
    """A store with sealed segments, uploaded again and again to new prefixes. Each row returns 10^6 bytes a second."""

    def __init__(
        self,
        directory: Path,
        target: Target,
        *,
        size_bytes: int,
        window_s: float,
        compression: Compression = Compression.NONE,
    ) -> None:
        """size_bytes: of the records. window_s: the longest time for which appends are measured. compression: of the
        segments that `upload` uploads."""
        self.target = target
        self.record_count = size_bytes // RECORD_BYTES
        self._window_s = window_s
        config = LogConfig(
            segment_bytes=size_bytes // _SEGMENTS, segment_entries=1 << 24, compression=compression
        )
        self.store: Store = timestone.open(directory / "data", ack="written", log=config)
        log = self.store.log(LOG)
        ids = [log.topic_id(f"devices/{number}/state") for number in range(_TOPICS)]
        for chunk in Workload(RECORD_BYTES, self.record_count).chunks(_BATCH):
            log.append_batch(timestone.WriteBatch(chunk, [ids[at % _TOPICS] for at in range(len(chunk))]))
        log.roll()
        _wait(lambda: sum(one.count for one in log.segment_list.sealed()) == self.record_count)
        self.files = [
            path for one in log.segment_list.sealed() for path in (one.segment_path, one.index_path)
        ]
        self._size_bytes = sum(path.stat().st_size for path in self.files)
        self._appended = Workload(RECORD_BYTES, _APPENDED_AT_ONCE * 1000)
        self._logs = count()

    def close(self) -> None:
        self.store.close()

    def by_obstore(self) -> float:
        """The files one after the other."""
        url = self.target.new_url()
        taken_s = self._put(url, threading.Event())
        self.target.clear(url)
        return self._size_bytes / taken_s / 1e6

    def by_tier(self) -> float:
        """The same files as `serve --tier` uploads them, from the claim of the prefix to the last manifest."""
        url = self.target.new_url()
        with self._tier(url) as tier:
            start = time.perf_counter()
            _wait(lambda: _is_done(tier))
            taken_s = time.perf_counter() - start
        self.target.clear(url)
        return self._size_bytes / taken_s / 1e6

    def appends(self) -> float:
        return self._append(threading.Event())

    def appends_beside_obstore(self) -> float:
        url = self.target.new_url()
        found = self._append_beside(lambda ended: self._put(url, ended))
        self.target.clear(url)
        return found

    def appends_beside_tier(self) -> float:
        url = self.target.new_url()
        with self._tier(url) as tier:
            found = self._append_beside(lambda ended: _wait(lambda: ended.is_set() or _is_done(tier)))
        self.target.clear(url)
        return found

    def upload(self) -> str:
        """Upload the segments to stay; returns where they are."""
        url = self.target.new_url()
        with self._tier(url) as tier:
            _wait(lambda: _is_done(tier))
        return url

    def _append_beside(self, upload: Callable[[threading.Event], object]) -> float:
        """Append while `upload` runs in another thread; it ends early when the event is set."""
        ended = threading.Event()

        def run() -> None:
            try:
                upload(ended)
            finally:
                ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            return self._append(ended)
        finally:
            ended.set()
            thread.join()

    def _append(self, ended: threading.Event) -> float:
        """Append synced batches until the upload has ended or the time is over."""
        name = f"appended-{next(self._logs)}"
        log = self.store.log(name)
        done, start = 0, time.perf_counter()
        until = start + self._window_s
        while done == 0 or (not ended.is_set() and time.perf_counter() < until):
            for chunk in self._appended.chunks(_APPENDED_AT_ONCE):
                log.append_many(chunk, topic="devices/1/state", ack="synced")
                done += len(chunk)
                if ended.is_set() or time.perf_counter() >= until:
                    break
        taken_s = time.perf_counter() - start
        self.store.delete_log(name)
        return done * RECORD_BYTES / taken_s / 1e6

    def _put(self, url: str, ended: threading.Event) -> float:
        to = client(url)
        start = time.perf_counter()
        for path in self.files:
            if ended.is_set():
                break
            try:
                obstore.put(to, path.name, path)
            except obstore.exceptions.BaseError as error:
                raise BenchmarkError(str(error).partition("\n")[0]) from None
        return time.perf_counter() - start

    @contextmanager
    def _tier(self, url: str) -> Iterator[StoreTier]:
        with StoreTier(self.store, TierConfig(url=url)) as tier:
            yield tier
            if tier.status().state == "stopped":
                raise BenchmarkError(f"the upload has ended: {tier.status().last_error}")


def _is_done(tier: StoreTier) -> bool:
    """Has the bucket all of the sealed segments, or has the upload ended with an error?"""
    found = [one for one in tier.log_status() if one.log == f"{LOG}-0"]
    return tier.status().state == "stopped" or (bool(found) and not found[0].waiting_segments)


def _wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(_LOOK_S)
