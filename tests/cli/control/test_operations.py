"""What an operator has a running server do, against a real store and a real front."""

import base64
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from mqtt_front.codec.packets import Disconnect
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.paho_client import PahoClient
from tests.support.waiting import wait_for
from timestone.errors import UnknownLog
from timestone.metrics.records import EVENTS_LOG, decode_event
from timestone_cli.control.actions import Actions
from timestone_cli.control.arguments import InvalidRequest
from timestone_cli.server.collection import Collection
from timestone_cli.server.figures import Figures


class Operated(NamedTuple):
    """A front and the requests of its control socket."""

    mqtt: MqttServer
    actions: Actions

    @property
    def address(self) -> tuple[str, int]:
        return self.mqtt.address


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A front whose events are recorded."""
    with mqtt_server(tmp_path_factory.mktemp("operated") / "data") as running:
        figures = Figures(Collection(running.store, [running.front]), 3_600_000)
        running.run(figures.start())
        actions = Actions(running.store, [running.front], figures.record_action)
        try:
            yield Operated(running, actions)
        finally:
            running.run(figures.stop())


def run(server: Operated, request: str, **arguments: Any) -> dict[str, Any]:
    async def result() -> dict[str, Any]:
        (found,) = [part async for part in server.actions.run({"request": request, **arguments})]
        return found

    return server.mqtt.run(result())


def events(server: Operated, kind: str) -> list[dict[str, Any]]:
    log = server.mqtt.store.log(EVENTS_LOG, create=False)
    found = [decode_event(one.payload) for one in log.read(log.start_offset, max_records=10_000)]
    return [one for one in found if one["event"] == kind]


def publish(server: Operated, topic: str, payload: bytes, **more: Any) -> dict[str, Any]:
    encoded = base64.b64encode(payload).decode()
    return run(server, "publish", front="mqtt", topic=topic, payload=encoded, **more)


def test_publish_is_delivered_and_its_payload_is_not_in_the_audit(server: Operated) -> None:
    with PahoClient("listens") as client:
        client.connect(server.address)
        client.subscribe("operated/a")
        assert publish(server, "operated/a", b"secret-value") == {"payload_bytes": 12}
        assert client.receive() == ("operated/a", b"secret-value")
    begun, done = [one for one in events(server, "action") if one["action"] == "publish"]
    assert (begun["state"], done["state"]) == ("begun", "done")
    assert begun["arguments"] == {"front": "mqtt", "topic": "operated/a", "payload_bytes": 12}


def test_retained_message_is_published_found_and_deleted(server: Operated) -> None:
    publish(server, "operated/kept", b"21.5", retain=True)
    found = run(server, "retained", front="mqtt", topic="operated/kept")["retained"]
    assert (found["log"], found["payload_bytes"]) == ("mqtt", 4)
    assert run(server, "delete_retained", front="mqtt", topic="operated/kept") == found
    assert run(server, "retained", front="mqtt", topic="operated/kept") == {"retained": None}
    with pytest.raises(InvalidRequest, match="has no retained message"):
        run(server, "delete_retained", front="mqtt", topic="operated/kept")


def test_session_of_a_client_ends_and_one_without_is_refused(server: Operated) -> None:
    with RawClient(server.address, 5) as client:
        client.connect("leaves")
        found = run(server, "end_session", front="mqtt", client="leaves")
        assert [one["client"] for one in found["disconnected"]] == ["leaves"]
        client.expect(Disconnect)
    with pytest.raises(InvalidRequest, match="has no session"):
        run(server, "end_session", front="mqtt", client="leaves")


@pytest.mark.slow
def test_watched_packets_are_events(server: Operated) -> None:
    with RawClient(server.address, 5) as client:
        client.connect("watched")
        (row,) = run(server, "watch", front="mqtt", client="watched", duration_s=1)["watched"]
        assert row["client"] == "watched"
        client.expect_silence()
        wait_for(lambda: events(server, "watched"))
        (event,) = events(server, "watched")
        assert [one["kind"] for one in event["packets"]] == ["PINGREQ", "PINGRESP"]


def test_roll_seals_the_growing_segment(server: Operated) -> None:
    log = server.mqtt.store.log("rolled")
    log.append_many([b"x"] * 5)
    before = len(log.segment_list.segments)
    assert run(server, "roll", log="rolled")["end_offset"] == 5
    log.append(b"y")
    wait_for(lambda: len(log.segment_list.segments) > before)


def test_scrub_reads_the_store_and_finds_nothing(server: Operated) -> None:
    assert run(server, "scrub") == {"damaged_segments": 0}


def test_reload_reads_the_files_of_the_front(server: Operated) -> None:
    assert run(server, "reload") == {"reloaded": 1}


def test_reload_names_the_front_that_keeps_its_files_and_reloads_the_others(server: Operated) -> None:
    class Front:
        def __init__(self, name: str, error: Exception | None) -> None:
            self.name, self.error, self.count = name, error, 0

        def status(self) -> dict[str, Any]:
            return {}

        async def reload(self) -> None:
            self.count += 1
            if self.error is not None:
                raise self.error

    fronts = [
        Front("one", ValueError("acl:1: nonsense")),
        Front("two", None),
        Front("three", OSError("gone")),
    ]
    with pytest.raises(
        InvalidRequest,
        match=r"^one: nothing was reloaded: acl:1: nonsense; three: nothing was reloaded: gone$",
    ):
        run(server._replace(actions=Actions(server.mqtt.store, fronts)), "reload")
    assert [front.count for front in fronts] == [1, 1, 1]


@pytest.mark.slow
def test_log_level_returns_to_the_usual_one(server: Operated) -> None:
    usual = logging.getLogger().level
    found = run(server, "log_level", level="debug", duration_s=1)
    assert found["usual"] == logging.getLevelName(usual).lower()
    assert logging.getLogger().level == logging.DEBUG
    wait_for(lambda: logging.getLogger().level == usual)


@pytest.mark.parametrize(
    ("request_", "arguments"),
    [
        ("publish", {"front": "mqtt", "topic": "a/#", "payload": ""}),
        ("publish", {"front": "mqtt", "topic": "$SYS/x", "payload": ""}),
        ("publish", {"front": "mqtt", "topic": "$timestone/x", "payload": ""}),
        ("publish", {"front": "mqtt", "topic": "a", "payload": "%%"}),
        ("publish", {"front": "mqtt", "topic": "a", "payload": "", "qos": 3}),
        ("publish", {"front": "mqtt", "topic": "a", "payload": "", "retain": 1}),
        ("publish", {"front": "http", "topic": "a", "payload": ""}),
        ("watch", {"front": "mqtt", "client": "absent"}),
        ("watch", {"front": "mqtt", "client": "absent", "duration_s": 0}),
        ("watch", {"front": "mqtt", "client": "absent", "duration_s": 3601}),
        ("roll", {"log": "../mqtt"}),
        ("roll", {"log": "absent"}),
        ("log_level", {"level": "trace"}),
    ],
)
def test_wrong_operation_is_refused_and_recorded_as_failed(
    server: Operated, request_: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises((InvalidRequest, UnknownLog)):
        run(server, request_, **arguments)
    newest = [one for one in events(server, "action") if one["action"] == request_][-1]
    assert newest["state"] == "failed"
