"""Staging and posting of records at a server, as `SpoolProducer` does in the folder of a store: tasks stage parts, the
driver posts them, and the server appends a posting once, however often it is repeated."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from pyspark_timestone.flight.client import FlightClient
from pyspark_timestone.flight.places import Places
from pyspark_timestone.flight.remote_store import RemoteStore, act
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.flight_server import FlightServer
from timestone.spool.format import Frame, Posting

_PART_BYTES = 4 << 20
"""Frames are sent when they have so many bytes, in a call of their own: no call is open while a task computes."""
_SCHEMA = pa.schema([pa.field("part", pa.binary())])


class RemotePart:
    """Frames of one log on their way to the server."""

    def __init__(self, client: FlightClient, group: str, log: LogPartition) -> None:
        self.names: list[str] = []
        """Parts that the server has, in order."""
        self._client = client
        self._descriptor = fl.FlightDescriptor.for_command(json.dumps({**_of(log), "stage": group}))
        self._waiting = bytearray()

    def add(self, frame: Frame) -> None:
        """Add a frame, and send those before it when they are many. Raises ServerUnavailable, InvalidName."""
        encoded = frame.encode()
        if len(self._waiting) + len(encoded) > _PART_BYTES:
            self.send()
        self._waiting += encoded

    def send(self) -> None:
        """Send what waits. A part whose answer was lost is sent again, and the first one is never posted."""
        if self._waiting:
            batch = pa.record_batch([pa.array([bytes(self._waiting)], pa.binary())], schema=_SCHEMA)
            self.names.append(self._client.call(lambda client, login: self._sent(client, login, batch)))
            self._waiting.clear()

    def _sent(self, client: Any, login: Any, batch: pa.RecordBatch) -> str:
        writer, answers = client.do_put(self._descriptor, _SCHEMA, login)
        writer.write_batch(batch)
        writer.done_writing()
        answer = answers.read()
        writer.close()  # raises what the call has ended with
        if answer is None:
            raise fl.FlightUnavailableError("the call ended without an answer")
        name: str = json.loads(answer.to_pybytes())["part"]
        return name


class RemoteSpool:
    """Parts and postings at one server, or at the nodes of a cluster that lead."""

    open_parts_most = 16

    def __init__(self, server: FlightServer) -> None:
        self._server = server
        self._places = Places(server) if server.nodes else None
        self._logs: set[LogPartition] = set()
        """Logs that this object has staged parts for or posted to."""
        self._done: dict[LogPartition, str] = {}
        """Producers that will not post again."""

    def record_bytes(self) -> Mapping[LogPartition, int]:
        """Return the most bytes of a record, of the logs that the user may also read."""
        with RemoteStore(self._server) as store:
            keys = [LogPartition(*key) for key in store.log_names()]
            return {key: store.log(*key).record_bytes for key in keys}

    @contextmanager
    def new_part(self, group: str, log: LogPartition) -> Iterator[RemotePart]:
        """Open a part for the block to add frames to; they are durable at the server behind the block. Raises
        ServerUnavailable, also for an unknown log."""
        with self._client(log) as client:
            part = RemotePart(client, group, log)
            yield part
            part.send()

    def post(self, posting: Posting, *, timeout_s: float, begins: bool) -> None:
        """Post, and return when the records are durable in the log. begins: the producer may be new, with any number.
        Raises ServerUnavailable."""
        log = LogPartition(posting.log, posting.partition)
        values = {**_of(log), "producer": posting.producer, "number": posting.number, "parts": posting.parts}
        values["begin"] = begins
        with self._client(log) as client:
            act(client, "post", {**values, "wait_s": int(timeout_s)}, timeout_s=timeout_s + _MARGIN_S)
        self._logs.add(log)
        if not posting.remembered:
            self._done[log] = posting.producer

    def discard(self, parts: Iterable[tuple[LogPartition, str]]) -> None:
        """Remove parts that will not be posted."""
        by_log: dict[LogPartition, list[str]] = {}
        for log, name in parts:
            by_log.setdefault(log, []).append(name)
        for log, names in by_log.items():
            with self._client(log) as client:
                act(client, "discard", {**_of(log), "parts": names})
            self._logs.add(log)

    def discard_group(self, group: str) -> None:
        """Remove a group, and what the server keeps about producers that will not post again: until then a posting
        whose answer was lost could be repeated."""
        for log in self._logs:
            done = {"producer": self._done[log]} if log in self._done else {}
            with self._client(log) as client:
                act(client, "discard", {**_of(log), "group": group, **done})

    def _client(self, log: LogPartition) -> FlightClient:
        """Return a client of the server, or of the node that leads a partition."""
        places = self._places
        return FlightClient(self._server, None if places is None else lambda: places.leader(log.partition))


_MARGIN_S = 10.0
"""How much longer than the server the client waits for the answer about a posting."""


def _of(log: LogPartition) -> dict[str, Any]:
    return {"log": log.log, "partition": log.partition}
