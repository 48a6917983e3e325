"""Calls that the gateway forwards."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography import x509

from flight_front.gateway.batch_memory import BatchMemory, new_memory
from flight_front.gateway.relay import Relay
from flight_front.gateway.wire import READ, SERVICE
from flight_front.settings import FlightSettings
from tests.support.certificates import Authority
from tests.support.flight_server import (
    RunningFlight,
    flight_server,
    options,
    ticket,
)
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone_access.passwords.password_file import set_password

REFUSED = (fl.FlightError, pa.ArrowException, KeyError)
pytestmark = pytest.mark.slow


def test_call_for_the_gateway_is_not_served_to_clients(server: RunningFlight) -> None:
    with grpc.insecure_channel(server.address) as channel:
        for service in (READ, SERVICE):
            with pytest.raises(grpc.RpcError) as ended:
                list(channel.stream_stream(f"/{service}/Read")(iter([b"{}"]), timeout=TIMEOUT_S))
            assert ended.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_client_cannot_name_another_client_as_the_one_behind_it(tmp_path: Path) -> None:
    """Metadata of the gateway's own is not taken from a client."""
    set_password(tmp_path / "passwords", "alice", b"secret")
    with flight_server(tmp_path, gateway=True, password_file=tmp_path / "passwords") as server:
        named = b'{"peer": "ipv4:192.0.2.1:1", "names": ["616c696365"]}'
        asked = fl.FlightCallOptions(headers=[(b"timestone-client-bin", named)], timeout=TIMEOUT_S)
        with server.connect() as client, pytest.raises(fl.FlightUnauthenticatedError):
            client.do_get(ticket(log="t"), asked).read_all()
        with server.connect() as client:
            name, value = client.authenticate_basic_token(b"alice", b"secret")
            logged_in = fl.FlightCallOptions(headers=[(name, value)], timeout=TIMEOUT_S)
            with pytest.raises(fl.FlightUnauthorizedError, match="user 'alice' has no right to read log 't'"):
                client.do_get(ticket(log="t"), logged_in).read_all()


@pytest.mark.parametrize("gateway", [False, True])
def test_login_ends_after_its_client_has_ended_its_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gateway: bool
) -> None:
    """A client that finds the call ended before, as a slow one does, takes the login for failed."""
    monkeypatch.setattr("flight_front.messages.HALF_CLOSE_S", TIMEOUT_S)
    ended = threading.Event()

    def side() -> Iterator[bytes]:
        ended.wait(TIMEOUT_S)
        yield from ()

    with flight_server(tmp_path, gateway=gateway) as server, grpc.insecure_channel(server.address) as channel:
        login = channel.stream_stream(f"/{SERVICE}/Handshake")(side(), timeout=TIMEOUT_S)
        try:
            assert dict(login.initial_metadata())["authorization"].startswith("Bearer ")
            # Its answer would arrive after the end of the login.
            assert list(channel.unary_stream(f"/{SERVICE}/ListActions")(b"", timeout=TIMEOUT_S))
            assert login.is_active()
        finally:
            ended.set()
        assert login.code() is grpc.StatusCode.OK


def test_refused_login_ends_after_its_client_has_ended_its_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow takes a login that has ended before for an internal error."""
    monkeypatch.setattr("flight_front.messages.HALF_CLOSE_S", TIMEOUT_S)
    set_password(tmp_path / "passwords", "alice", b"secret")
    ended = threading.Event()

    def side() -> Iterator[bytes]:
        ended.wait(TIMEOUT_S)
        yield from ()

    with (
        flight_server(tmp_path, password_file=tmp_path / "passwords") as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        login = channel.stream_stream(f"/{SERVICE}/Handshake")(side(), timeout=TIMEOUT_S)
        try:
            wait_for(lambda: server.calls.counts.failed["UNAUTHENTICATED"] == 1)
            assert login.is_active()
        finally:
            ended.set()
        assert login.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("gateway", [False, True])
def test_wrong_password_is_unauthenticated_however_fast_it_is_refused(tmp_path: Path, gateway: bool) -> None:
    set_password(tmp_path / "passwords", "alice", b"secret")
    with flight_server(tmp_path, gateway=gateway, password_file=tmp_path / "passwords") as server:
        for _ in range(30):  # from the eleventh on, the user is locked out, which takes no time to see
            with server.connect() as client, pytest.raises(fl.FlightUnauthenticatedError):
                client.authenticate_basic_token(b"alice", b"wrong")


def test_grpcio_has_the_attribute_that_keeps_the_status_of_a_call() -> None:
    """Without it calls work, and a status that overtakes a message becomes INTERNAL: see `relay.write`."""

    async def attribute() -> Any:
        async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
            call = channel.stream_stream("/x/y")()
            return call._cython_call.send_serialized_message

    assert callable(asyncio.run(attribute()))


def test_refusal_reaches_a_client_that_is_still_sending(server: RunningFlight) -> None:
    messages = [bytes(2000)] * 50  # more than are read before the first one is refused
    with grpc.insecure_channel(server.address) as channel:
        put_call = channel.stream_stream(f"/{SERVICE}/DoPut")
        for _ in range(50):
            with pytest.raises(grpc.RpcError) as ended:
                list(put_call(iter(messages), timeout=TIMEOUT_S))
            assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT, ended.value.details()


def test_call_that_a_stopping_server_cancels_may_be_tried_again(tmp_path: Path) -> None:
    async def cancel(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.CANCELLED)

    def serving_both(method: Any) -> Any:
        handler = grpc.stream_stream_rpc_method_handler(method)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"DoAction": handler}),)
        )
        return server

    async def status() -> Any:
        stopping, address = serving_both(cancel), f"unix:{tmp_path}/server"
        stopping.add_insecure_port(address)
        await stopping.start()
        async with grpc.aio.insecure_channel(address) as channel:
            fd = new_memory()
            relay = Relay(channel, FlightSettings(listen="127.0.0.1:0").listener, BatchMemory(fd))
            os.close(fd)

            async def forward(_: Any, context: Any) -> None:
                await relay.forward(context, "DoAction")

            gateway = serving_both(forward)
            port = gateway.add_insecure_port("127.0.0.1:0")
            await gateway.start()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as client:
                call = client.stream_stream(f"/{SERVICE}/DoAction")(timeout=TIMEOUT_S)
                found = await call.code()
            await gateway.stop(None)
        await stopping.stop(None)
        return found

    assert asyncio.run(status()) is grpc.StatusCode.UNAVAILABLE


def test_every_login_has_a_token(server: RunningFlight) -> None:
    with server.connect() as client:
        for _ in range(200):
            name, token = client.authenticate_basic_token(b"alice", b"secret", options())
            assert (name, token[:7]) == (b"authorization", b"Bearer ")


def test_certificate_names_the_user_behind_the_gateway_and_is_replaced_by_a_reload(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "acl").write_text("user reader\nlog read t\n")
    found = authority.issue("server", alternatives=(x509.DNSName("localhost"),))
    files = {"certificate": found.path, "key": found.key_path, "client_ca": authority.path}
    own = authority.issue("reader")
    pair = {"cert_chain": own.path.read_text(), "private_key": own.key_path.read_text()}
    settings = {"user_from": "cn", "acl_file": tmp_path / "acl"}
    with flight_server(tmp_path, gateway=True, **files, **settings) as server:

        def rows(ca: Path) -> int:
            with server.connect(
                "grpc+tls", tls_root_certs=ca.read_text(), override_hostname="localhost", **pair
            ) as client:
                count: int = client.do_get(ticket(log="t"), options(timeout_s=30)).read_all().num_rows
                with pytest.raises(fl.FlightUnauthorizedError, match="user 'reader' has no right to read"):
                    client.do_get(ticket(log="other"), options(timeout_s=30)).read_all()
                return count

        assert rows(authority.path) == 0
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other", "other")
        new = other.issue("server", alternatives=(x509.DNSName("localhost"),))
        found.path.write_bytes(new.path.read_bytes())
        found.key_path.write_bytes(new.key_path.read_bytes())
        server.run(server.front.reload())
        assert rows(other.path) == 0
