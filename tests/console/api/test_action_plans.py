import logging
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_front.codec.properties import Properties
from tests.support.console_client import Console
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import wait_for
from timestone.config import LogConfig
from timestone.metrics.records import EVENTS_LOG
from timestone.reading.named_readers import ReaderId
from timestone.reading.retention_hold import Pin
from timestone_cli.control.service import ControlService
from timestone_cli.live.control import watch
from timestone_cli.live.kick import command as kick
from timestone_cli.server.collection import Collection
from timestone_cli.server.figures import Figures

HOSTILE = "pump'; touch gone; $(touch gone) `touch gone`\n\u202e"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MqttServer]:
    """A front with the control socket, and the log of events in which actions are recorded."""
    usual = logging.getLogger().level
    with mqtt_server(tmp_path / "data") as running:
        figures = Figures(Collection(running.store, [running.front]), 3_600_000)
        service = ControlService(running.store, [running.front], figures.record_action)
        running.run(figures.start())
        running.run(service.start())
        try:
            yield running
        finally:
            running.run(service.stop())
            running.run(figures.stop())
        assert logging.getLogger().level == usual


def recorded(console: Console) -> list[tuple[str, str, str | None]]:
    found = console.get("actions")["events"]
    return [
        (one["facts"]["action"], one["facts"]["state"], one["facts"]["by"].get("via")) for one in found[::-1]
    ]


def test_disconnect_states_its_effect_first_and_is_recorded_before_and_after(
    server: MqttServer, tmp_path: Path
) -> None:
    with RawClient(server.address) as client, Console(tmp_path / "data", actions=True) as console:
        client.connect("pump")
        body = {"action": "disconnect", "client": "pump"}
        planned = console.post("actions", {**body, "preview": True})
        assert planned["text"].startswith("ends 1 connection of client 'pump' with 0 messages in flight")
        assert planned["result"] == {} and recorded(console) == []
        done = console.post("actions", body)
        assert [one["client"] for one in done["result"]["disconnected"]] == ["pump"]
        assert recorded(console) == [("disconnect", "begun", "console"), ("disconnect", "done", "console")]
        console.sources.clients._look = None
        console.post("actions", body, 404)


def test_readers_are_moved_released_and_forgotten(server: MqttServer, tmp_path: Path) -> None:
    log = server.store.log("mqtt")
    log.append_many([b"x"] * 10)
    bill = ReaderId("mqtt", 0, "bill")
    server.store.commit_readers({bill: 3}, pin=Pin(max_bytes=1000))
    with Console(tmp_path / "data", actions=True) as console:
        body = {"log": "mqtt", "name": "bill"}
        moved = console.post("actions", {**body, "action": "move", "offset": 7})
        assert "moves from offset 3 to 7 and skips 4 offsets" in moved["text"]
        found = server.store.committed(bill)
        assert found is not None and (found.offset, found.pin) == (7, Pin(max_bytes=1000))
        console.post("actions", {**body, "action": "move", "offset": 11}, 400)
        assert "its pin ends" in console.post("actions", {**body, "action": "release"})["text"]
        found = server.store.committed(bill)
        assert found is not None and found.pin is None
        console.post("actions", {**body, "action": "forget"})
        assert server.store.committed(bill) is None
        console.post("actions", {**body, "action": "forget"}, 404)
        assert len(recorded(console)) == 6


def test_configure_changes_a_log_and_says_what_retention_may_delete(
    server: MqttServer, tmp_path: Path
) -> None:
    log = server.store.log("old", config=LogConfig(segment_entries=10))
    for _ in range(5):
        log.append_many([b"x"] * 10)
    log.roll()
    with Console(tmp_path / "data", actions=True) as console:
        body = {"action": "configure", "log": "old", "settings": {"retention_bytes": 1}}
        planned = console.post("actions", {**body, "preview": True})
        assert "retention_bytes from 0 to 1" in planned["text"] and re.search(
            r"may delete [1-5]0 records in [1-5] segments", planned["text"]
        )
        assert log.config.retention_bytes == 0
        console.post("actions", {"action": "configure", "log": "old", "settings": {"colour": 1}}, 400)
        console.post("actions", {"action": "configure", "log": "old", "settings": {"retention_ms": 7}})
        assert log.config.retention_ms == 7
        assert [one[1] for one in recorded(console)] == ["begun", "done"]


@pytest.mark.slow
def test_messages_are_published_again_and_deleted_with_their_effect_in_numbers(
    server: MqttServer, tmp_path: Path
) -> None:
    with RawClient(server.address, 5) as client, Console(tmp_path / "data", actions=True) as console:
        client.connect("listens")
        client.subscribe("a/b")
        body = {"action": "publish", "topic": "a/b", "value": "21.5", "retain": True}
        planned = console.post("actions", {**body, "preview": True})
        assert planned["text"] == (
            "publishes 4 bytes to 'a/b' at QoS 1 to all its subscribers, and retains them for later ones"
        )
        assert planned["confirm"] is None
        console.post("actions", body)
        again = console.post("actions", {"action": "publish", "topic": "a/b", "log": "mqtt", "offset": 0})
        assert again["text"].startswith("publishes 4 bytes to 'a/b'")
        assert [one.payload for one in client.receive(2)] == [b"21.5", b"21.5"]
        console.post("actions", {"action": "publish", "topic": "a/b", "log": "mqtt", "offset": 99}, 404)
        console.post("actions", {"action": "publish", "topic": "a/#", "value": ""}, 422)
        console.post("actions", {"action": "publish", "topic": "a/b"}, 400)
        console.post("actions", {"action": "publish", "topic": "a/b", "value": "x" * 50_000}, 413)
        wait_for(lambda: console.view.document("mqtt.retained", "a/b") is not None)
        assert console.get("topics/value", log="mqtt", topic="a/b")["is_retained"] is True
        gone = console.post("actions", {"action": "delete_retained", "topic": "a/b"})
        assert gone["confirm"] == "a/b" and "with 4 bytes" in gone["text"]
        console.post("actions", {"action": "delete_retained", "topic": "a/b"}, 404)
        wait_for(lambda: console.view.document("mqtt.retained", "a/b") is None)
        assert console.get("topics/value", log="mqtt", topic="a/b")["is_retained"] is False


def test_client_is_watched_and_its_session_ended(server: MqttServer, tmp_path: Path) -> None:
    with RawClient(server.address, 5) as client, Console(tmp_path / "data", actions=True) as console:
        client.connect("pump", clean=False, properties=Properties(session_expiry_interval=60))
        client.subscribe("a/b")
        watched = console.post("actions", {"action": "watch", "client": "pump", "duration_s": 60})
        assert "of 1 connection of client 'pump' for 60 s, at most 200 a second" in watched["text"]
        ended = console.post("actions", {"action": "end_session", "client": "pump", "preview": True})
        assert "1 connection of client 'pump' with 1 subscriptions and 0 messages in flight" in ended["text"]
        assert ended["confirm"] == "pump"
    wait_for(lambda: not server.call(lambda: server.front.client("pump", None)))
    with Console(tmp_path / "data", actions=True) as console:
        ended = console.post("actions", {"action": "end_session", "client": "pump"})
        assert ", which is away" in ended["text"] and ended["result"]["was_away"]
        console.post("actions", {"action": "end_session", "client": "pump"}, 422)
        console.post("actions", {"action": "watch", "client": "pump"}, 404)


def test_actions_of_the_server_say_what_they_do(server: MqttServer, tmp_path: Path) -> None:
    server.store.log("mqtt").append_many([b"x"] * 10)
    with Console(tmp_path / "data", actions=True) as console:
        rolled = console.post("actions", {"action": "roll", "log": "mqtt"})
        assert "the growing segment of mqtt-0 with 10 records" in rolled["text"]
        assert rolled["result"]["end_offset"] == 10
        assert console.post("actions", {"action": "scrub"})["result"] == {"damaged_segments": 0}
        assert console.post("actions", {"action": "reload"})["result"] == {"reloaded": 1}
        body = {"action": "log_level", "level": "error", "duration_s": 60}
        assert "for 60 s" in console.post("actions", body)["text"]
        console.post("actions", {"action": "log_level"}, 400)
        console.post("actions", {"action": "roll"}, 400)
    with Console(tmp_path / "data") as console:
        for name in ("publish", "roll", "scrub", "reload", "log_level", "watch", "end_session"):
            assert console.post("actions", {"action": name}, 403)["type"].endswith("actions-off")


def test_action_that_fails_is_recorded_as_failed(server: MqttServer, tmp_path: Path) -> None:
    with Console(tmp_path / "data", actions=True) as console:
        server.store.log("mqtt")
        refused = console.sources.server
        with pytest.raises(Exception, match="unknown reader"):
            refused.call("forget", by={"via": "console"}, log="mqtt", partition=0, reader="x")
        assert [one[1] for one in recorded(console)] == ["begun", "failed"]


def test_action_that_cannot_be_recorded_is_not_done(tmp_path: Path) -> None:
    with mqtt_server(tmp_path / "data") as running:
        service = ControlService(running.store, [running.front])
        running.run(service.start())
        with RawClient(running.address) as client, Console(tmp_path / "data", actions=True) as console:
            client.connect("pump")
            found = console.post("actions", {"action": "disconnect", "client": "pump"}, 422)
            assert "could not be recorded" in found["detail"]
            client.subscribe("t")  # still connected
            assert (EVENTS_LOG, 0) not in running.store.log_names(server=True)
        running.run(service.stop())


def test_command_of_a_hostile_client_does_nothing_else_in_a_shell(server: MqttServer, tmp_path: Path) -> None:
    with RawClient(server.address) as client, Console(tmp_path / "data", actions=True) as console:
        client.connect(HOSTILE.replace("\n", ""))
        body = {"action": "disconnect", "client": HOSTILE.replace("\n", ""), "preview": True}
        command = console.post("actions", body)["command"]
        assert shlex.split(command)[-1] == HOSTILE.replace("\n", "")
        words = command.replace("timestone", "printf '%s|'", 1)
        printed = subprocess.run(["sh", "-c", words], cwd=tmp_path, stdout=subprocess.PIPE, check=True).stdout
        assert printed.decode().split("|")[-2] == HOSTILE.replace("\n", "")
        assert not (tmp_path / "gone").exists()


def test_client_whose_id_looks_like_an_option_is_an_argument_of_the_command(
    server: MqttServer, tmp_path: Path
) -> None:
    with RawClient(server.address) as client, Console(tmp_path / "data", actions=True) as console:
        client.connect("--end-session")
        for action, of in (("disconnect", kick), ("end_session", kick), ("watch", watch)):
            body = {"action": action, "client": "--end-session", "preview": True}
            words = shlex.split(console.post("actions", body)["command"])
            skipped = 2 if of is kick else 3  # timestone kick, timestone control watch
            found = of.make_context(action, words[skipped:]).params
            assert found["client"] == "--end-session"
            assert found.get("end_session", False) == (action == "end_session")
