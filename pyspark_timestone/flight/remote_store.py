"""Logs of a server or of a cluster, as a view of a store shows those of a folder: extents, segments by the endpoints of
the server, and the records of a range of offsets."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as fl

from pyspark_timestone.errors import DataLoss
from pyspark_timestone.flight.client import FlightClient
from pyspark_timestone.flight.connection import connection
from pyspark_timestone.flight.places import Places
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.flight_server import FlightServer
from timestone import Pin, ReaderId
from timestone.errors import UnknownLog
from timestone.format.names import log_folder

_CONTINUE = re.compile(r"continue at ([0-9]+)")
"""Where the server says to read on behind damaged records."""
_LIST_S = 20.0


class RemoteStore:
    """Store of a server, as of the first call."""

    def __init__(self, server: FlightServer) -> None:
        self._server = server
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
            act(self._client, "commit", values)

    def _known(self) -> Mapping[LogPartition, "RemoteLog"]:
        if self._logs is None:
            if self._places is None:
                listed = self._client.call(lambda client, login: _listed(client, login))
                found = [RemoteLog(self._client, self._client, facts) for facts in listed]
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
        return RemoteLog(planning, self._made_client(lambda: places.replica(partition)), facts)

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

    def __init__(self, client: FlightClient, reading: FlightClient, facts: Mapping[str, Any]) -> None:
        """reading: for its records. facts: what the server lists about it."""
        self._client, self._reading = client, reading
        self.key = LogPartition(facts["log"], facts["partition"])
        self.id, self.epoch = int(facts["id"], 16), int(facts["epoch"])
        self.start_offset: int = facts["start"]
        self.synced_offset: int = facts["synced"]
        self.end_offset: int = facts["end"]
        self.record_bytes: int = facts["record_bytes"]
        self._gaps: Sequence[tuple[int, int]] = facts["gaps"]
        self._infos: dict[tuple[Any, ...], Any] = {}

    def offset_at(self, timestamp_us: int) -> int:
        """Return the first offset at or after a time."""
        values = {"log": self.key.log, "partition": self.key.partition, "time_us": timestamp_us}
        found: int = act(self._client, "offset-at", values)["offset"]
        return found

    def gap_at(self, offset: int) -> tuple[int, int] | None:
        """Return the offsets [end, base) that were skipped after a power loss, if `offset` lies in them and is not
        their first; else None."""
        return next(((end, base) for end, base in self._gaps if end < offset < base), None)

    def lost_offsets(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the runs [start, end) of the offsets [first, last) that no segment holds any more."""
        info = self._info(first, last)
        return [] if info is None else [(start, end) for start, end in json.loads(info.app_metadata)["lost"]]

    def segment_bounds(self, first: int = 0, last: int | None = None) -> list[tuple[int, int]]:
        """Return the part in [first, last) of each segment: the endpoints of the server."""
        return [(base, end) for base, end, _ in self._endpoints(first, last)]

    def segments_with(self, topics: Sequence[str], first: int, last: int) -> list[tuple[int, int]]:
        """Return the same of those segments that may hold records of `topics`, MQTT topic filters."""
        return [(base, end) for base, end, _ in self._endpoints(first, last, topics)]

    def segment_sizes(self) -> list[tuple[int, int, int]]:
        """Return offsets [base, end) and bytes of each segment."""
        return self._endpoints(0, None)

    def record_batches(
        self,
        part: OffsetRange,
        topics: Sequence[str],
        schema: pa.Schema,
        damaged: Callable[[str], None] | None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range in the columns of `schema`; continue behind the last batch when the server was
        restarted. damaged: called with the reason for damaged records, which are then skipped; None: DataLoss."""
        at = part.start

        def ticket() -> bytes | None:
            # The offset says where to continue, also where the query leaves it out.
            columns = sorted({*schema.names, "offset"})
            return _command(part.log, at, part.end, topics, columns) if at < part.end else None

        while at < part.end:
            try:
                for batch in self._reading.stream(ticket):
                    at = batch.column("offset")[-1].as_py() + 1
                    yield batch.select(schema.names).cast(schema)
                return
            except DataLoss as error:
                following = _CONTINUE.search(str(error))
                if damaged is None or following is None:
                    raise
                damaged(str(error))
                at = int(following[1])

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
        first, last = max(first, self.start_offset), min(last, self.end_offset)
        key = (first, last, *topics)
        if first < last and key not in self._infos:
            asked = fl.FlightDescriptor.for_command(_command(self.key, first, last, topics, None))
            self._infos[key] = self._client.call(lambda client, login: client.get_flight_info(asked, login))
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
