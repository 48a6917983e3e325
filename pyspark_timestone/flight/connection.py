"""Connections to one server, with TLS and a login where the options have them."""

from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from pyspark_timestone.options.flight_server import FlightServer

FAILED = (fl.FlightError, pa.ArrowException, OSError)
"""What a call that has failed raises."""
AWAY = (fl.FlightUnavailableError, fl.FlightCancelledError, fl.FlightTimedOutError)
"""Of these, what it raises when another node may be asked."""
_CUT_LOGIN = "Could not finish writing before closing"
"""What pyarrow says when the server goes away during a login; of a type of its own, which says nothing."""
Headers = list[tuple[bytes, bytes]]


def connection(server: FlightServer, address: str) -> tuple[Any, Headers]:
    """Return a client of pyarrow and the headers of its calls. Raises one of FAILED."""
    scheme = "grpc" if server.authority is None else "grpc+tls"
    extra = {} if server.authority is None else {"tls_root_certs": server.authority}
    client = fl.connect(f"{scheme}://{address}", **extra)
    try:
        headers = [] if server.user is None else [_login(client, server.user, server.password or "")]
    except BaseException:
        client.close()
        raise
    return client, headers


def _login(client: Any, user: str, password: str) -> tuple[bytes, bytes]:
    """Return the header of the calls of a user."""
    try:
        name, token = client.authenticate_basic_token(user, password)
    except FAILED as error:
        if _CUT_LOGIN in str(error):
            raise fl.FlightUnavailableError(str(error)) from None
        raise
    if not name:  # the server went away after it had taken the login
        raise fl.FlightUnavailableError("the server ended during the login")
    return name, token
