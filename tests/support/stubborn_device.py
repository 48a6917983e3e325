"""A device that does not give up: it publishes with QoS 1, reconnects whenever necessary, and resends unacknowledged
messages."""

import threading
import time
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.plant import message


class StubbornDevice:
    """One client in a thread of paho's. Every message that it has published is acknowledged when `finish` returns."""

    def __init__(self, name: str, address: tuple[str, int], *, step_s: float, pause_s: float = 0.05) -> None:
        self.name = name
        self.published: list[bytes] = []
        self.acknowledged = 0
        self._step_s = step_s
        self._pause_s = pause_s
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
        self._client.reconnect_delay_set(min_delay=1, max_delay=1)
        self._client.max_inflight_messages_set(20)
        self._client.on_publish = self._on_publish
        self._client.connect(*address)
        self._client.loop_start()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float = 120) -> None:
        """Stop publishing, and wait for the last acknowledgement."""
        self._ended.set()
        self._thread.join()
        deadline = time.monotonic() + timeout_s
        while self.acknowledged < len(self.published):
            assert time.monotonic() < deadline, f"{self.name}: {self.acknowledged} of {len(self.published)}"
            time.sleep(0.05)
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self) -> None:
        while not self._ended.wait(self._pause_s):
            number = len(self.published)
            payload = self._payload(number)
            self.published.append(payload)
            # Without a connection it waits in the client's queue.
            self._client.publish(f"plant/{self.name}", payload, qos=1)

    def _on_publish(self, *_: Any) -> None:
        self.acknowledged += 1

    def _payload(self, number: int) -> bytes:
        special: dict[int, Any] = {40: b"broken " + self.name.encode(), 70: {"ts": "2199-01-01T00:00:00Z"}}
        chosen = special.get(number % 100)
        if isinstance(chosen, bytes):
            return chosen + str(number).encode()
        return message(self.name, number, at_s=number * self._step_s, **(chosen or {}))
