"""What a bucket has of each log, who uploads to it, and what a local store still has to upload."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from timestone.view import StoreView

from ..buckets.bucket import Bucket
from ..errors import NoHistory
from ..objects.history import LogHistory, log_histories
from ..reading.local_view import noted_source
from ..uploading.ownership import SPACE, ClaimFacts, newest_claim, read_claim_facts


class Waiting(NamedTuple):
    """What a local log has and its history in the bucket does not: sealed segments, and the records behind them, which
    are uploaded once their segment has ended."""

    segment_count: int
    bytes: int
    growing_records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStored:
    """One log in a bucket."""

    log: str
    partition: int
    id: str
    start_offset: int
    end_offset: int
    segment_count: int
    records: int
    stored_bytes: int
    """What segments and indexes take in the bucket."""
    first_timestamp_us: int | None
    last_timestamp_us: int | None
    written_us: int
    """When the newest manifest was written, by the clock of its writer."""
    missing: tuple[tuple[int, int], ...]
    """Offsets [first, end) that were lost to damage before they were uploaded."""
    waiting: Waiting | None = None
    """None when there is no local store to compare with."""


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """Contents of a bucket below its prefix."""

    url: str
    claim: ClaimFacts | None
    """Who claimed the prefix last; None for no store."""
    is_own_claim: bool | None
    """Is it the claim of the local store? None without one."""
    logs: tuple[LogStored, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the same as one object for `--json`."""
        return {
            "url": self.url,
            "claim": None if self.claim is None else asdict(self.claim),
            "is_own_claim": self.is_own_claim,
            "logs": [
                {**asdict(one), "waiting": None if one.waiting is None else one.waiting._asdict()}
                for one in self.logs
            ],
        }


def bucket_status(bucket: Bucket, store: StoreView | None = None) -> BucketStatus:
    """Look at the newest manifest of each log. store: the local one to compare with.

    Raises NoHistory when the bucket has nothing and there is no store to compare with, DamagedObject,
    UnsupportedFormat, BucketError; what `StoreView.log` raises."""
    claim = newest_claim(bucket)
    noted = None if store is None else store.documents(SPACE).get(bucket.url)
    """Claims of the store; a node of a cluster makes none, and does not upload all of its logs."""
    own = None if store is None else claim is not None and claim.token in (noted or b"").decode()
    try:
        histories = log_histories(bucket)
    except NoHistory:
        if claim is None and store is None:
            raise
        histories = []
    waiting = {} if store is None else dict(_all_waiting(store, histories))
    logs = [_stored(one, waiting.pop(one.folder, None)) for one in histories]
    if store is not None and noted is not None:
        logs += [_not_stored(store, folder, found) for folder, found in waiting.items()]
    facts = None if claim is None else read_claim_facts(bucket, claim.generation)
    return BucketStatus(bucket.url, facts, own, tuple(logs))


def urls_of_store(store: StoreView) -> list[str]:
    """Return the buckets that a store has uploaded to; of the store of a node of a cluster, the one that it reads."""
    source = noted_source(store.path)
    noted = [] if source is None or source.url is None else [source.url]
    return sorted(store.documents(SPACE)) or noted


def _stored(history: LogHistory, waiting: Waiting | None) -> LogStored:
    manifest = history.manifest
    segments = history.objects.segments(manifest)
    times = [time for one in segments for time in _times(one.trailer.first_timestamp_us)]
    last = [time for one in segments for time in _times(one.trailer.last_timestamp_us)]
    return LogStored(
        log=manifest.place.log,
        partition=manifest.place.partition,
        id=f"{manifest.place.log_id:016x}",
        start_offset=manifest.start,
        end_offset=manifest.end,
        segment_count=len(segments),
        records=sum(one.end - max(one.base, manifest.start) for one in segments),
        stored_bytes=sum(one.size_bytes for one in segments),
        first_timestamp_us=min(times, default=None),
        last_timestamp_us=max(last, default=None),
        written_us=manifest.written_us,
        missing=manifest.missing,
        waiting=waiting,
    )


def _times(timestamp_us: int) -> Iterable[int]:
    """Return a time of a trailer, which has 0 for a segment without a valid one."""
    return (timestamp_us,) if timestamp_us else ()


def _not_stored(store: StoreView, folder: str, waiting: Waiting) -> LogStored:
    name, _, partition = folder.rpartition("-")
    log = store.log(name, int(partition))
    return LogStored(
        log=name,
        partition=int(partition),
        id=f"{log.id:016x}",
        start_offset=0,
        end_offset=0,
        segment_count=0,
        records=0,
        stored_bytes=0,
        first_timestamp_us=None,
        last_timestamp_us=None,
        written_us=0,
        missing=(),
        waiting=waiting,
    )


def _all_waiting(store: StoreView, histories: Iterable[LogHistory]) -> Iterable[tuple[str, Waiting]]:
    ends: Mapping[tuple[str, int], int] = {
        (one.folder, one.manifest.place.log_id): one.manifest.end for one in histories
    }
    for name, partition in store.log_names():
        row = store.row(name, partition)
        if row is not None and row.config.compact:
            continue  # compacted logs are not uploaded
        log = store.log(name, partition)
        folder = Path(log.folder).name
        end = ends.get((folder, log.id), 0)
        sealed = log.segment_list.sealed()
        lacking = [one for one in sealed if one.count and one.end_offset > end]
        trailers = [one.trailer for one in lacking if one.trailer is not None]
        size = sum(one.stored_bytes + one.file_bytes for one in trailers)
        behind = max(end, log.start_offset, *(one.end_offset for one in sealed))
        yield folder, Waiting(len(trailers), size, max(log.end_offset - behind, 0))
