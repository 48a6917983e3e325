"""A scrape of a real server that has had clients of several kinds."""

import socket
import urllib.request
from pathlib import Path
from typing import Any

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from mqtt_front.client import Client
from mqtt_front.codec.packets import MQTT_5, Connect, Publish, Request
from tests.cli.processes import Running
from tests.support.waiting import wait_for


def scrape(address: str, accept: str = "application/openmetrics-text") -> str:
    """Return what the page of metrics answers."""
    asked = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def families(text: str) -> list[Metric]:
    """Return the metrics of a page in OpenMetrics."""
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def server_with_traffic(directory: Path) -> tuple[Running, str]:
    """Start a server with a tier; one client publishes to itself and leaves, another is refused. Return the server and
    the address of its page."""
    ready = directory / "ready.json"
    options = ["--mqtt", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--ready-file", str(ready)]
    running = Running("serve", *options, "--tier", f"file://{directory}/bucket", cwd=directory)
    state: dict[str, Any] = running.wait_for_json(ready)
    host, _, port = state["fronts"]["mqtt"]["address"].rpartition(":")
    with Client((host, int(port)), Connect("one", level=MQTT_5)) as client:
        client.subscribe([Request("#", 1)])
        client.publish(Publish("site/1", b"x", 1))
        client.flush()
        assert client.receive(60)
    with socket.create_connection((host, int(port))) as wrong:
        wrong.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert wrong.recv(1) == b""
    page = str(state["metrics"])
    wait_for(lambda: "timestone_mqtt_connections 0" in scrape(page).splitlines())
    return running, page
