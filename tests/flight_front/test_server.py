import contextlib
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import timestone
from flight_front.settings import FlightSettings
from tests.support.flight_server import VALUES, RunningFlight, batch, flight_server, options, put, ticket
from tests.support.waiting import wait_for
from timestone_access.passwords.password_file import set_password

REFUSED = (fl.FlightError, pa.ArrowException)
PATH = fl.FlightDescriptor.for_path("t")


@pytest.mark.slow
def test_second_server_on_a_port_is_refused(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, timestone.open(tmp_path / "other") as store:
        second = RunningFlight(store, FlightSettings(listen=server.address))
        try:
            with pytest.raises(OSError, match="cannot listen on 127"):
                second.run(second.front.start())
        finally:
            second.end()


@pytest.mark.slow
def test_stop_ends_open_streams_and_keeps_what_was_answered(tmp_path: Path) -> None:
    with flight_server(tmp_path, user_stream_count=200) as server:
        client = server.connect()
        readers = [client.do_get(ticket(log="t", follow=True), options()) for _ in range(30)]
        writers = [client.do_put(PATH, VALUES, options()) for _ in range(20)]
        for writer, answers in writers:
            writer.write_batch(batch([b"x"]))
            assert answers.read() is not None
        wait_for(lambda: server.calls.open_count == 50)
    for reader in readers:
        with pytest.raises(REFUSED, match="the server stops"):
            reader.read_all()
    client.close()
    with timestone.open(tmp_path / "data") as store:
        assert store.log("t").end_offset == 20


def test_metrics_count_calls_and_records(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        put(client, PATH, batch([b"x", b"y"]))
        client.do_get(ticket(log="t")).read_all()
        wait_for(lambda: server.calls.open_count == 0)
        found = {one.name: one.samples for one in server.front.metrics()}
        assert found["records_appended"] == [({}, 2)]
        assert found["records_read"] == [({}, 2)]
        assert dict((labels["method"], value) for labels, value in found["calls"]) == {"DoPut": 1, "DoGet": 1}


def test_reload_reads_users_again_and_changes_nothing_when_a_file_is_bad(tmp_path: Path) -> None:
    set_password(tmp_path / "passwords", "alice", b"one")
    (tmp_path / "acl").write_text("user alice\nlog read t\n")
    files = {"password_file": tmp_path / "passwords", "acl_file": tmp_path / "acl"}
    with flight_server(tmp_path, **files) as server, server.connect() as client:
        set_password(tmp_path / "passwords", "alice", b"two")
        server.run(server.front.reload())
        with pytest.raises(fl.FlightUnauthenticatedError):
            client.authenticate_basic_token(b"alice", b"one")
        client.authenticate_basic_token(b"alice", b"two")
        (tmp_path / "acl").write_text("log fly t\n")
        with pytest.raises(ValueError, match="acl:1: expected one of read, write, admin"):
            server.run(server.front.reload())
        client.authenticate_basic_token(b"alice", b"two")


def test_garbage_on_the_port_does_not_disturb_others(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        host, _, port = server.address.rpartition(":")
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for sent in (b"\x00" * 10_000, b"GET / HTTP/1.1\r\n\r\n", preface + b"\xff" * 10_000, preface):
            with socket.create_connection((host, int(port))) as raw, contextlib.suppress(OSError):
                raw.sendall(sent)
        for _ in range(200):
            socket.create_connection((host, int(port))).close()
        assert put(client, PATH, batch([b"x"]))[0]["first"] == 0
        for body in (b"", b"\xff" * 1000, b"{" * 60_000, b"x" * 5_000_000):
            with pytest.raises(REFUSED):
                client.do_get(fl.Ticket(body), options()).read_all()
