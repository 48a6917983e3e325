"""Lines of the log as they are written, with text that a client may send."""

import json
import logging
import sys
from pathlib import Path

import pytest

from mqtt_front.client import Client
from mqtt_front.codec.packets import MQTT_5, Connect
from tests.cli.processes import Running
from timestone_cli.server.log_lines import JsonLine, TextLine

HOSTILE = "a\nb\r\x1b[31m\u2028\x00"


def record_of(message: str, *arguments: object, failed: bool = False) -> logging.LogRecord:
    exc_info = None
    if failed:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            exc_info = sys.exc_info()
    return logging.LogRecord("timestone.mqtt", logging.WARNING, "", 0, message, arguments, exc_info)


@pytest.mark.parametrize("formatter", [TextLine(), JsonLine()])
def test_text_of_a_client_stays_in_its_line(formatter: logging.Formatter) -> None:
    line = formatter.format(record_of("client %s left", HOSTILE))
    assert line.splitlines() == [line]
    assert line.isprintable()


def test_a_json_line_has_the_traceback_in_a_field() -> None:
    line = JsonLine().format(record_of("failed", failed=True))
    document = json.loads(line)
    assert line.splitlines() == [line]
    assert (document["level"], document["source"], document["message"]) == (
        "warning",
        "timestone.mqtt",
        "failed",
    )
    assert "ValueError" in document["exception"]


@pytest.mark.slow
def test_serve_writes_one_json_object_a_line_without_a_password(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    options = ["--mqtt", "127.0.0.1:0", "--log-format", "json", "--ready-file", str(ready)]
    with Running("serve", *options, cwd=tmp_path) as running:
        host, _, port = running.wait_for_json(ready)["fronts"]["mqtt"]["address"].rpartition(":")
        connect = Connect("one", level=MQTT_5, user_name="ann", password=b"pass-word-1")
        with Client((host, int(port)), connect):
            pass
        code, _, log = running.stop()
    assert code == 0
    documents = [json.loads(line) for line in log.splitlines()]
    connected = next(one for one in documents if " connected: " in one["message"])
    assert connected["client"] == "one"
    assert connected["address"].startswith("127.0.0.1:")
    assert "pass-word-1" not in log
