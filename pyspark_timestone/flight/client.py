"""Client of the server: ends of logs, tasks by its endpoints, and the records of a task."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
from pyspark.sql.datasource import InputPartition

from pyspark_timestone.errors import DataLoss, SparkSourceError
from pyspark_timestone.flight.options import FlightOptions

_CALL_S = 60.0
"""Timeout of a call that plans. One that reads has none: gRPC notices a connection that is gone."""
_RETRIES = 8
"""Tries of a server that is away, in about 30 s: a restart takes seconds, and a range gives the same records."""
_CUT_LOGIN = "Could not finish writing before closing"
"""What pyarrow says when the server goes away during a login; of a type of its own, which says nothing."""
_AWAY = (fl.FlightUnavailableError, fl.FlightCancelledError)
"""What a server that is stopped ends calls with: CANCELLED those that it had not begun."""
_FAILED = (fl.FlightError, pa.ArrowException, OSError)


class ServerUnavailable(SparkSourceError):
    """The server cannot be asked, or refuses."""


@dataclass(frozen=True)
class Ends:
    """First and next offset of a log."""

    start: int
    end: int


@dataclass
class FlightTask(InputPartition):
    """Fixed range of offsets of one log: read again, it gives the same rows."""

    ticket: bytes


def connected(options: FlightOptions) -> tuple[Any, Any]:
    """Return a client that has logged in, and the headers of its calls."""
    scheme = "grpc" if options.authority is None else "grpc+tls"
    extra = {} if options.authority is None else {"tls_root_certs": options.authority}
    client = fl.connect(f"{scheme}://{options.address}", **extra)
    if options.user is None:
        return client, []
    try:
        name, token = client.authenticate_basic_token(options.user, options.password or "")
        if not name:  # the server went away after it had taken the login
            raise fl.FlightUnavailableError("the server ended during the login")
        return client, [(name, token)]
    except BaseException as error:
        client.close()
        if _CUT_LOGIN in str(error):
            raise fl.FlightUnavailableError(str(error)) from None
        raise


def ends(options: FlightOptions) -> dict[str, Ends]:
    """Return start and durable end of each log. Raises ServerUnavailable, also if there is no such log."""

    def ask(client: Any, headers: Any) -> list[Any]:
        return list(client.list_flights(options=fl.FlightCallOptions(_CALL_S, headers=headers)))

    tickets = [json.loads(one.endpoints[0].ticket.ticket) for one in _asked(options, ask)]
    found = {one["log"]: Ends(one["from"], one["to"]) for one in tickets if not one.get("partition")}
    missing = [log for log in options.logs if log not in found]
    if missing:
        raise ServerUnavailable(
            f"invalid subscribe: no log {missing[0]!r} at {options.address} that may be read"
        )
    return {log: found[log] for log in options.logs}


def tasks(options: FlightOptions, ranges: Mapping[str, tuple[int, int]]) -> list[FlightTask]:
    """Return a task for each endpoint of the ranges [first, end) by log. Raises ServerUnavailable, DataLoss."""
    descriptors = [
        fl.FlightDescriptor.for_command(options.command(log, **{"from": first, "to": end}))
        for log, (first, end) in ranges.items()
        if first < end
    ]

    def ask(client: Any, headers: Any) -> list[Any]:
        login = fl.FlightCallOptions(_CALL_S, headers=headers)
        return [client.get_flight_info(descriptor, login) for descriptor in descriptors]

    infos = _asked(options, ask) if descriptors else []
    return [FlightTask(endpoint.ticket.ticket) for info in infos for endpoint in info.endpoints]


def records(task: FlightTask, options: FlightOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task in the columns of `schema`; continue behind the last batch when the server was
    restarted. Raises ServerUnavailable, DataLoss."""
    asked = json.loads(task.ticket)
    # The offset says where to continue, also where the query leaves it out.
    asked["columns"] = sorted({*schema.names, "offset"})
    failures = 0
    while asked["from"] < asked["to"]:
        try:
            client, headers = connected(options)
            with closing(client):
                for chunk in client.do_get(
                    fl.Ticket(json.dumps(asked)), fl.FlightCallOptions(headers=headers)
                ):
                    batch = chunk.data
                    yield batch.select(schema.names).cast(schema)
                    asked["from"] = batch.column("offset")[-1].as_py() + 1
                    failures = 0
            return
        except _FAILED as error:
            failures += 1
            _pause(options, error, failures)


def _asked(options: FlightOptions, ask: Callable[[Any, Any], list[Any]]) -> list[Any]:
    """Return the answer of a server, also of one that is being restarted."""
    for failures in itertools.count(1):
        try:
            client, headers = connected(options)
            with closing(client):
                return ask(client, headers)
        except _FAILED as error:
            _pause(options, error, failures)
    raise AssertionError("the last try raises")


def _pause(options: FlightOptions, error: Exception, failures: int) -> None:
    """Wait before the next try. Raises ServerUnavailable or DataLoss when another one is of no use."""
    if not isinstance(error, _AWAY) or failures > _RETRIES:
        text = str(error).partition(". gRPC client debug context")[0]
        kind = DataLoss if "out of range" in text or "continue at" in text else ServerUnavailable
        raise kind(f"Flight server {options.address}: {text}") from None
    time.sleep(min(0.2 * 2**failures, 5.0))
