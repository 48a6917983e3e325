from ipaddress import ip_address
from pathlib import Path

import pyarrow.flight as fl
import pytest
from cryptography import x509

from pyspark_timestone.errors import DataLoss
from pyspark_timestone.flight.client import FlightClient, ServerUnavailable
from pyspark_timestone.options.flight_server import FlightServer
from tests.support.certificates import Authority
from tests.support.flight_server import flight_server
from timestone_access.passwords.password_file import set_password


def logs(server: FlightServer) -> int:
    with FlightClient(server) as connected:
        return len(connected.call(lambda made, login: list(made.list_flights(options=login))))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between tries, which are not waited for."""
    found: list[float] = []
    # Not that of the module `time`: other threads of this process sleep, too.
    monkeypatch.setattr("pyspark_timestone.flight.client.sleep", found.append)
    return found


def test_password_is_sent_and_a_wrong_one_refused_at_once(tmp_path: Path, waits: list[float]) -> None:
    set_password(tmp_path / "passwords", "spark", b"secret")
    (tmp_path / "acl").write_text("user spark\nlog read t\n")
    files = {"password_file": tmp_path / "passwords", "acl_file": tmp_path / "acl"}
    with flight_server(tmp_path, **files) as server:
        assert logs(FlightServer(server.address, "spark", "secret")) == 1
        with pytest.raises(ServerUnavailable, match="unauthenticated"):
            logs(FlightServer(server.address, "spark", "wrong"))
    assert waits == []


def test_certificate_that_no_authority_has_signed_ends_the_call_at_once(
    tmp_path: Path, waits: list[float]
) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    found = authority.issue("server", alternatives=(x509.IPAddress(ip_address("127.0.0.1")),))
    with flight_server(tmp_path, certificate=found.path, key=found.key_path) as server:
        assert logs(FlightServer(server.address, authority=authority.path.read_bytes())) == 1
        with pytest.raises(ServerUnavailable, match="flightCaFile has not signed its certificate"):
            logs(FlightServer(server.address, authority=other.path.read_bytes()))
    assert waits == []


def test_server_that_is_away_is_tried_again_for_half_a_minute(waits: list[float]) -> None:
    with pytest.raises(ServerUnavailable, match=r"Flight server 127\.0\.0\.1:1:"):
        logs(FlightServer("127.0.0.1:1"))
    assert 25 < sum(waits) < 40


def test_call_that_a_stopping_server_cancelled_is_tried_again(waits: list[float]) -> None:
    connected = FlightClient(FlightServer("127.0.0.1:1"))
    connected._pause(fl.FlightCancelledError("CANCELLED"), 1)
    assert waits == [0.4]
    with pytest.raises(ServerUnavailable, match="CANCELLED"):
        connected._pause(fl.FlightCancelledError("CANCELLED"), 9)
    with pytest.raises(DataLoss):
        connected._pause(fl.FlightServerError("offset 3 is out of range"), 1)
