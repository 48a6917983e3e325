from pathlib import Path

import pytest

from tests.support.mqtt_server import mqtt_server
from timestone_bench.mqtt.load.channel import open_channel, subscribe
from timestone_bench.mqtt.load.client_protocols import Mqtt


def test_a_connection_is_open_when_the_server_has_said_so(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server, open_channel(Mqtt(), server.address, "c") as channel:
        subscribe(channel, Mqtt(), "a/+", 1)
        assert server.status()["connections"] == 1


def test_a_server_that_turns_clients_away_is_an_error(tmp_path: Path) -> None:
    with (
        mqtt_server(tmp_path, connection_count=1) as server,
        open_channel(Mqtt(), server.address, "c"),
        pytest.raises(ConnectionError),
    ):
        open_channel(Mqtt(), server.address, "d")


def test_no_server_is_an_error_with_the_address() -> None:
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1: Connection refused"):
        open_channel(Mqtt(), ("127.0.0.1", 1), "c")
