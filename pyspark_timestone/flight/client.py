"""Client of the server: ends of logs, tasks by its endpoints, and the records of a task."""

import json
import time
from collections.abc import Iterator, Mapping
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
_RETRIES = 5
"""A server that is restarted is away for seconds; a ticket gives the same records afterwards."""


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
    """Return a client that has logged in, and the options of its calls. Raises ServerUnavailable."""
    scheme = "grpc" if options.authority is None else "grpc+tls"
    extra = {} if options.authority is None else {"tls_root_certs": options.authority}
    client = fl.connect(f"{scheme}://{options.address}", **extra)
    if options.user is None:
        return client, []
    try:
        return client, [client.authenticate_basic_token(options.user, options.password or "")]
    except (fl.FlightError, pa.ArrowException, OSError) as error:
        client.close()
        raise ServerUnavailable(_reason(options, error)) from None


def ends(options: FlightOptions) -> dict[str, Ends]:
    """Return start and durable end of each log. Raises ServerUnavailable, also if there is no such log."""
    client, headers = connected(options)
    try:
        with closing(client):
            flights = list(client.list_flights(options=fl.FlightCallOptions(_CALL_S, headers=headers)))
    except (fl.FlightError, pa.ArrowException, OSError) as error:
        raise ServerUnavailable(_reason(options, error)) from None
    tickets = [json.loads(one.endpoints[0].ticket.ticket) for one in flights]
    found = {one["log"]: Ends(one["from"], one["to"]) for one in tickets if not one.get("partition")}
    missing = [log for log in options.logs if log not in found]
    if missing:
        raise ServerUnavailable(
            f"invalid subscribe: no log {missing[0]!r} at {options.address} that may be read"
        )
    return {log: found[log] for log in options.logs}


def tasks(options: FlightOptions, ranges: Mapping[str, tuple[int, int]]) -> list[FlightTask]:
    """Return a task for each endpoint of the ranges [first, end) by log. Raises ServerUnavailable, DataLoss."""
    made: list[FlightTask] = []
    client, headers = connected(options)
    with closing(client):
        for log, (first, end) in ranges.items():
            if first == end:
                continue
            descriptor = fl.FlightDescriptor.for_command(options.command(log, **{"from": first, "to": end}))
            try:
                info = client.get_flight_info(descriptor, fl.FlightCallOptions(_CALL_S, headers=headers))
            except (fl.FlightError, pa.ArrowException, OSError) as error:
                raise _converted(options, error) from None
            made += [FlightTask(endpoint.ticket.ticket) for endpoint in info.endpoints]
    return made


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
                reader = client.do_get(fl.Ticket(json.dumps(asked)), fl.FlightCallOptions(headers=headers))
                for chunk in reader:
                    batch = chunk.data
                    yield batch.select(schema.names).cast(schema)
                    asked["from"] = batch.column("offset")[-1].as_py() + 1
                    failures = 0
            return
        except (fl.FlightUnavailableError, ServerUnavailable) as error:
            failures += 1
            if failures > _RETRIES:
                raise _converted(options, error) from None
            _pause(failures)
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            raise _converted(options, error) from None


def _pause(failures: int) -> None:
    time.sleep(min(0.2 * 2**failures, 5.0))


def _converted(options: FlightOptions, error: Exception) -> SparkSourceError:
    text = str(error)
    kind = DataLoss if "out of range" in text or "continue at" in text else ServerUnavailable
    return kind(_reason(options, error))


def _reason(options: FlightOptions, error: Exception) -> str:
    text = str(error).partition(". gRPC client debug context")[0]
    return f"Flight server {options.address}: {text}"
