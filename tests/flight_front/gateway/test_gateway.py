"""Clients behind the gateway get what they would get from the server itself."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography import x509

from flight_front.gateway.wire import READ, SERVICE
from tests.support.certificates import Authority
from tests.support.compressed import fill, forget_tail, open_compressed
from tests.support.flight_server import (
    VALUES,
    RunningFlight,
    batch,
    command,
    flight_server,
    options,
    put,
    serving,
    ticket,
    values_of,
)
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone.config import LogConfig
from timestone_access.passwords.password_file import set_password

REFUSED = (fl.FlightError, pa.ArrowException, KeyError)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFlight]:
    with flight_server(tmp_path_factory.mktemp("gateway"), gateway=True, batch_bytes=4096) as running:
        yield running


@pytest.fixture
def log(server: RunningFlight, request: pytest.FixtureRequest) -> str:
    name = f"log-{request.node.name.partition('[')[0][-60:]}".replace("_", "-")
    server.store.log(name)
    return name


def pid_of(server: RunningFlight) -> int:
    gateway = server.front._gateway
    assert gateway is not None and gateway.pid is not None
    return gateway.pid


def read_on(reader: Any, offsets: list[int]) -> None:
    """Add the offsets of all chunks, until an error."""
    while True:
        offsets += reader.read_chunk().data.column("offset").to_pylist()


def test_acknowledged_records_are_read_at_once_from_the_files(server: RunningFlight, log: str) -> None:
    with server.connect() as client:
        for number in range(30):
            put(client, command(log=log, ack="synced"), batch([b"%d" % number]))
            table = client.do_get(ticket(log=log), options()).read_all()
            assert values_of(table) == [b"%d" % each for each in range(number + 1)]
        own = pa.Table.from_batches([server.store.log(log).read(0).to_arrow()])
        assert table.equals(own)
        # Sent by the gateway, and counted by the server all the same.
        read = server.calls.counts.records_read
        client.do_get(ticket(log=log), options()).read_all()
        wait_for(lambda: server.calls.counts.records_read == read + 30)


def test_follower_gets_each_record_once_beyond_the_files(server: RunningFlight, log: str) -> None:
    own = server.store.log(log)
    own.append_many([b"x" * 100] * 500)
    with server.connect() as client:
        reader = client.do_get(ticket(log=log, follow=True, columns=["offset"]), options())
        found: list[int] = []
        for end in range(500, 520):
            while len(found) < end:
                found += reader.read_chunk().data.column("offset").to_pylist()
            own.append(b"later")
        assert found == list(range(519))
        reader.cancel()


def test_log_that_was_deleted_and_made_again_is_read_as_it_is_now(server: RunningFlight, log: str) -> None:
    with server.connect() as client:
        for text in (b"first", b"second"):
            server.store.log(log).append(text)
            assert values_of(client.do_get(ticket(log=log), options()).read_all()) == [text]
            server.store.delete_log(log)
            with pytest.raises(REFUSED, match="there is no such log"):
                client.do_get(ticket(log=log), options()).read_all()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"from": 9}, r"offset 9 is out of range: the log holds \[0, 0\)"),
        ({"columns": ["x"]}, "columns: expected a list"),
        ({"partition": 7}, "there is no such log"),
    ],
)
def test_error_of_a_read_is_that_of_the_server(
    server: RunningFlight, log: str, asked: dict[str, Any], text: str
) -> None:
    with server.connect() as client, pytest.raises(REFUSED, match=text):
        client.do_get(ticket(log=log, **asked), options()).read_all()


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
                count: int = client.do_get(ticket(log="t"), options(timeout_s=5)).read_all().num_rows
                with pytest.raises(fl.FlightUnauthorizedError, match="user 'reader' has no right to write"):
                    put(client, command(log="t"), batch([b"x"]))
                return count

        assert rows(authority.path) == 0
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other", "other")
        new = other.issue("server", alternatives=(x509.DNSName("localhost"),))
        found.path.write_bytes(new.path.read_bytes())
        found.key_path.write_bytes(new.key_path.read_bytes())
        server.run(server.front.reload())
        assert rows(other.path) == 0


def test_gateway_that_dies_is_started_again_on_its_port(server: RunningFlight, log: str) -> None:
    address, before = server.address, pid_of(server)
    with server.connect() as client:
        writer, answers = client.do_put(command(log=log), VALUES, options())
        writer.write_batch(batch([b"answered"]))
        assert answers.read() is not None
        os.kill(before, signal.SIGKILL)
        with pytest.raises(REFUSED):
            writer.close()
        wait_for(lambda: server.front.checks() == {"listening": None} and pid_of(server) != before)
    assert server.address == address
    wait_for(lambda: server.calls.open_count == 0)
    with server.connect() as client:
        assert values_of(client.do_get(ticket(log=log), options()).read_all()) == [b"answered"]


def test_damage_is_data_loss_and_records_before_and_after_it_are_read(tmp_path: Path) -> None:
    with open_compressed(tmp_path / "data", compression="none") as store:
        log = store.log("t")
        fill(log, 450)
        log.sync()
        forget_tail(store)
        segment = log.segment_list.segments[1]
        position = int(segment.read_entries(7, 8)["position"][0])
        with open(segment.segment_path, "r+b") as file:
            file.seek(position)
            [byte] = file.read(1)
            file.seek(position)
            file.write(bytes([byte ^ 1]))
        segment.release()
        with serving(store, gateway=True) as server, server.connect() as client:
            reader = client.do_get(ticket(log="t"), options())
            offsets: list[int] = []
            with pytest.raises(REFUSED, match="log t: offsets 107 to 107 are damaged; continue at 108"):
                read_on(reader, offsets)
            assert offsets == list(range(107))
            rest = client.do_get(ticket(log="t", **{"from": 108}), options()).read_all()
            assert rest.num_rows == 450 - 108


def test_retention_during_a_read_ends_it_with_the_offsets_that_are_left(tmp_path: Path) -> None:
    with flight_server(tmp_path, gateway=True, batch_bytes=4096) as server, server.connect() as client:
        log = server.store.log("r", config=LogConfig(segment_bytes=64 * 1024))
        for _ in range(400):
            log.append_many([b"x" * 1000] * 100, ack="written")
        log.sync()
        reader = client.do_get(ticket(log="r", columns=["offset", "value"]), options())
        offsets: list[int] = reader.read_chunk().data.column("offset").to_pylist()
        log.configure(retention_bytes=1)
        assert log.apply_retention() > 0
        with pytest.raises(REFUSED, match=rf"out of range: the log holds \[{log.start_offset}, 40000\)"):
            read_on(reader, offsets)
        assert offsets == list(range(len(offsets)))


def test_stop_ends_readers_and_followers_with_a_status_and_the_process(tmp_path: Path) -> None:
    with flight_server(tmp_path, gateway=True) as server:
        pid = pid_of(server)
        log = server.store.log("t")
        log.append_many([bytes(100_000)] * 1000, ack="written")
        log.sync()
        client = server.connect()
        readers = [client.do_get(ticket(log="t", follow=True), options()) for _ in range(3)]
        readers.append(client.do_get(ticket(log="t", follow=True, **{"from": "latest"}), options()))
        writer, answers = client.do_put(command(log="t"), VALUES, options())
        writer.write_batch(batch([b"x"]))
        assert answers.read() is not None
    for reader in readers:
        with pytest.raises(REFUSED, match=r"the server stops|closed|unavailable"):
            reader.read_all()
    client.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
