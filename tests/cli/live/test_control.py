"""`timestone control` and `kick --end-session` as processes, beside a server with real clients."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_front.codec.properties import Properties
from tests.cli.processes import timestone as command
from tests.support.control_server import controlled_server
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("controlled")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[MqttServer]:
    with controlled_server(folder / "data") as running:
        running.call(lambda: running.front.report_to(lambda event, facts: None))
        yield running


def printed(folder: Path, *words: str, code: int = 0) -> str:
    done = command(*words, cwd=folder)
    assert (done.returncode, done.stderr) == (code, ""), done
    return done.stdout


def test_log_is_rolled_and_the_store_verified(folder: Path, server: MqttServer) -> None:
    server.store.log("mqtt").append_many([b"x"] * 5)
    assert printed(folder, "control", "roll", "data", "mqtt") == "rolled mqtt-0 at offset 5\n"
    assert printed(folder, "control", "scrub", "data") == "every sealed segment is sound\n"
    found = json.loads(printed(folder, "control", "scrub", "data", "--json"))
    assert found["damaged_segments"] == 0


def test_client_is_watched(folder: Path, server: MqttServer) -> None:
    with RawClient(server.address, 5) as client:
        client.connect("pump")
        shown = printed(folder, "control", "watch", "data", "pump", "--for", "1s")
        assert shown == "watching 1 connection for 1 s\n"
    done = command("control", "watch", "data", "tank", cwd=folder)
    assert (done.returncode, done.stderr) == (1, "timestone control watch: no client 'tank' is connected\n")


def test_files_are_reloaded_and_the_level_of_the_log_changed(folder: Path, server: MqttServer) -> None:
    assert printed(folder, "control", "reload", "data") == "reloaded 1 part\n"
    usual = logging.getLogger().level
    shown = printed(folder, "control", "log-level", "data", "error", "--for", "1s")
    assert shown.startswith("level error for 1 s, then ")
    wait_for(lambda: logging.getLogger().level == usual)


def test_session_of_an_absent_client_is_ended(folder: Path, server: MqttServer) -> None:
    with RawClient(server.address, 5) as client:
        client.connect("away", clean=False, properties=Properties(session_expiry_interval=60))
        assert printed(folder, "kick", "data", "away", "--end-session").startswith("disconnected away at ")
        client.next_packet()
    done = command("kick", "data", "away", "--end-session", cwd=folder)
    assert (done.returncode, done.stderr) == (1, "timestone kick: client 'away' has no session\n")
