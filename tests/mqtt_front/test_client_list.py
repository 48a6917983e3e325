"""Figures of each connection: they agree with what the clients did, and add up to those of the server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.codec.packets import Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqtt_front.kernel import loops
from mqtt_front.net.client_socket import Traffic
from mqtt_front.reasons import Reason
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import wait_for

READERS = [
    pytest.param(True, id="poller", marks=pytest.mark.skipif(loops.Sockets is None, reason="no kernel")),
    pytest.param(False, id="transports"),
]


def rows(server: MqttServer) -> dict[str, dict[str, Any]]:
    """Return the rows of connected clients by client id."""
    return {row["client"]: dict(row) for row in server.call(lambda: list(server.front.clients()))}


def totals_and_sum(server: MqttServer, ended: list[dict[str, int]]) -> tuple[Traffic, Traffic]:
    """Return the counters of the front, and the sum over its clients and those that have `ended`."""
    status, connected = server.call(lambda: (server.front.status(), list(server.front.clients())))
    status["publishes_refused"] = status["publishes_dropped"]  # nothing fails here but what is refused
    added = (sum(one[name] for one in (*connected, *ended)) for name in Traffic._fields)
    return Traffic(*(status[name] for name in Traffic._fields)), Traffic(*added)


@pytest.mark.parametrize("polled", READERS)
@pytest.mark.parametrize("ack", ["written", "synced"])
def test_rows_count_what_clients_did_and_add_up_to_the_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, polled: bool, ack: str
) -> None:
    if not polled:
        monkeypatch.setattr(loops, "Sockets", None)
    ended: list[dict[str, int]] = []

    def report(event: str, facts: Mapping[str, Any]) -> None:
        if event == "disconnected":
            ended.append(facts["counts"])

    with mqtt_server(tmp_path, ack=ack) as server:
        server.call(lambda: server.front.report_to(report))
        with RawClient(server.address, 5) as busy, RawClient(server.address, 4) as reading:
            busy.connect("busy", clean=True)
            reading.connect("reading", clean=True)
            reading.subscribe("t/#")
            for number in range(20):
                busy.publish("t/1", b"x" * number, packet_id=1 + number)
            busy.send(*[Publish("t/2", b"y", 0)] * 30)
            busy.send(Publish("t/3", b"z", 2, packet_id=100))
            busy.expect(Pubrec)
            busy.send(Pubrel(100))
            busy.expect(Pubcomp)
            busy.send(Publish("t/3", b"kept", 1, retain=True, packet_id=101))
            busy.expect(Puback)
            busy.send(Publish("$timestone/t", b"refused", 1, packet_id=102))
            assert busy.expect(Puback).reason == Reason.NOT_AUTHORIZED
            reading.receive(52)
            wait_for(lambda: rows(server)["reading"]["deliveries_sent"] == 52)
            found = rows(server)
            assert found["busy"]["publishes_received"] == 53
            assert found["busy"]["deliveries_sent"] == found["reading"]["publishes_received"] == 0
            assert found["reading"]["subscriptions"] == 1
            assert (found["busy"]["mqtt"], found["reading"]["mqtt"]) == ("5", "3.1.1")
            counted, added = totals_and_sum(server, ended)
            assert counted == added and counted.publishes_received == counted.deliveries_sent + 1 == 53
        wait_for(lambda: server.status()["connections"] == 0)
        assert rows(server) == {}
        counted, added = totals_and_sum(server, ended)
        assert counted == added and added.publishes_received == 53 and added.publishes_refused == 1


def test_bytes_of_a_row_are_those_on_the_wire(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server, RawClient(server.address, 4) as client:
        client.connect("wire", clean=True)
        before = rows(server)["wire"]
        for number in range(5):
            client.publish("t", b"12345", packet_id=1 + number)  # 2 + 2 + 1 + 2 + 5 bytes, and 4 back
        wait_for(lambda: rows(server)["wire"]["bytes_sent"] == before["bytes_sent"] + 5 * 4)
        assert rows(server)["wire"]["bytes_received"] == before["bytes_received"] + 5 * 12


def test_list_of_clients_leaves_out_those_that_have_gone_before_their_turn(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server:
        clients = [RawClient(server.address, 4) for _ in range(5)]
        try:
            for number, client in enumerate(clients):
                client.connect(f"c{number}", clean=True)
            listed = server.call(server.front.clients)
            first = server.call(lambda: [next(listed), next(listed)])
            clients[3].close()
            wait_for(lambda: server.status()["connections"] == 4)
            rest = server.call(lambda: list(listed))
            assert [row["client"] for row in [*first, *rest]] == ["c0", "c1", "c2", "c4"]
        finally:
            for client in clients:
                client.close()


def test_row_of_a_client_that_does_not_acknowledge_shows_its_lag(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, inflight_count=2) as server, RawClient(server.address, 5) as slow:
        slow.connect("slow", clean=True)
        slow.subscribe("t")
        with RawClient(server.address, 4) as client:
            client.connect("c", clean=True)
            for number in range(10):
                client.publish("t", b"x", packet_id=1 + number)
        wait_for(lambda: rows(server)["slow"]["lag"] == 8)
        assert rows(server)["slow"]["in_flight"] == rows(server)["slow"]["in_flight_limit"] == 2


def test_disconnect_gives_the_reason_and_keeps_the_others(tmp_path: Path) -> None:
    with (
        mqtt_server(tmp_path) as server,
        RawClient(server.address, 5) as one,
        RawClient(server.address, 4) as other,
    ):
        one.connect("one", clean=True)
        other.connect("other", clean=True)
        (ended,) = server.call(lambda: server.front.disconnect("one", None))
        assert ended["client"] == "one" and ended["user"] is None
        assert one.expect(Disconnect).reason == Reason.ADMINISTRATIVE_ACTION
        assert set(rows(server)) == {"other"}
        assert server.call(lambda: server.front.disconnect("one", None)) == []
        assert server.call(lambda: server.front.disconnect("other", "somebody")) == []
