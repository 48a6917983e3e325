"""Giving up the history of a log that was deleted in its store, so that its objects can be collected."""

from collections.abc import Iterable

from timestone.view import StoreView

from ..buckets.bucket import Bucket
from ..errors import NoHistory
from ..objects.history import LogHistory, log_places
from ..objects.manifests import LogObjects


def find_forgettable(buckets: Iterable[Bucket], log: str, store: StoreView | None = None) -> LogHistory:
    """Return the history with a log's name, its folder (`telemetry-0`), or its id. store: the one that uploads there,
    whose own logs do not count.

    Raises NoHistory when there is none, or several, or the log is one of the store; DamagedObject, UnsupportedFormat,
    BucketError."""
    own = set() if store is None else {store.log(*name).id for name in store.log_names()}
    found = [one for bucket in buckets for one in _named(bucket, log)]
    lost = [one for one in found if one.manifest.place.log_id not in own]
    if found and not lost and store is not None:
        raise NoHistory(f"{found[0].folder} is a log of {store.location}: delete it there first")
    if not lost:
        raise NoHistory(f"no log {log!r} found in the bucket")
    if len(lost) > 1:
        ids = ", ".join(f"{one.folder}: {one.manifest.place.log_id:016x}" for one in lost)
        raise NoHistory(f"{log!r} is several logs: give the id of one ({ids})")
    return lost[0]


def forget(history: LogHistory) -> None:
    """Have no reader find it any more. A collection deletes its objects after the delay. Raises BucketError."""
    history.objects.end(history.manifest)


def _named(bucket: Bucket, log: str) -> Iterable[LogHistory]:
    for place in log_places(bucket):
        objects = LogObjects(bucket, place)
        if log not in (place.log, place.prefix.split("/")[1], f"{place.log_id:016x}"):
            continue
        if (manifest := objects.newest()) is not None:
            yield LogHistory(objects, manifest)
