"""A thousand clients that do nothing, through the gateway: it stays small, and devices and other clients are served."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from flight_front.gateway.relay import METHODS
from flight_front.gateway.wire import SERVICE
from tests.support.flight_server import (
    VALUES,
    RunningFlight,
    batch,
    command,
    flight_server,
    options,
    put,
    ticket,
    values_of,
)
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import mqtt_server
from tests.support.waiting import TIMEOUT_S, wait_for

REFUSED = (fl.FlightError, pa.ArrowException)
_COUNT = 1000
_LIMIT_S = 4 * TIMEOUT_S
"""A thousand calls take a third of the usual limit with nothing else on two processors."""
_KIB_EACH, _THREADS_MORE = 64, 8
_STOPPED, _STOPPED_MIB = 10, 12
"""Readers that stop, and what each may take: two batches, and what gRPC has on its way. The log is larger."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(5 * _LIMIT_S)]


@contextmanager
def crowded(path: Path, **settings: Any) -> Iterator[tuple[RunningFlight, Any, RawClient]]:
    """Serve both fronts with room for a crowd. Yield the server, a client of it and a device."""
    limits = {"stream_count": 2000, "user_stream_count": 2000, "calls_per_s": 0, **settings}
    with (
        flight_server(path, gateway=True, **limits) as server,
        mqtt_server(path, store=server.store, default_log="t") as broker,
        server.connect() as client,
        RawClient(broker.address) as device,
    ):
        device.connect()
        yield server, client, device


def size_of(server: RunningFlight) -> tuple[int, int]:
    """Return the memory (KiB) and the threads of the gateway."""
    gateway = server.front._gateway
    assert gateway is not None
    status = dict(line.split(":", 1) for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]), int(status["Threads"])


def publish(device: RawClient, count: int = 100) -> None:
    """Publish records to the log `t`, each of which is acknowledged."""
    for number in range(count):
        device.publish("site/a", b"%d" % number, packet_id=number + 1)


def test_idle_followers_cost_the_gateway_little_memory_and_no_thread(tmp_path: Path) -> None:
    with crowded(tmp_path) as (server, client, device):
        asked = ticket(log="t", follow=True, columns=["value"])
        readers = [client.do_get(asked, options(timeout_s=_LIMIT_S)) for _ in range(100)]
        wait_for(lambda: server.calls.open_count == 100, _LIMIT_S)
        memory, threads = size_of(server)
        readers += [client.do_get(asked, options(timeout_s=_LIMIT_S)) for _ in range(_COUNT)]
        wait_for(lambda: server.calls.open_count == 100 + _COUNT, _LIMIT_S)
        more_memory, more_threads = size_of(server)
        assert more_memory - memory < _COUNT * _KIB_EACH
        assert more_threads - threads <= _THREADS_MORE
        publish(device)
        for reader in readers:
            found = [reader.read_chunk().data]
            while sum(each.num_rows for each in found) < 100:
                found.append(reader.read_chunk().data)
            assert values_of(pa.Table.from_batches(found)) == [b"%d" % number for number in range(100)]
            reader.cancel()
        wait_for(lambda: server.calls.open_count == 0, _LIMIT_S)


def test_silent_puts_are_ended_and_leave_nothing_in_the_gateway(tmp_path: Path) -> None:
    with crowded(tmp_path, put_idle_ms=3000) as (server, client, device):
        memory, threads = size_of(server)
        silent = [client.do_put(command(log="t"), VALUES, options(timeout_s=_LIMIT_S)) for _ in range(_COUNT)]
        publish(device)
        assert put(client, command(log="t"), batch([b"x"]))[0]["first"] == 100
        wait_for(lambda: server.calls.counts.idle_ended == _COUNT, _LIMIT_S)
        for writer, _ in silent:
            with pytest.raises(REFUSED, match="put_idle_ms"):
                writer.close()
        wait_for(lambda: server.calls.open_count == 0, _LIMIT_S)
        more_memory, more_threads = size_of(server)
        assert more_memory - memory < _COUNT * _KIB_EACH
        assert more_threads - threads <= _THREADS_MORE


@pytest.mark.parametrize("gateway", [False, True])
def test_call_whose_client_sends_no_message_is_counted_and_ended(tmp_path: Path, gateway: bool) -> None:
    with (
        flight_server(tmp_path, gateway=gateway, put_idle_ms=500) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        methods = [name for name in METHODS if name != "Handshake"]
        silence = threading.Event()

        def nothing() -> Iterator[bytes]:
            silence.wait()
            yield from ()

        calls = [
            channel.stream_stream(f"/{SERVICE}/{name}")(nothing(), timeout=TIMEOUT_S) for name in methods
        ]
        try:
            for name, call in zip(methods, calls, strict=True):
                assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED, name
                assert "put_idle_ms" in call.details(), name
        finally:
            silence.set()
        assert server.calls.counts.idle_ended == len(methods)
        assert set(server.calls.counts.calls) == set(methods)


def test_readers_that_stop_take_a_few_batches_of_memory_each_and_continue(tmp_path: Path) -> None:
    with crowded(tmp_path) as (server, client, device):
        log = server.store.log("large")
        for _ in range(32):
            log.append_many([bytes(65_536)] * 16)
        assert client.do_get(ticket(log="large"), options(timeout_s=_LIMIT_S)).read_all().num_rows == 512
        memory, threads = size_of(server)
        readers = [client.do_get(ticket(log="large"), options(timeout_s=_LIMIT_S)) for _ in range(_STOPPED)]
        found = [reader.read_chunk().data.num_rows for reader in readers]
        publish(device)
        assert put(client, command(log="t"), batch([b"x"]))[0]["first"] == 100
        more_memory, more_threads = size_of(server)
        assert more_memory - memory < _STOPPED * _STOPPED_MIB * 1024
        assert more_threads - threads <= _THREADS_MORE
        for number, reader in enumerate(readers):
            found[number] += sum(chunk.data.num_rows for chunk in reader)
        assert found == [512] * _STOPPED
        wait_for(lambda: server.calls.open_count == 0, _LIMIT_S)
