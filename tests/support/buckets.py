"""Buckets for tests: one that fails or dies at chosen calls, and checks of the objects of every bucket."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tests.support.waiting import wait_for
from timestone.disk.files import Data
from timestone.store import Store
from timestone_tiering.buckets.bucket import Bucket, ObjectFacts
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import BucketUnavailable
from timestone_tiering.objects.layout import LogPlace
from timestone_tiering.objects.manifest import Manifest
from timestone_tiering.objects.manifests import LogObjects
from timestone_tiering.tier import StoreTier

T = TypeVar("T")


class Killed(BaseException):
    """The process ends here."""


class FaultyBucket:
    """Passes calls on to another bucket, and lets one of them fail: before it is executed, or after, which is how a
    lost answer looks to the caller."""

    def __init__(self, inner: Bucket) -> None:
        self._inner = inner
        self.calls: list[str] = []
        self.fail_at = -1
        """Number of the failing call; with `stays_away` all from there on fail."""
        self.carried_out = False
        self.stays_away = False
        self.error: type[BaseException] = BucketUnavailable

    @property
    def url(self) -> str:
        return self._inner.url

    def create(self, name: str, data: bytes) -> str | None:
        return self._call(f"create {name}", lambda: self._inner.create(name, data))

    def write(self, name: str, pieces: Iterable[bytes]) -> str | None:
        return self._call(f"write {name}", lambda: self._inner.write(name, pieces))

    def read(self, name: str) -> bytes:
        return self._call(f"read {name}", lambda: self._inner.read(name))

    def stream(self, name: str) -> Iterator[Data]:
        return iter(self._call(f"read {name}", lambda: list(self._inner.stream(name))))

    def read_range(self, name: str, start: int, length_bytes: int) -> bytes:
        return self._call(f"read {name}", lambda: self._inner.read_range(name, start, length_bytes))

    def head(self, name: str) -> ObjectFacts:
        return self._call(f"head {name}", lambda: self._inner.head(name))

    def objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectFacts]:
        return iter(self._call(f"list {prefix}", lambda: list(self._inner.objects(prefix, after=after))))

    def prefixes(self, prefix: str) -> list[str]:
        return self._call(f"list {prefix}", lambda: self._inner.prefixes(prefix))

    def delete(self, names: Sequence[str]) -> None:
        return self._call(f"delete {len(names)}", lambda: self._inner.delete(names))

    def _call(self, what: str, do: Callable[[], T]) -> T:
        number = len(self.calls)
        self.calls.append(what)
        fails = number == self.fail_at or (self.stays_away and number > self.fail_at >= 0)
        if not fails:
            return do()
        if self.carried_out:
            do()
        raise self.error(f"call {number}: {what}")


class HangingBucket(FaultyBucket):
    """Passes calls on, or lets them wait until it is released: a server that accepts calls and does not answer."""

    def __init__(self, inner: Bucket) -> None:
        super().__init__(inner)
        self._answers = threading.Event()
        self._answers.set()
        self.waiting = 0
        self.outcome: Exception | None = None
        """What a call raises that has waited; None to carry it out."""

    def hang(self) -> None:
        self.waiting = 0
        self._answers.clear()

    def release(self) -> None:
        self._answers.set()

    def _call(self, what: str, do: Callable[[], T]) -> T:
        if not self._answers.is_set():
            self.waiting += 1
            assert self._answers.wait(60)
            if self.outcome is not None:
                raise self.outcome
        return super()._call(what, do)


def checked_manifest(bucket: Bucket, place: LogPlace) -> Manifest | None:
    """Return the newest manifest of a log, after reading and verifying each object that it names."""
    objects = LogObjects(bucket, place)
    manifest = objects.newest()
    if manifest is not None:
        for segment in objects.segments(manifest):
            objects.read(segment.segment)
            objects.read(segment.index)
        for stored in manifest.objects():
            objects.read(stored)
    return manifest


def upload_store(store: Store, bucket: Bucket) -> None:
    """Upload everything sealed of a store, as one run of a server does."""
    with StoreTier(store, TierConfig(url=bucket.url), bucket=bucket) as tier:
        wait_for(
            lambda: (
                tier.status().state == "idle" and not any(log.waiting_segments for log in tier.log_status())
            )
        )
