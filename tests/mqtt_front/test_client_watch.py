"""Watched clients over real sockets: what is reported, and that the client returns to the fast path."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.client_watch import CLIENT_COUNT, PACKETS_PER_S
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.paho_client import PahoClient
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow


class Reported:
    """Packets that were reported, by client."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []

    def report(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "watched":
            self.events.append(facts)

    def packets(self, client: str) -> list[Mapping[str, Any]]:
        return [one for each in list(self.events) if each["client"] == client for one in each["packets"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttServer]:
    with mqtt_server(tmp_path_factory.mktemp("watched") / "data") as running:
        yield running


@pytest.fixture
def reported(server: MqttServer) -> Reported:
    found = Reported()
    server.call(lambda: server.front.report_to(found.report))
    return found


def watch(server: MqttServer, client: str, duration_s: float) -> None:
    assert server.call(lambda: server.front.watch(client, None, duration_s))


def is_over(server: MqttServer) -> bool:
    broker = server.front._broker
    assert broker is not None
    return server.call(lambda: not broker.watches._by_link)


def test_watched_client_leaves_the_fast_path_and_returns_to_it(
    server: MqttServer, reported: Reported
) -> None:
    with PahoClient("watched") as client, PahoClient("other") as other:
        client.connect(server.address)
        other.connect(server.address)
        client.subscribe("w", qos=1)
        watch(server, "watched", 1.5)
        for number in range(3):
            client.publish("w", f"value {number}".encode(), qos=1)
        assert [client.receive()[1] for _ in range(3)] == [b"value 0", b"value 1", b"value 2"]
        other.publish("x", b"not watched", qos=1)
        wait_for(lambda: is_over(server))
        packets = reported.packets("watched")
        kinds = [(one["direction"], one["kind"]) for one in packets]
        assert kinds.count(("in", "PUBLISH")) == kinds.count(("out", "PUBLISH")) == 3
        assert kinds.count(("out", "PUBACK")) == 3
        publishes = [one for one in packets if one["kind"] == "PUBLISH"]
        assert {(one["topic"], one["qos"], one["payload_bytes"]) for one in publishes} == {("w", 1, 7)}
        assert not reported.packets("other")
        client.publish("w", b"after", qos=1)
        assert client.receive() == ("w", b"after")
        (row,) = [
            one for one in server.call(lambda: list(server.front.clients())) if one["client"] == "watched"
        ]
        assert (row["publishes_received"], row["deliveries_sent"]) == (4, 4)


def test_packets_above_the_limit_of_a_second_are_counted(server: MqttServer, reported: Reported) -> None:
    with PahoClient("busy") as client:
        client.connect(server.address)
        watch(server, "busy", 60)
        for _ in range(1000):
            client.publish("b", b"x", qos=0)
    wait_for(lambda: is_over(server))
    mine = [one for one in reported.events if one["client"] == "busy"]
    assert sum(len(one["packets"]) + one["left_out"] for one in mine) == 1001  # the last is DISCONNECT
    assert max(len(one["packets"]) for one in mine) == PACKETS_PER_S


def test_packets_of_a_client_that_leaves_are_reported(server: MqttServer, reported: Reported) -> None:
    with PahoClient("leaves") as client:
        client.connect(server.address)
        watch(server, "leaves", 60)
    wait_for(lambda: is_over(server))
    assert [one["kind"] for one in reported.packets("leaves")] == ["DISCONNECT"]


def test_one_client_too_many_is_not_watched(server: MqttServer, reported: Reported) -> None:
    clients = [PahoClient(f"many-{number}") for number in range(CLIENT_COUNT + 1)]
    try:
        for number, client in enumerate(clients):
            client.connect(server.address)
            if number < CLIENT_COUNT:
                watch(server, f"many-{number}", 60)
        with pytest.raises(ValueError, match="which is the limit"):
            watch(server, f"many-{CLIENT_COUNT}", 60)
    finally:
        for client in clients:
            client.__exit__()
    wait_for(lambda: is_over(server))


def test_front_without_events_watches_no_client(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as running, pytest.raises(ValueError, match="records no events"):
        running.call(lambda: running.front.watch("c", None, 60))
