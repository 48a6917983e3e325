"""Deleting what nothing in a bucket needs any more; see `objects.collector` for what that is."""

import secrets
from collections.abc import Callable
from typing import NamedTuple

from timestone.disk.clock import Clock
from timestone.format import names

from ..buckets.bucket import Bucket, ObjectFacts
from ..errors import DamagedObject, NoHistory
from ..objects.collector import PROBES, delete_objects, unused_objects, unused_probes
from ..objects.history import log_places
from ..objects.manifests import LogObjects


class Collected(NamedTuple):
    """Findings in one log."""

    log: str
    partition: int
    id: str
    unused: tuple[ObjectFacts, ...]
    error: str | None
    """Why nothing of the log was looked at: a manifest that cannot be read."""

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.unused)


def collect_unused(
    bucket: Bucket,
    *,
    older_than_us: int,
    delete: bool,
    progress: Callable[[str], None] = lambda log: None,
) -> list[Collected]:
    """Find the objects that nothing needs and that are older than a delay, and delete them if asked to.

    The age is by the clock of the object store when something is deleted, which needs an object to be made there; else
    by the clock of this machine. Raises NoHistory when there is no log, BucketError, OSError."""
    before_us = (_bucket_now_us(bucket) if delete else Clock().now_us()) - older_than_us
    places = log_places(bucket)
    if not places:
        raise NoHistory(f"{bucket.url}: no log found there")
    found = []
    for place in places:
        progress(names.log_folder(place.log, place.partition))
        unused: list[ObjectFacts] = []
        error = None
        try:
            unused = unused_objects(LogObjects(bucket, place), before_us=before_us)
        except DamagedObject as damage:
            error = str(damage)
        if delete:
            delete_objects(bucket, unused)
        found.append(Collected(place.log, place.partition, f"{place.log_id:016x}", tuple(unused), error))
    if delete:
        delete_objects(bucket, unused_probes(bucket, before_us=before_us))
    return found


def _bucket_now_us(bucket: Bucket) -> int:
    name = f"{PROBES}{secrets.token_hex(16)}"
    bucket.create(name, b"")
    try:
        return bucket.head(name).modified_us
    finally:
        bucket.delete([name])
