"""Reading: ranges of offsets as endpoints, and records as messages of a stream. Nothing here waits for new records."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pyarrow.flight as fl

from flight_front.errors import CallRefused, Code, InvalidRequest
from flight_front.records.columns import arrow_batch
from flight_front.records.flight_data import encoded_batch
from flight_front.records.queries import Query
from timestone.errors import OffsetOutOfRange, UnknownLog
from timestone.format.names import log_folder
from timestone.fronts import ClusterNode
from timestone.log import Log
from timestone.readable import ReadableLog
from timestone.store import Store

if TYPE_CHECKING:
    from timestone.replication.replicated_log import ReplicatedLog

_ENDPOINTS_MAX = 1000
_SCAN_RECORDS = 1 << 20
"""Records of other topics that one step passes: a rare topic does not keep a thread."""


def durable_offset(log: Log) -> int:
    """Return the offset below which records stay: on a node of a cluster they are committed, on all replicas that have
    to have them."""
    return log.end_offset if log.is_replicated else log.synced_offset


def offsets_of(log: Log, query: Query) -> tuple[int, int]:
    """Return the fixed range [first, end) that a query asks for, below the durable offset. Raises OffsetOutOfRange;
    CallRefused by a replica that is behind."""
    if log.is_replicated and not cast("ReplicatedLog", log).leads:
        most = max((one for one in (query.start, query.end) if isinstance(one, int)), default=0)
        if most > log.end_offset:
            raise CallRefused(
                Code.UNAVAILABLE,
                f"log {query.name}: this replica has what is below offset {log.end_offset} so far; ask another one",
            )
    synced, start = durable_offset(log), log.start_offset
    end = synced if query.end is None else _offset(log, query.end)
    if query.start == "earliest":
        first = start
    elif query.start == "latest":
        first = synced
    else:
        assert not isinstance(query.start, str)
        first = _offset(log, query.start)
    if isinstance(query.end, int) and query.end > log.end_offset:
        raise OffsetOutOfRange(query.end, start, log.end_offset)
    if isinstance(query.start, int) and not start <= first <= log.end_offset:
        raise OffsetOutOfRange(first, start, log.end_offset)
    if isinstance(query.start, int) and isinstance(query.end, int) and query.end < query.start:
        raise InvalidRequest(f"invalid range: expected `from` below `to`, got {query.start} and {query.end}")
    return first, max(first, end)


def _offset(log: Log, place: int | datetime) -> int:
    return place if isinstance(place, int) else min(log.offset_at(place), durable_offset(log))


def flight_info(log: Log, query: Query, descriptor: bytes) -> bytes:
    """Return a FlightInfo with an endpoint for each segment, so that readers work in parallel. Every ticket is a range
    of offsets below the durable one: reading it again gives the same records. Touches the disk."""
    first, end = offsets_of(log, query)
    sizes = [(max(base, first), min(stop, end), size) for base, stop, size in log.segment_sizes(first, end)]
    if query.topics is not None:
        having = set(log.segments_with(query.topics, first, end))
        bounds = log.segment_bounds(first, end)
        sizes = [size for size, bound in zip(sizes, bounds, strict=False) if bound in having]
    step = -(-len(sizes) // _ENDPOINTS_MAX) or 1
    groups = [sizes[at : at + step] for at in range(0, len(sizes), step)]
    endpoints = [
        fl.FlightEndpoint(
            query.between(group[0][0], group[-1][1]).ticket(),
            [],
            app_metadata=json.dumps({"size_bytes": sum(size for *_, size in group)}),
        )
        for group in groups
    ]
    lost = log.lost_offsets(first, end)
    known = query.topics is None and not log.config.compact and not lost
    info = fl.FlightInfo(
        query.schema,
        fl.FlightDescriptor.deserialize(descriptor),
        endpoints,
        sum(stop - base for base, stop, _ in sizes) if known else -1,
        sum(size for *_, size in sizes),
        app_metadata=json.dumps({**_facts(log), "lost": lost}),
    )
    serialized: bytes = info.serialize()
    return serialized


def existing_log(store: Store, node: ClusterNode | None, name: str, partition: int) -> Log:
    """Return a log for clients. Raises UnknownLog."""
    if node is not None and name in node.own_logs:
        raise UnknownLog(log_folder(name, partition))
    return store.log(name, partition, create=False)


def existing_logs(store: Store, node: ClusterNode | None) -> Iterator[Log]:
    """Yield the logs for clients, without those that are deleted while they are listed."""
    for name, partition in store.log_names():
        with suppress(UnknownLog):
            yield existing_log(store, node, name, partition)


def listed_flight(log: Log) -> bytes:
    """Return the FlightInfo of a log in a list: all of it as one endpoint."""
    query, first, end = Query(log.name, log.partition), log.start_offset, durable_offset(log)
    info = fl.FlightInfo(
        query.schema,
        fl.FlightDescriptor.for_path(log.name, str(log.partition)),
        [fl.FlightEndpoint(query.between(first, end).ticket(), [])],
        end - first,
        -1,
        app_metadata=json.dumps(_facts(log)),
    )
    serialized: bytes = info.serialize()
    return serialized


def _facts(log: Log) -> dict[str, Any]:
    """Return what a client needs to plan reads and to notice another log under a known name. gaps: offsets that a power
    loss skipped."""
    bounds = log.segment_bounds()
    holes = [(end, base) for (_, end), (base, _) in pairwise(bounds) if base > end + 1]
    return {
        "log": log.name,
        "partition": log.partition,
        "id": f"{log.id:016x}",
        "epoch": log.epoch,
        "start": log.start_offset,
        "local_start": log.local_start_offset,
        "synced": durable_offset(log),
        "end": log.end_offset,
        "gaps": [hole for hole in holes if log.gap_at(hole[0] + 1) is not None],
        "record_bytes": log.config.record_bytes,
        **({"leads": cast("ReplicatedLog", log).leads} if log.is_replicated else {}),
    }


class RecordStream:
    """Records of a query from an offset on, as messages. Used by one thread at a time."""

    def __init__(self, log: ReadableLog, query: Query, first: int, batch_bytes: int) -> None:
        self.log = log
        self.query = query
        self.reader = log.reader(first, topics=query.topics)
        self._batch_bytes = batch_bytes
        self.record_count = 0

    @property
    def at_hand(self) -> bool:
        """Return whether the next read touches no file."""
        return self.log.in_memory(self.reader.offset)

    def read(self, end: int, *, noted: bool = False) -> bytes | None:
        """Return the next batch as a message, empty if none of those examined matched, and None at `end`. noted: with
        the next offset as metadata. Raises what `Reader.read` does."""
        reader = self.reader
        if reader.offset >= end:
            return None
        left = end - reader.offset
        batch = reader.read(
            max_records=min(left, 65_536), max_bytes=self._batch_bytes, max_scan=min(left, _SCAN_RECORDS)
        )
        if reader.offset > end:  # offsets were skipped, or other topics lay in between
            batch = batch[: int(batch.offsets.searchsorted(end))]
            reader.offset = end
        if not batch:
            return b""
        self.record_count += len(batch)
        metadata = b'{"next": %d}' % reader.offset if noted else b""
        return encoded_batch(arrow_batch(batch, self.query), metadata)

    def close(self) -> None:
        """End the reader."""
        self.reader.close()
