from pathlib import Path

import timestone
from tests.support.console_client import Console
from tests.support.control_server import controlled_server
from tests.support.paho_client import PahoClient
from timestone.metrics.records import (
    EVENT_TOPICS,
    EVENTS_LOG,
    HOUR,
    HOUR_TOPIC,
    TRAFFIC,
    TRAFFIC_TOPIC,
    encode_event,
)


def test_clients_are_searched_and_sorted(tmp_path: Path) -> None:
    with (
        controlled_server(tmp_path / "data") as server,
        Console(tmp_path / "data") as console,
        PahoClient("pump-1", level=5) as pump,
        PahoClient("tank-1") as tank,
        PahoClient("pump-2") as other,
    ):
        for client in (pump, tank, other):
            client.connect(server.address)
        pump.subscribe("t/#", 1)
        for _ in range(5):
            tank.publish("t/1", b"x", 1)
        found = console.get("clients", sort="publishes_received")
        assert (found["total"], found["clients"][0]["client"]) == (3, "tank-1")
        assert found["clients"][0]["publishes_received"] == 5
        assert console.get("clients", prefix="pump", limit=1)["next"] == 1
        assert console.get("clients", text="mp-2")["matched"] == 1
        assert console.get("clients", text="127.0.0.1")["matched"] == 3
        assert console.get("clients", held=True)["matched"] == 0
        assert console.get("clients", silent_for=3600)["matched"] == 0
        names = [row["client"] for row in console.get("clients", sort="client", descending=False)["clients"]]
        assert names == ["pump-1", "pump-2", "tank-1"]
        assert console.get("client", id="pump-1")["connection"]["subscriptions"] == 1
        console.get("client", 404, id="pump-9")


def test_events_of_a_client_are_found_among_others(tmp_path: Path) -> None:
    hostile = 'pump "\u202e\n'
    with timestone.open(tmp_path / "data") as store:
        log = store.log(EVENTS_LOG)
        for number in range(50):
            client = "pump" if number % 10 == 0 else hostile if number % 10 == 1 else f"other-{number}"
            payload = encode_event("connected", {"client": client}, time_us=number, node="n")
            log.append(payload, topic=EVENT_TOPICS["connected"])
        log.append(b"nonsense", topic=EVENT_TOPICS["connected"])
    with Console(tmp_path / "data") as console:
        found = console.get("client/events", id="pump", limit=3)
        assert [row["time_us"] for row in found["events"]] == [40, 30, 20]
        rest = console.get("client/events", id="pump", before=found["next"])
        assert [row["time_us"] for row in rest["events"]] == [10, 0] and rest["next"] is None
        assert len(console.get("client/events", id=hostile)["events"]) == 5


def test_traffic_and_hours_are_among_events_only_when_asked_for(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log(EVENTS_LOG)
        topics = {"connected": EVENT_TOPICS["connected"], TRAFFIC: TRAFFIC_TOPIC, HOUR: HOUR_TOPIC}
        for number, (event, topic) in enumerate(topics.items()):
            log.append(encode_event(event, {"client": "pump"}, time_us=number, node="n"), topic=topic)
    with Console(tmp_path / "data") as console:
        assert [one["event"] for one in console.get("events")["events"]] == ["connected"]
        assert [one["event"] for one in console.get("client/events", id="pump")["events"]] == ["connected"]
        for event in (TRAFFIC, HOUR):
            assert [one["event"] for one in console.get("events", event=event)["events"]] == [event]
