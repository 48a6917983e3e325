"""`timestone top` as a process: once for a pipe, again and again on a terminal."""

import json
import signal
import threading
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND
from tests.cli.processes import timestone as command
from tests.support.control_server import controlled_server
from tests.support.mqtt_clients import RawClient
from tests.support.terminal import OnTerminal
from timestone_cli.live.top import Look, _busiest, _totals


def row(client: str, number: int, **figures: int) -> dict[str, object]:
    counts = {
        "publishes_received": 0, "deliveries_sent": 0, "bytes_received": 0, "bytes_sent": 0, "lag": 0,
        "unsent_bytes": 0, "idle_s": 0,
    }  # fmt: skip
    return {"front": "mqtt", "connection": number, "client": client, **counts, **figures}


@pytest.mark.parametrize(
    ("order", "expected"),
    [("messages", "abc"), ("bytes", "cab"), ("lag", "bac"), ("unsent", "bac"), ("idle", "cab")],
)
def test_clients_are_sorted_by_what_was_asked_for(order: str, expected: str) -> None:
    clients = [
        row("a", 1, publishes_received=10, bytes_received=10),
        row("b", 2, deliveries_sent=5, lag=9, unsent_bytes=1),
        row("c", 3, bytes_sent=100, idle_s=7),
    ]
    before, now = Look(0.0, {"parts": {}}, []), Look(1.0, {"parts": {}}, clients)
    assert "".join(one["client"] for one in _busiest(before, now, order, 10)) == expected


def test_totals_have_connections_that_ended() -> None:
    looks = [
        Look(at_s, {"parts": {"mqtt": {"publishes_received": count}}}, [])
        for at_s, count in ((0.0, 5), (2.0, 25))
    ]
    assert _totals(*looks)["publishes_received_per_s"] == 10.0


@pytest.mark.slow
def test_rates_are_printed_once_into_a_pipe(tmp_path: Path) -> None:
    with (
        controlled_server(tmp_path / "data") as server,
        RawClient(server.address) as busy,
        RawClient(server.address) as idle,
    ):
        idle.connect("idle")
        busy.connect("busy")
        stopping = threading.Event()

        def publish() -> None:
            while not stopping.is_set():
                busy.publish("t", b"x")

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            done = command("top", "data", "--interval", "500ms", "--json", cwd=tmp_path)
            shown = command("top", "data", "--interval", "500ms", "--limit", "1", cwd=tmp_path)
        finally:
            stopping.set()
            thread.join()
    found = json.loads(done.stdout)
    assert [one["client"] for one in found["clients"]] == ["busy", "idle"]
    assert found["client_count"] == 2
    assert found["publishes_received_per_s"] > 0 == found["clients"][1]["publishes_received_per_s"]
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("data: 2 clients, messages/s ") and max(map(len, lines)) <= 80
    assert lines[-1].startswith("busy ") and not any(line.startswith("idle ") for line in lines)


@pytest.mark.slow
def test_terminal_is_refreshed_until_an_interrupt(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data") as server, RawClient(server.address) as client:
        client.connect("first")
        with OnTerminal([*COMMAND, "top", "data", "--interval", "200ms"], tmp_path) as top:
            top.wait_for("first")
            with RawClient(server.address) as later:
                later.connect("second")
                top.wait_for("second")
            top.process.send_signal(signal.SIGINT)
            assert top.process.wait(60) == 0
