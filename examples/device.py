"""One simulated device: a real MQTT client that publishes its telemetry with QoS 1 and counts what is acknowledged.

Knows nothing of other devices or of processes. Once connected it never blocks: its owner calls `on_readable`,
`on_writable` and `on_second`.
"""

import json
import math
import selectors
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

WINDOW_COUNT = 50
"""Messages a device sends ahead of their acknowledgements; a server that flushes in groups answers them in groups."""
START = datetime(2026, 1, 1, tzinfo=UTC)
"""Telemetry time is simulated, a second a message: the report has whole minutes however fast the machine is."""


class DeviceError(Exception):
    """The server refused something, or the connection ended early."""


class Device:
    """Publishes `count` messages, a window of them ahead; `published` and `acknowledged` say how far it is."""

    def __init__(self, number: int, count: int) -> None:
        self.name = f"device-{number:04d}"
        self.topic = f"site/{number % 10}/{self.name}/telemetry"
        self.count = count
        self.published = 0
        self.acknowledged = 0
        self._number = number
        self._outstanding: set[int] = set()
        self._connected = False
        self._error: str | None = None
        # Both protocol versions are in the field, so both are in the demo.
        version = MQTTProtocolVersion.MQTTv5 if number % 2 else MQTTProtocolVersion.MQTTv311
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=self.name, protocol=version)
        self.client.max_inflight_messages = WINDOW_COUNT
        self.client.on_connect = self._on_connect
        self.client.on_publish = self._on_publish
        self.client.on_disconnect = self._on_disconnect

    @property
    def done(self) -> bool:
        """Is every message acknowledged?"""
        return self.acknowledged == self.count

    @property
    def connection(self) -> socket.socket:
        """The open socket, for the owner's `select`."""
        connection = self.client.socket()
        if not isinstance(connection, socket.socket):
            raise DeviceError(f"{self.name}: not connected")
        return connection

    @property
    def wanted_events(self) -> int:
        """What the owner should wait for on the socket."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self.client.want_write() else 0)

    def connect(self, host: str, port: int) -> None:
        """Open the connection; the server's answer arrives later, at `on_readable`."""
        self.client.connect(host, port, keepalive=60)

    def on_readable(self) -> None:
        """Take in what the server sent, then send as many messages as there is room for."""
        self._check(self.client.loop_read())
        self._publish()

    def on_writable(self) -> None:
        """Send what the socket had no room for."""
        self._check(self.client.loop_write())

    def on_second(self) -> None:
        """Keep the connection alive."""
        self._check(self.client.loop_misc())

    def _publish(self) -> None:
        while self._connected and self.published < self.count and len(self._outstanding) < WINDOW_COUNT:
            sent = self.client.publish(self.topic, self._message(self.published), qos=1)
            self._check(sent.rc)
            self._outstanding.add(sent.mid)
            self.published += 1

    def _message(self, sequence: int) -> str:
        at = START + timedelta(seconds=sequence)
        swing = math.sin(sequence / 60 + self._number)
        return json.dumps(
            {
                "device": self.name,
                "seq": sequence,
                "ts": at.isoformat(timespec="milliseconds"),
                "temperature": round(20 + 5 * swing, 2),
                "humidity": round(50 - 10 * swing, 1),
            }
        )

    def _check(self, code: MQTTErrorCode) -> None:
        if self._error is None and code != MQTTErrorCode.MQTT_ERR_SUCCESS and not self.done:
            self._error = code.name
        if self._error is not None:
            raise DeviceError(
                f"{self.name}: {self._error} after {self.acknowledged} of {self.count} acknowledgements"
            )

    def _on_connect(
        self,
        client: Client,
        data: Any,
        flags: ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        self._connected = not reason.is_failure
        if reason.is_failure:
            self._error = f"not let in: {reason}"

    def _on_publish(
        self, client: Client, data: Any, mid: int, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            self._error = f"message refused: {reason}"
        elif mid in self._outstanding:
            self._outstanding.remove(mid)
            self.acknowledged += 1
        else:
            self._error = f"acknowledgement of {mid}, which is not in flight"

    def _on_disconnect(
        self,
        client: Client,
        data: Any,
        flags: DisconnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        self._connected = False
        if not self.done:
            self._error = f"disconnected: {reason}"
