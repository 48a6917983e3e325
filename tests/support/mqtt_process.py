"""An MQTT front in a separate process, to be ended by SIGTERM or SIGKILL."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import TIMEOUT_S


class MqttProcess:
    """A front over the store in `path`. `address` is where clients connect; leaving the block kills it if necessary."""

    def __init__(self, path: Path, **settings: Any) -> None:
        values = json.dumps(settings, default=str)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.mqtt_server", str(path), values],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = ("127.0.0.1", int(self.process.stdout.readline()))

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
        assert self.process.stdout is not None
        self.process.stdout.close()
