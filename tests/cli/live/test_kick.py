"""`timestone kick` as a process, beside a server with real clients."""

import json
from pathlib import Path

from mqtt_front.codec.packets import Disconnect
from mqtt_front.reasons import Reason
from tests.cli.processes import timestone as command
from tests.support.control_server import controlled_server
from tests.support.mqtt_clients import RawClient
from tests.support.paho_client import PahoClient


def test_kicked_client_gets_the_reason_and_may_return(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data") as server:
        with RawClient(server.address, 5) as client, PahoClient("stays") as other:
            other.connect(server.address)
            client.connect("goes", will=None)
            done = command("kick", "data", "goes", cwd=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith("disconnected goes at 127.0.0.1:")
            assert client.expect(Disconnect).reason == Reason.ADMINISTRATIVE_ACTION
            client.expect_closed()
            assert not other.disconnected.is_set()
            with RawClient(server.address, 5) as again:
                again.connect("goes")
        shown = json.loads(command("kick", "data", "nobody", "--json", cwd=tmp_path).stdout)
        assert shown["disconnected"] == []


def test_mqtt_3_client_is_disconnected(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data") as server, RawClient(server.address, 4) as client:
        client.connect("old")
        found = json.loads(command("kick", "data", "old", "--json", cwd=tmp_path).stdout)
        assert [row["client"] for row in found["disconnected"]] == ["old"]
        client.expect_closed()


def test_client_of_another_user_stays(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data") as server, RawClient(server.address, 5) as client:
        client.connect("c")
        done = command("kick", "data", "c", "--user", "anna", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "timestone kick: no client 'c' of user 'anna' is connected\n"
        client.expect_silence()
