"""Connections to a server: a login is sent, and a wrong one is refused."""

from pathlib import Path

import pyarrow.flight as fl
import pytest

from pyspark_timestone.flight.connection import connection
from pyspark_timestone.options.flight_server import FlightServer
from tests.support.flight_server import flight_server
from timestone_access.passwords.password_file import set_password


def test_calls_have_the_token_of_the_login(tmp_path: Path) -> None:
    set_password(tmp_path / "passwords", "spark", b"secret")
    (tmp_path / "acl").write_text("user spark\nlog read t\n")
    files = {"password_file": tmp_path / "passwords", "acl_file": tmp_path / "acl"}
    with flight_server(tmp_path, **files) as server:
        client, headers = connection(FlightServer(server.address, "spark", "secret"), server.address)
        with client:
            assert len(list(client.list_flights(options=fl.FlightCallOptions(headers=headers)))) == 1
        with pytest.raises(fl.FlightUnauthenticatedError):
            connection(FlightServer(server.address, "spark", "wrong"), server.address)
