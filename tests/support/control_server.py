"""An MQTT front with a control socket over a store in this process, for tests of commands that ask a running server."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.mqtt_server import MqttServer, mqtt_server
from timestone_cli.control.service import ControlService


@contextlib.contextmanager
def controlled_server(path: Path, **settings: Any) -> Iterator[MqttServer]:
    """Run a front as `mqtt_server` does, with the control socket in `path`."""
    with mqtt_server(path, **settings) as server:
        service = ControlService(server.store, [server.front])
        server.run(service.start())
        try:
            yield server
        finally:
            server.run(service.stop())
