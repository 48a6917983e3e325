"""`timestone sub` as a process, against a server that runs."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtt_front.client import Client
from mqtt_front.codec.packets import Connect, Publish
from mqtt_front.codec.properties import Properties
from tests.cli.processes import COMMAND, Running
from tests.cli.processes import timestone as command
from tests.support.mqtt_process import MqttProcess
from tests.support.terminal import OnTerminal


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with MqttProcess(tmp_path_factory.mktemp("sub") / "data") as running:
        yield str(running.address[1])


def publish(port: str, *messages: Publish) -> None:
    with Client(("127.0.0.1", int(port)), Connect(level=5)) as client:
        for message in messages:
            client.publish(message)
        client.flush()


@pytest.mark.slow
def test_messages_are_printed_as_they_arrive(port: str, tmp_path: Path) -> None:
    """The retained one says when the subscription is there."""
    publish(port, Publish("live/a", b"retained", 1, retain=True))
    with Running("sub", "-p", port, "-t", "live/#", "-v", "-C", "3", cwd=tmp_path) as running:
        assert running.line() == "live/a retained"
        publish(
            port, Publish("live/b", b"one\ntwo", 1), Publish("elsewhere", b"x", 1), Publish("live/a", b"", 1)
        )
        assert [running.line() for _ in range(3)] == ["live/b one", "two", "live/a "]
        assert running.process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", ["311", "5"])
def test_retained_messages_can_be_left_out(port: str, version: str) -> None:
    publish(port, Publish("kept", b"retained", 1, retain=True))
    words = ("sub", "-p", port, "-t", "kept", "-V", version, "-W", "0.5")
    assert command(*words).stdout == "retained\n"
    done = command(*words, "-R")
    assert (done.returncode, done.stdout) == (0, "")


def test_json_has_topic_headers_and_value(port: str) -> None:
    properties = Properties(content_type="text/plain", user_properties=(("unit", "°C"),))
    publish(
        port,
        Publish("json/a", b"21", 1, properties=properties),
        Publish("json/b", b"\xff", 1),
    )
    words = ("sub", "-p", port, "-q", "1", "-W", "60", "--json")
    replayed = command(*words, "-t", "$stream/mqtt/@earliest/json/#", "-C", "2", "-V", "311")
    assert replayed.returncode == 0, replayed.stderr
    first, second = map(json.loads, replayed.stdout.splitlines())
    assert (first["topic"], first["qos"], first["retain"], first["value"]) == ("json/a", 1, False, "21")
    assert second["value_base64"] == "/w=="
    done = command(*words, "-t", "$stream/mqtt/@earliest/json/a", "-C", "1")
    headers = [(one["kind"], one.get("name"), one["value"]) for one in json.loads(done.stdout)["headers"]]
    assert ("content_type", None, "text/plain") in headers
    assert ("user", "unit", "°C") in headers


@pytest.mark.slow
def test_session_is_kept_for_the_next_time(port: str) -> None:
    words = ("sub", "-p", port, "-i", "desk", "-c", "-q", "1", "-t", "away/#", "-W", "0.5")
    assert command(*words).stdout == ""
    publish(port, *(Publish("away/a", b"%d" % number, 1) for number in range(3)))
    assert command(*words, "-C", "2").stdout == "0\n1\n", "the third one is not acknowledged"
    assert command(*words).stdout == "2\n"


def test_too_few_messages_in_time_are_a_failure(port: str) -> None:
    done = command("sub", "-p", port, "-t", "never", "-C", "2", "-W", "200ms")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "timestone sub: 0 of 2 messages came within the time of -W\n"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_it_between_two_messages(port: str, tmp_path: Path, number: int, code: int) -> None:
    publish(port, Publish("signal", b"x", 1, retain=True))
    with Running("sub", "-p", port, "-t", "signal", cwd=tmp_path) as running:
        assert running.line() == "x"
        assert running.stop(number) == (code, "", "")


def test_terminal_is_not_steered_by_a_message(port: str, tmp_path: Path) -> None:
    publish(port, Publish("steer", b"\x1b[2Jx", 1, retain=True))
    with OnTerminal([*COMMAND, "sub", "-p", port, "-t", "steer", "-C", "1"], tmp_path) as terminal:
        terminal.wait_for("\\x1b[2Jx")


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["-c"], 64, "-c needs -i: a session belongs to a client id"),
        (["-C", "0"], 64, "invalid value for '-C' / '--count'"),
        (["-t", "a/#/b"], 64, "invalid value for '-t' / '--topic': topic filter 'a/#/b'"),
        (["-p", "1"], 1, "127.0.0.1:1: Connection refused"),
    ],
)
def test_what_cannot_be_subscribed_is_one_line(
    port: str, words: list[str], code: int, complaint: str
) -> None:
    done = command("sub", "-p", port, "-t", "t", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"timestone sub: {complaint}")
    assert done.stderr.count("\n") == 1
