from pathlib import Path

import paho.mqtt.client as paho

import timestone
from mqtt_front.sessions.session_store import SPACE
from tests.support.console_client import Console
from tests.support.control_server import controlled_server
from tests.support.paho_client import PahoClient
from tests.support.waiting import wait_for
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


def keep_session(client: paho.Client) -> None:
    """Ask for a session that outlives the connection."""
    client._clean_session = False


def test_sessions_of_clients_that_are_away_are_paged_with_their_places(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data") as server, Console(tmp_path / "data") as console:
        for name in ("pump-1", "pump-2", "tank-1", "tank-2"):
            with PahoClient(name, prepare=keep_session) as client:
                client.connect(server.address)
                client.subscribe("t/#", 1)
                if name == "tank-2":
                    client.subscribe("other/+", 0)
        with PahoClient("writer") as writer, PahoClient("pump-2", prepare=keep_session) as back:
            writer.connect(server.address)
            for _ in range(5):
                writer.publish("t/1", b"x", 1)
            back.connect(server.address)
            wait_for(lambda: len(console.get("sessions")["sessions"]) == 3)
            first = console.get("sessions", limit=2)
            rest = console.get("sessions", limit=2, after=first["next"])
            rows = first["sessions"] + rest["sessions"]
            assert [(one["client"], one["subscriptions"], one["lag"]) for one in rows] == [
                ("pump-1", 1, 5),
                ("tank-1", 1, 5),
                ("tank-2", 2, 5),
            ]
            assert rest["next"] is None
            assert all(0 < one["away_s"] < 600 and one["expires_s"] is None for one in rows)
            assert [one["client"] for one in console.get("sessions", text="mp-")["sessions"]] == ["pump-1"]
            found = console.get("client", id="tank-2")
            assert (found["connection"], found["session"]["is_connected"]) == (None, False)
            places = {one["filter"]: (one["qos"], one["lag"]) for one in found["subscriptions"]}
            assert places == {"t/#": (1, 5), "other/+": (0, 5)}
            assert all(one["lag_s"] > 0 for one in found["subscriptions"])
    with Console(tmp_path / "data") as console:  # the same without a server
        assert len(console.get("sessions")["sessions"]) == 4
        assert console.get("client", id="tank-1")["subscriptions"][0]["lag"] == 5
        console.get("client", 503, id="pump-9")


def test_stored_session_that_cannot_be_decoded_is_left_out(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.documents.put_many(SPACE, {"broken": b"TSES?", "": b"{}", "\0group/mqtt/t": b"{}"})
    with Console(tmp_path / "data") as console:
        assert console.get("sessions") == {"sessions": [], "next": None, "is_complete": True}
        console.get("client", 503, id="broken")


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
