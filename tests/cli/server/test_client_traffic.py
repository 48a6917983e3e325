"""Connections in trouble are recorded first, then the busiest, and those left out have their turn later."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mqtt_front.client import Client
from mqtt_front.codec.packets import MQTT_5, Connect, Publish
from tests.support.mqtt_server import mqtt_server
from timestone_cli.server.client_traffic import BEHIND, COUNTS, ClientTraffic


class Listed:
    """Clients by connection number, in pages as of a front."""

    name: ClassVar[str] = "mqtt"

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}

    def set(self, number: int, packets: int, **figures: Any) -> None:
        row: dict[str, Any] = dict.fromkeys(COUNTS, 0)
        row |= {"connection": number, "packets_received": packets}
        row |= dict.fromkeys(("client", "user", "address", "transport", "mqtt"), "x")
        row |= dict.fromkeys(("connected_us", "idle_s", "lag", "unsent_bytes", "submitted_bytes"), 0)
        self.rows[number] = row | {"held": []} | figures

    def clients(self) -> Iterator[dict[str, Any]]:
        return iter([row for _, row in sorted(self.rows.items())])

    def disconnect(self, client: str, user: str | None) -> Sequence[dict[str, Any]]:
        raise NotImplementedError


def recorded(traffic: ClientTraffic, front: Listed) -> list[tuple[int, list[str], int]]:
    rows = asyncio.run(traffic.rows([front]))
    return [(row["connection"], row["trouble"], row["left_out"]) for row in rows]


def test_trouble_goes_before_traffic_and_the_rest_has_its_turn_later() -> None:
    front, traffic = Listed(), ClientTraffic(2)
    for number in range(1, 61):
        front.set(number, packets=number)
    front.set(3, packets=3, held=["unread"], unsent_bytes=9)
    assert recorded(traffic, front) == [(3, ["held", "unsent"], 58), (60, [], 58)]
    front.set(3, packets=3)
    assert recorded(traffic, front) == [(59, [], 56), (58, [], 56)]


def test_a_connection_that_did_not_move_is_left_out_when_it_is_well() -> None:
    front, traffic = Listed(), ClientTraffic(10)
    front.set(1, packets=2)
    front.set(2, packets=2, lag=BEHIND + 1)
    assert len(recorded(traffic, front)) == 2
    assert recorded(traffic, front) == [(2, ["behind"], 0)]
    front.set(1, packets=3, publishes_refused=1)
    del front.rows[2]
    assert recorded(traffic, front) == [(1, ["refused"], 0)]
    assert recorded(traffic, front) == []


def test_rows_have_the_counts_of_real_connections(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server, Client(server.address, Connect("one", level=MQTT_5)) as client:
        client.publish(Publish("t", b"x", 1))
        client.flush()
        (row,) = server.run(ClientTraffic(5).rows([server.front]))
    counts = row["counts"]
    assert (row["client"], counts["publishes_received"], counts["packets_sent"]) == ("one", 1, 2)
