"""Client of the server: calls that are tried again while the server is being restarted."""

from collections.abc import Callable, Iterator
from time import sleep
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from pyspark_timestone.errors import DataLoss, SparkSourceError
from pyspark_timestone.flight.connection import FAILED, Headers, connection
from pyspark_timestone.options.flight_server import FlightServer

_CALL_S = 60.0
"""Timeout of a call. One that reads records has none: gRPC notices a connection that is gone."""
_RETRIES = 8
"""Tries of a server that is away, in about 30 s: a restart takes seconds, and a range gives the same records."""
_AWAY = (fl.FlightUnavailableError, fl.FlightCancelledError)
"""What a server that is stopped ends calls with: CANCELLED those that it had not begun."""
_CERTIFICATE = "certificate verify failed"
"""What gRPC says, among more, of a certificate that no given authority has signed; as of a server that is away."""
T = TypeVar("T")


class ServerUnavailable(SparkSourceError):
    """The server cannot be asked, or refuses."""


class FlightClient:
    """Connection to a server, made when it is first needed. Used by one thread."""

    def __init__(self, server: FlightServer, where: Callable[[], str] | None = None) -> None:
        """where: returns the node to ask, for each new connection; for a cluster."""
        self._server, self._address = server, server.address
        self._where = where or (lambda: server.address)
        self._is_away = _AWAY if where is None else (*_AWAY, fl.FlightTimedOutError)
        self._client: Any = None
        self._headers: Headers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the next call makes another one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def call(self, ask: Callable[[Any, Any], T], *, timeout_s: float = _CALL_S) -> T:
        """Return the answer of a server, also of one that is being restarted. ask: called with a client of pyarrow and
        the options of a call. Raises ServerUnavailable, DataLoss."""
        failures = 0
        while True:
            try:
                client = self._connected()
                return ask(client, fl.FlightCallOptions(timeout_s, headers=self._headers))
            except FAILED as error:
                failures += 1
                self._pause(error, failures)

    def stream(self, ticket: Callable[[], bytes | None]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a DoGet. ticket: called again after a failure, for what is still missing; None for
        nothing. Raises ServerUnavailable, DataLoss."""
        failures = 0
        while (asked := ticket()) is not None:
            try:
                client = self._connected()
                for chunk in client.do_get(fl.Ticket(asked), fl.FlightCallOptions(headers=self._headers)):
                    yield chunk.data
                    failures = 0
                return
            except FAILED as error:
                failures += 1
                self._pause(error, failures)

    def _connected(self) -> Any:
        if self._client is None:
            self._address = self._where()
            self._client, self._headers = connection(self._server, self._address)
        return self._client

    def _pause(self, error: Exception, failures: int) -> None:
        """Wait before the next try. Raises ServerUnavailable or DataLoss when another one is of no use."""
        self.close()
        text = str(error).partition(". gRPC client debug context")[0]
        if _CERTIFICATE in text.lower().replace("_", " "):
            raise ServerUnavailable(
                f"Flight server {self._address}: flightCaFile has not signed its certificate: {text}"
            ) from None
        if not isinstance(error, self._is_away) or failures > _RETRIES:
            kind = DataLoss if "out of range" in text or "continue at" in text else ServerUnavailable
            raise kind(f"Flight server {self._address}: {text}") from None
        sleep(min(0.2 * 2**failures, 5.0))
