"""An MQTT front in a separate process, to be ended by SIGTERM or SIGKILL: a fork of the warm one."""

import json
import os
import signal
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import TIMEOUT_S
from tests.support.warm_command import started


class MqttProcess:
    """A front over the store in `path`. `address` is where clients connect; leaving the block kills it if necessary."""

    def __init__(self, path: Path, **settings: Any) -> None:
        words = ["tests.support.mqtt_server", str(path), json.dumps(settings, default=str)]
        output, its_output = os.pipe()
        with open(os.devnull, "r+b") as nothing, open(its_output, "wb") as stdout:
            self.process = started(words, [nothing.fileno(), stdout.fileno(), nothing.fileno()])
        with open(output) as lines:
            self.address = ("127.0.0.1", int(lines.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL, and wait until it is gone. A second call does nothing."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends it, and wait until it is gone."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.wait(TIMEOUT_S)
