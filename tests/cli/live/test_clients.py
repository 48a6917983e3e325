"""`timestone clients` as a process, beside a server with real clients."""

import json
from pathlib import Path

from tests.cli.processes import timestone as command
from tests.support.control_server import controlled_server
from tests.support.mqtt_clients import RawClient
from tests.support.paho_client import PahoClient


def test_clients_are_listed_with_what_they_sent_and_received(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data") as server:
        with PahoClient("reading", level=5) as reading, PahoClient("writing") as writing:
            reading.connect(server.address)
            reading.subscribe("t/#", 1)
            writing.connect(server.address)
            for _ in range(3):
                writing.publish("t/1", b"x", 1)
            for _ in range(3):
                reading.messages.get(timeout=60)
            done = command("clients", "data", "--json", cwd=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            found = {row["client"]: row for row in json.loads(done.stdout)["clients"]}
            assert (found["reading"]["mqtt"], found["writing"]["mqtt"]) == ("5", "3.1.1")
            assert found["writing"]["publishes_received"] == found["reading"]["deliveries_sent"] == 3
            assert found["reading"]["subscriptions"] == 1
            shown = command("clients", "data", cwd=tmp_path)
            lines = shown.stdout.splitlines()
            assert max(map(len, lines)) <= 80
            assert sum("writing " in line for line in lines) == 2  # in two pieces
            wide = command("clients", "data", cwd=tmp_path, environment={"COLUMNS": "200"})
            assert sum("writing " in line for line in wide.stdout.splitlines()) == 1
            only = command("clients", "data", "--client", "writing", "--json", cwd=tmp_path)
            assert [row["client"] for row in json.loads(only.stdout)["clients"]] == ["writing"]
        none = command("clients", "data", "--user", "anna", cwd=tmp_path)
        assert (none.returncode, none.stdout) == (0, "no such client is connected\n")


def test_hostile_client_id_is_printed_as_text(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data") as server, RawClient(server.address) as client:
        client.connect("[red]a\u202eb\u200b")
        done = command("clients", "data", cwd=tmp_path)
    assert "[red]a\\u202eb\\u200b" in done.stdout and "\u202e" not in done.stdout


def test_store_without_a_server_is_an_error_of_one_line(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data"):
        empty = command("clients", "data", cwd=tmp_path)
        assert (empty.returncode, empty.stdout) == (0, "no clients are connected\n")
    done = command("clients", "data", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "timestone clients: no server runs on data\n"
    done = command("clients", "nowhere", cwd=tmp_path)
    assert done.stderr == "timestone clients: nowhere is not a Timestone store: it does not exist\n"
