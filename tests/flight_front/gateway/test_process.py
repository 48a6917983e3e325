"""The process of the gateway: started with the front, again when it dies, ended with it."""

import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tests.support.flight_server import (
    VALUES,
    RunningFlight,
    batch,
    command,
    flight_server,
    options,
    ticket,
    values_of,
)
from tests.support.waiting import wait_for

REFUSED = (fl.FlightError, pa.ArrowException, KeyError)
pytestmark = pytest.mark.slow


def pid_of(server: RunningFlight) -> int:
    gateway = server.front._gateway
    assert gateway is not None and gateway.pid is not None
    return gateway.pid


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


def test_gateway_serves_on_when_it_is_signalled_with_its_server(server: RunningFlight, log: str) -> None:
    server.store.log(log).append(b"x")
    pid = pid_of(server)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    with server.connect() as client:
        assert values_of(client.do_get(ticket(log=log), options()).read_all()) == [b"x"]
    assert pid_of(server) == pid


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
