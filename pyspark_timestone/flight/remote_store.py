"""Logs of a server or of a cluster, as a view of a store shows those of a folder: extents, segments by the endpoints of
the server, and the records of a range of offsets. What is on no disk of it any more comes from its bucket, if that is
given: each offset from one of both."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as fl

from pyspark_timestone.errors import DataLoss
from pyspark_timestone.flight.client import FlightClient
from pyspark_timestone.flight.connection import connection
from pyspark_timestone.flight.places import Places
from pyspark_timestone.flight.uploaded_log import OpenedBucket, UploadedLog
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.flight_server import FlightServer
from timestone import LogView, Pin, ReaderId
from timestone.errors import UnknownLog
from timestone.format.names import log_folder
from timestone_tiering import BucketView
from timestone_tiering.objects.layout import LogPlace

Bounds = list[tuple[int, int]]

_CONTINUE = re.compile(r"continue at ([0-9]+)")
"""Where the server says to read on behind damaged records."""
_LIST_S = 20.0


class RemoteStore:
    """Store of a server, as of the first call."""

    def __init__(self, server: FlightServer, bucket: Callable[[], BucketView] | None = None) -> None:
        """bucket: opens a view of where the server uploads to, for what its disks have no more. Without it the server
        fetches that itself."""
        self._server = server
        self._bucket = None if bucket is None else OpenedBucket(bucket)
        self._places = Places(server) if server.nodes else None
        self._clients: list[FlightClient] = []
        self._client = self._made_client()
        self._logs: Mapping[LogPartition, RemoteLog] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for client in self._clients:
            client.close()
        if self._places is not None:
            self._places.close()
        if self._bucket is not None:
            self._bucket.close()

    def log_names(self, *, server: bool = False) -> list[tuple[str, int]]:
        """Return the logs that the user may read, sorted. The server does not list those about itself."""
        return sorted(self._known())

    def log(self, name: str, partition: int = 0) -> "RemoteLog":
        """Return a log. Raises UnknownLog."""
        known = self._known()
        if LogPartition(name, partition) not in known:
            raise UnknownLog(log_folder(name, partition), tuple(log_folder(*key) for key in sorted(known)))
        return known[LogPartition(name, partition)]

    def log_as_of(self, name: str, partition: int, state: str | None) -> "RemoteLog":
        """Return a log; the server keeps no states."""
        return self.log(name, partition)

    def commit_readers(self, offsets: Mapping[ReaderId, int], *, pin: Pin | None = None) -> None:
        """Store where named readers continue. pin: none; retention is set at the server."""
        for reader, offset in offsets.items():
            values = {
                "log": reader.log,
                "partition": reader.partition,
                "reader": reader.name,
                "offset": offset,
            }
            act(self.log(reader.log, reader.partition).planning, "commit", values)

    def _known(self) -> Mapping[LogPartition, "RemoteLog"]:
        if self._logs is None:
            if self._places is None:
                listed = self._client.call(lambda client, login: _listed(client, login))
                found = [self._made_log(self._client, self._client, facts) for facts in listed]
            else:
                found = [self._replicated(self._places, facts) for facts in self._client.call(self._led)]
            self._logs = {log.key: log for log in found}
        return self._logs

    def _led(self, _client: Any, _login: Any) -> list[Mapping[str, Any]]:
        """Return what the leaders list about their partitions: they alone know of all that was ever shown."""
        assert self._places is not None
        leaders = self._places.leaders()
        found = []
        for address in sorted(set(leaders.values())):
            there, headers = connection(self._server, address)
            try:
                listed = _listed(there, fl.FlightCallOptions(_LIST_S, headers=headers))
            finally:
                there.close()
            own = [facts for facts in listed if leaders.get(facts["partition"]) == address]
            if not all(facts["leads"] for facts in own):
                raise fl.FlightUnavailableError(f"{address} does not lead yet, or no more")
            found += own
        return found

    def _replicated(self, places: Places, facts: Mapping[str, Any]) -> "RemoteLog":
        partition = facts["partition"]
        planning = self._made_client(lambda: places.leader(partition))
        return self._made_log(planning, self._made_client(lambda: places.replica(partition)), facts)

    def _made_log(
        self, planning: FlightClient, reading: FlightClient, facts: Mapping[str, Any]
    ) -> "RemoteLog":
        place = LogPlace(int(facts["id"], 16), facts["log"], facts["partition"])
        uploaded = None if self._bucket is None else UploadedLog(self._bucket, place)
        return RemoteLog(planning, reading, facts, uploaded)

    def _made_client(self, where: Callable[[], str] | None = None) -> FlightClient:
        if where is None and self._places is not None:
            where = self._places.any_node
        client = FlightClient(self._server, where)
        self._clients.append(client)
        return client


def _listed(client: Any, login: Any) -> list[Mapping[str, Any]]:
    return [json.loads(info.app_metadata) for info in client.list_flights(options=login)]


class RemoteLog:
    """Log of a server, as of the time when it was listed."""

    state = None

    def __init__(
        self,
        client: FlightClient,
        reading: FlightClient,
        facts: Mapping[str, Any],
        uploaded: UploadedLog | None = None,
    ) -> None:
        """client: of the server, or of the leader. reading: for its records. facts: what the server
        lists about it. uploaded: what its bucket has of it, in the
        place of what is on its disks no more."""
        self.planning, self._reading = client, reading
        self._uploaded = uploaded
        self.key = LogPartition(facts["log"], facts["partition"])
        self.id, self.epoch = int(facts["id"], 16), int(facts["epoch"])
        self._start: int = facts["start"]
        self._first = self._start if uploaded is None else facts.get("local_start", self._start)
        """Where the offsets begin that the server is asked for."""
        self.synced_offset: int = facts["synced"]
        self.end_offset: int = facts["end"]
        self.record_bytes: int = facts["record_bytes"]
        self._gaps: Sequence[tuple[int, int]] = facts["gaps"]
        self._infos: dict[tuple[Any, ...], Any] = {}

    @property
    def start_offset(self) -> int:
        """Return the offset of the first record that retention has left."""
        return min(self._start, self._first if (older := self._unlisted()) is None else older.start_offset)

    def offset_at(self, timestamp_us: int) -> int:
        """Return the first offset at or after a time."""
        values = {"log": self.key.log, "partition": self.key.partition, "time_us": timestamp_us}
        found: int = act(self.planning, "offset-at", values)["offset"]
        if found <= self._first and (older := self._unlisted()) is not None:
            return min(found, older.offset_at(timestamp_us))
        return found

    def _unlisted(self) -> LogView | None:
        """Return the log in the bucket, if the server may not know of it yet: it has just started or begun to lead."""
        if self._uploaded is None or not 0 < self._first <= self._start:
            return None
        start, end = self._uploaded.range
        return self._uploaded.log if start < self._first <= end else None

    def _older(self, first: int, last: int) -> LogView | None:
        """Return the log in the bucket for the offsets [first, last) that are on no disk of the server; None for none.
        Raises DataLoss where the bucket does not have what retention has left."""
        if self._uploaded is None or not max(first, self.start_offset) < min(last, self._first):
            return None
        # The server was asked before: what it has deleted by then is in the bucket.
        if self._uploaded.range[1] < self._first:
            raise DataLoss(
                f"{self.key}: the disks begin at offset {self._first}, and {self._uploaded.location} has what is below"
                f" {self._uploaded.range[1]}: it is not the bucket that the nodes upload to"
            )
        return self._uploaded.log

    def gap_at(self, offset: int) -> tuple[int, int] | None:
        """Return the offsets [end, base) that were skipped after a power loss, if `offset` lies in them and is not
        their first; else None."""
        return next(((end, base) for end, base in self._gaps if end < offset < base), None)

    def lost_offsets(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the runs [start, end) of the offsets [first, last) that no segment holds any more."""
        older, info = self._older(first, last), self._info(first, last)
        lost = (
            [] if older is None else older.lost_offsets(max(first, self.start_offset), min(last, self._first))
        )
        if info is not None:
            lost += [(start, end) for start, end in json.loads(info.app_metadata)["lost"]]
        return lost

    def segment_bounds(self, first: int = 0, last: int | None = None) -> list[tuple[int, int]]:
        """Return the part in [first, last) of each segment: the endpoints of the server."""
        older = self._older(first, sys.maxsize if last is None else last)
        bounds = [] if older is None else self._cut(older.segment_bounds(first, last), first, last)
        return bounds + [(base, end) for base, end, _ in self._endpoints(first, last)]

    def segments_with(self, topics: Sequence[str], first: int, last: int) -> list[tuple[int, int]]:
        """Return the same of those segments that may hold records of `topics`, MQTT topic filters."""
        older = self._older(first, last)
        bounds = [] if older is None else self._cut(older.segments_with(topics, first, last), first, last)
        return bounds + [(base, end) for base, end, _ in self._endpoints(first, last, topics)]

    def segment_sizes(self) -> list[tuple[int, int, int]]:
        """Return offsets [base, end) and bytes of each segment."""
        older = self._older(0, sys.maxsize)
        sizes = [] if older is None else older.segment_sizes(0, self._first)
        return [(base, min(end, self._first), size) for base, end, size in sizes] + self._endpoints(0, None)

    def record_batches(
        self,
        part: OffsetRange,
        topics: Sequence[str],
        schema: pa.Schema,
        damaged: Callable[[str], None] | None,
        read_older: Callable[[LogView, OffsetRange], Iterator[pa.RecordBatch]] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range in the columns of `schema`; continue behind the last batch when the server was
        restarted. damaged: called with the reason for damaged records, which are then skipped; None: DataLoss.
        read_older: yields those of a range that the bucket has."""
        at = part.start

        def ticket() -> bytes | None:
            # The offset says where to continue, also where the query leaves it out.
            columns = sorted({*schema.names, "offset"})
            return _command(part.log, at, part.end, topics, columns) if at < part.end else None

        while at < part.end:
            older = self._older(at, part.end)
            if older is not None:
                assert read_older is not None
                end = min(part.end, self._first)
                yield from read_older(older, part._replace(start=at, end=end))
                at = end
                continue
            try:
                for batch in self._reading.stream(ticket):
                    at = batch.column("offset")[-1].as_py() + 1
                    yield batch.select(schema.names).cast(schema)
                return
            except DataLoss as error:
                if self._has_moved(at):
                    continue
                following = _CONTINUE.search(str(error))
                if damaged is None or following is None:
                    raise
                damaged(str(error))
                at = int(following[1])

    def _has_moved(self, offset: int) -> bool:
        """Return whether the bucket has an offset by now that a replica has no more."""
        if self._uploaded is None:
            return False
        self._uploaded.look_again()
        start, end = self._uploaded.range
        if not max(start, self._first) <= offset < end:
            return False
        self._first = end
        return True

    def _cut(self, bounds: Bounds, first: int, last: int | None) -> Bounds:
        """Return the parts of segments in the bucket that are on no disk."""
        end = self._first if last is None else min(self._first, last)
        return [(max(base, first), min(stop, end)) for base, stop in bounds if base < end]

    def _endpoints(
        self, first: int, last: int | None, topics: Sequence[str] = ()
    ) -> list[tuple[int, int, int]]:
        info = self._info(first, self.synced_offset if last is None else last, topics)
        if info is None:
            return []
        tickets = [(json.loads(one.ticket.ticket), json.loads(one.app_metadata)) for one in info.endpoints]
        return [(asked["from"], asked["to"], facts["size_bytes"]) for asked, facts in tickets]

    def _info(self, first: int, last: int, topics: Sequence[str] = ()) -> Any:
        """Return the FlightInfo of the offsets [first, last) that are there; None if none are."""
        first, last = max(first, self._first), min(last, self.end_offset)
        key = (first, last, *topics)
        if first < last and key not in self._infos:
            asked = fl.FlightDescriptor.for_command(_command(self.key, first, last, topics, None))
            self._infos[key] = self.planning.call(lambda client, login: client.get_flight_info(asked, login))
        return self._infos.get(key)


def act(client: FlightClient, kind: str, values: Mapping[str, Any], **options: float) -> Any:
    """Run an action of the server and return its answer. Raises ServerUnavailable."""
    action = fl.Action(kind, json.dumps(values).encode())
    [answer] = client.call(lambda connected, login: list(connected.do_action(action, login)), **options)
    return json.loads(answer.body.to_pybytes())


def _command(
    log: LogPartition, first: int, end: int, topics: Sequence[str], columns: Sequence[str] | None
) -> bytes:
    values: dict[str, Any] = {"log": log.log, "partition": log.partition, "from": first, "to": end}
    if topics:
        values["topics"] = list(topics)
    if columns is not None:
        values["columns"] = columns
    return json.dumps(values).encode()
