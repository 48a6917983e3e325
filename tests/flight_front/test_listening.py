import asyncio
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography import x509

from flight_front.listening import listening, read_certificates
from flight_front.settings import FlightSettings
from tests.support.certificates import Authority
from tests.support.flight_server import RunningFlight, flight_server, options, ticket

REFUSED = (fl.FlightError, pa.ArrowException)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def issued(authority: Authority) -> dict[str, Any]:
    found = authority.issue("server", alternatives=(x509.DNSName("localhost"),))
    return {"certificate": found.path, "key": found.key_path}


def connect(server: RunningFlight, ca: Path, **certified: Any) -> Any:
    return server.connect(
        "grpc+tls", tls_root_certs=ca.read_text(), override_hostname="localhost", **certified
    )


def test_client_that_knows_the_authority_is_served(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    with flight_server(tmp_path, **issued(authority)) as server:
        with connect(server, authority.path) as client:
            assert client.do_get(ticket(log="t"), options()).read_all().num_rows == 0
        with (
            connect(server, other.path) as client,
            pytest.raises(fl.FlightUnavailableError, match=r"(?i)certificate.verify.failed"),
        ):
            client.do_get(ticket(log="t"), options(timeout_s=5)).read_all()
        with server.connect() as plain, pytest.raises(REFUSED):
            plain.do_get(ticket(log="t"), options(timeout_s=5)).read_all()


def test_certificate_names_the_user_and_its_rights(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "acl").write_text("user reader\nlog read t\n")
    settings = {"client_ca": authority.path, "user_from": "cn", "acl_file": tmp_path / "acl"}
    with flight_server(tmp_path, **issued(authority), **settings) as server:
        for name in ("reader", "stranger"):
            own = authority.issue(name)
            pair = {"cert_chain": own.path.read_text(), "private_key": own.key_path.read_text()}
            with connect(server, authority.path, **pair) as client:
                if name == "reader":
                    assert client.do_get(ticket(log="t"), options()).read_all().num_rows == 0
                    continue
                with pytest.raises(fl.FlightUnauthorizedError, match="user 'stranger' has no right to read"):
                    client.do_get(ticket(log="t"), options()).read_all()
        with connect(server, authority.path) as client, pytest.raises(REFUSED):
            client.do_get(ticket(log="t"), options(timeout_s=5)).read_all()


def test_certificate_is_replaced_by_a_reload(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    files = issued(authority)
    with flight_server(tmp_path, **files) as server:
        new = issued(other)
        files["certificate"].write_bytes(new["certificate"].read_bytes())
        files["key"].write_bytes(new["key"].read_bytes())
        server.run(server.front.reload())
        with connect(server, other.path) as client:
            assert client.do_get(ticket(log="t"), options()).read_all().num_rows == 0


def test_unusable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    with pytest.raises(ValueError, match=r"bad\.pem does not contain a"):
        read_certificates(FlightSettings(certificate=tmp_path / "bad.pem").listener)
    with pytest.raises(ValueError, match=r"missing\.pem: No such file"):
        read_certificates(FlightSettings(certificate=tmp_path / "missing.pem").listener)
    assert read_certificates(FlightSettings().listener) is None


def test_address_that_is_taken_is_an_error_that_names_it() -> None:
    async def listen(address: str) -> int:
        server, port = listening(FlightSettings(listen=address).listener, [], lambda: None)
        await server.stop(0)
        return port

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen on {address}"):
            asyncio.run(listen(address))
    assert asyncio.run(listen("127.0.0.1:0")) > 0
