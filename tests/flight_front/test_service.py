"""Calls over the network: what clients get, and with which status they end."""

import concurrent.futures
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from flight_front.gateway.wire import SERVICE
from tests.support.flight_server import (
    batch,
    command,
    flight_server,
    options,
    put,
    ticket,
    values_of,
)
from tests.support.waiting import wait_for
from timestone_access.passwords.password_file import set_password

PATH = fl.FlightDescriptor.for_path("t")


def test_service_has_the_name_that_clients_call() -> None:
    assert SERVICE == "arrow.flight.protocol.FlightService"


def test_records_come_back_as_they_were_appended(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        topics = pa.array(["a/1", None, "a/2"])
        answers = put(client, PATH, batch([b"x", None, b""], topic=topics), batch([b"y"], topic=topics[:1]))
        assert answers == [
            {"batch": 0, "first": 0, "end": 3, "ack": "synced"},
            {"batch": 1, "first": 3, "end": 4, "ack": "synced"},
        ]
        table = client.do_get(ticket(log="t")).read_all()
        own = pa.Table.from_batches([server.store.log("t").read(0).to_arrow()])
        assert table.equals(own)
        assert values_of(table) == [b"x", None, b"", b"y"]


def test_endpoints_in_any_order_give_the_log_exactly(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        log = server.store.log("many", config=server.store.config.log)
        log.configure(segment_bytes=64 * 1024)
        for start in range(0, 4000, 100):
            log.append_many([b"%06d" % number * 10 for number in range(start, start + 100)], ack="written")
        log.sync()
        info = client.get_flight_info(fl.FlightDescriptor.for_path("many"))
        assert len(info.endpoints) > 2 and info.total_records == 4000
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            tables = list(
                pool.map(lambda one: client.do_get(one.ticket).read_all(), reversed(info.endpoints))
            )
        table = pa.concat_tables(tables).sort_by("offset")
        assert table.column("offset").to_pylist() == list(range(4000))


def test_ticket_reads_the_same_rows_when_more_is_appended(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        put(client, PATH, batch([b"1", b"2"]))
        [endpoint] = client.get_flight_info(PATH).endpoints
        first = client.do_get(endpoint.ticket).read_all()
        put(client, PATH, batch([b"3"]))
        assert client.do_get(endpoint.ticket).read_all().equals(first)
        assert client.get_schema(PATH).schema == first.schema


def test_topics_times_columns_and_json_choose_what_is_read(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        log = server.store.log("t")
        log.append_many([b'{"t": %d}' % n for n in range(6)], topics=["a/x", "b/x"] * 3)
        found = client.do_get(
            ticket(
                log="t", topics=["a/+"], columns=["offset"], decode="json", schema="t double",
                **{"from": "2020-01-01T00:00:00Z", "to": 5},
            )
        ).read_all()  # fmt: skip
        assert found.to_pydict() == {"offset": [0, 2, 4], "t": [0.0, 2.0, 4.0]}


def test_logs_are_listed(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        put(client, PATH, batch([b"x"]))
        assert [(one.descriptor.path, one.total_records) for one in client.list_flights()] == [
            ([b"t", b"0"], 1)
        ]


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        ({"log": "nope"}, KeyError, "no log named 'nope-0'"),
        (
            {"log": "t", "from": 9},
            pa.ArrowInvalid,
            r"log t: offset 9 is out of range: the log holds \[0, 0\)",
        ),
        ({"log": "t", "columns": ["x"]}, pa.ArrowInvalid, "columns: expected a list"),
    ],
)
def test_error_of_a_read_names_log_and_offset(
    tmp_path: Path, asked: dict[str, Any], error: type[Exception], text: str
) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        with pytest.raises((error, pa.ArrowException, fl.FlightError), match=text):
            client.do_get(ticket(**asked)).read_all()
        assert sum(server.calls.counts.failed.values()) == 1


@pytest.mark.parametrize("name", ["\ud800", "x" * 30_000, "€" * 10_000], ids=["surrogate", "long", "euro"])
def test_refusal_of_any_name_reaches_the_client(tmp_path: Path, name: str) -> None:
    """With the first, the client got no answer; with the others, an error of its own gRPC."""
    with flight_server(tmp_path) as server, server.connect() as client:
        with pytest.raises(pa.ArrowInvalid, match="with message: log"):
            client.do_get(ticket(log=name), options()).read_all()
        with pytest.raises(pa.ArrowInvalid, match="with message: log"):
            client.get_flight_info(command(log=name), options())


def test_followed_records_arrive_once_and_in_order(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        put(client, PATH, batch([b"0"]))
        reader = client.do_get(ticket(log="t", follow=True), options())
        found: list[int] = reader.read_chunk().data.column("offset").to_pylist()
        for number in range(1, 20):
            server.store.log("t").append(b"%d" % number)
            while found[-1] < number:
                found += reader.read_chunk().data.column("offset").to_pylist()
        assert found == list(range(20))
        reader.cancel()
        wait_for(lambda: server.calls.open_count == 0)


def test_written_records_are_followed_when_they_are_durable(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        reader = client.do_get(ticket(log="t", follow=True), options())
        server.store.log("t").append(b"x", ack="written")
        assert values_of(pa.Table.from_batches([reader.read_chunk().data])) == [b"x"]
        assert server.store.log("t").synced_offset == 1


def test_client_that_is_gone_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with flight_server(tmp_path, batch_bytes=4096) as server:
        server.store.log("t").append_many([bytes(1000)] * 20_000)
        for _ in range(10):
            client = server.connect()
            reader = client.do_get(ticket(log="t"))
            reader.read_chunk()
            reader.cancel()
            client.close()
        wait_for(lambda: server.calls.open_count == 0)
        assert not dict(server.calls.counts.failed)
        assert not [one for one in caplog.records if one.levelname == "ERROR"]


def test_handshake_gives_a_token_for_a_password(tmp_path: Path) -> None:
    set_password(tmp_path / "passwords", "alice", b"secret")
    (tmp_path / "acl").write_text("user alice\nlog read t\n")
    files = {"password_file": tmp_path / "passwords", "acl_file": tmp_path / "acl"}
    with flight_server(tmp_path, **files) as server, server.connect() as client:
        name, value = client.authenticate_basic_token(b"alice", b"secret")
        logged_in = fl.FlightCallOptions(headers=[(name, value)])
        assert client.do_get(ticket(log="t"), logged_in).read_all().num_rows == 0
        with pytest.raises(fl.FlightUnauthorizedError, match="has no right to write log 't'"):
            put(client, PATH, batch([b"x"]), logged_in=logged_in)
        with pytest.raises(fl.FlightUnauthorizedError):
            client.do_get(ticket(log="secret"), logged_in).read_all()
        assert next(iter(client.list_flights(options=logged_in))).descriptor.path == [b"t", b"0"]
        for wrong in (None, "Bearer nothing"):
            with pytest.raises(fl.FlightUnauthenticatedError):
                client.do_get(ticket(log="t"), options(token=wrong)).read_all()
        with pytest.raises(fl.FlightUnauthenticatedError):
            client.authenticate_basic_token(b"alice", b"wrong")


def test_put_in_an_unknown_log_or_with_unknown_columns_is_refused(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        with pytest.raises((fl.FlightError, pa.ArrowException, KeyError), match="no log named"):
            put(client, fl.FlightDescriptor.for_path("nope"), batch([b"x"]))
        with pytest.raises((fl.FlightError, pa.ArrowException), match="expected columns value"):
            put(client, PATH, batch([b"x"], other=pa.array([1])))
        with pytest.raises((fl.FlightError, pa.ArrowException), match="invalid ack"):
            put(client, command(log="t", ack="memory"), batch([b"x"]))
        assert server.store.log("t").end_offset == 0
