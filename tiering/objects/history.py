"""All logs below the prefix of a bucket, each as of its newest manifest."""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from timestone.format import names
from timestone.format.identity import LogIdentity

from ..buckets.bucket import Bucket
from ..errors import NoHistory
from .layout import LogPlace
from .manifest import Manifest
from .manifests import LogObjects

_LISTINGS_AT_ONCE = 16


class LogHistory(NamedTuple):
    """A log in a bucket, and the manifest that counts."""

    objects: LogObjects
    manifest: Manifest

    @property
    def folder(self) -> str:
        """The name of the log's folder: `telemetry-0`."""
        return names.log_folder(self.manifest.place.log, self.manifest.place.partition)


def log_places(bucket: Bucket) -> list[LogPlace]:
    """Return the logs that have objects in a bucket, sorted by name, partition and id. Raises BucketError."""
    with ThreadPoolExecutor(_LISTINGS_AT_ONCE) as pool:
        listings = list(pool.map(bucket.prefixes, bucket.prefixes("")))
    found = [place for listing in listings for one in listing if (place := LogPlace.parse(one)) is not None]
    return sorted(found, key=lambda place: (place.log, place.partition, place.log_id))


def log_histories(bucket: Bucket, chosen: Collection[str] = ()) -> list[LogHistory]:
    """Return the logs that have a manifest, sorted by name and partition. Of logs that were deleted and made again
    under one name, the one made last.

    chosen: names of logs, or of single partitions (`telemetry-0`); all when it is empty. Raises NoHistory when there is
    none or one that was chosen is missing, DamagedObject, UnsupportedFormat, BucketError."""
    newest: dict[str, LogHistory] = {}
    for place in log_places(bucket):
        folder = names.log_folder(place.log, place.partition)
        if chosen and not {place.log, folder} & set(chosen):
            continue
        objects = LogObjects(bucket, place)
        manifest = objects.newest()
        if manifest is None:
            continue
        other = newest.get(folder)
        if other is None or other.manifest.created_us <= manifest.created_us:
            newest[folder] = LogHistory(objects, manifest)
    missing = [
        name
        for name in chosen
        if not any(name in (folder, one.manifest.place.log) for folder, one in newest.items())
    ]
    if missing or not newest:
        what = f"no log {missing[0]!r}" if missing else "no log"
        raise NoHistory(f"{bucket.url}: {what} found there")
    return list(newest.values())


def listed_logs(bucket: Bucket) -> list[tuple[str, int]]:
    """Name and partition of each log that has a manifest and was not forgotten, sorted. Raises BucketError."""

    def has_manifest(place: LogPlace) -> bool:
        newest = max(LogObjects(bucket, place).versions(), default=None)
        return newest is not None and not newest.is_end

    places = log_places(bucket)
    with ThreadPoolExecutor(_LISTINGS_AT_ONCE) as pool:
        there = list(pool.map(has_manifest, places))
    return sorted({(one.log, one.partition) for one, found in zip(places, there, strict=True) if found})


def identity_of(manifest: Manifest) -> LogIdentity:
    """Return the identity of a log, as its topic dictionary begins with it."""
    place = manifest.place
    return LogIdentity(place.log_id, place.log, place.partition, manifest.created_us)


def topic_dictionary(objects: LogObjects, manifest: Manifest) -> bytes:
    """Return the topic dictionary of a log, with its header page. Raises DamagedObject, BucketError."""
    return identity_of(manifest).encode() + b"".join(objects.read(one.object) for one in manifest.topics)
