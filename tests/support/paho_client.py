"""The paho client with blocking calls: they return when they are answered."""

import queue
import threading
from collections.abc import Callable
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.support.waiting import TIMEOUT_S


class PahoClient:
    """A paho client with its thread. `connect` returns the reason code of the server as a number."""

    def __init__(
        self,
        client_id: str = "paho",
        *,
        level: int = 4,
        transport: str = "tcp",
        prepare: Callable[[paho.Client], None] | None = None,
    ) -> None:
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=MQTTProtocolVersion(level),
            transport=transport,  # type: ignore[arg-type]
        )
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.disconnected = threading.Event()
        self._answers: queue.Queue[Any] = queue.Queue()
        self.client.on_connect = lambda client, data, flags, reason, properties: self._answers.put(
            reason.value
        )
        self.client.on_subscribe = lambda client, data, mid, reasons, properties: self._answers.put(
            [reason.value for reason in reasons]
        )
        self.client.on_publish = lambda client, data, mid, reason, properties: self._answers.put(reason.value)
        self.client.on_message = lambda client, data, message: self.messages.put(message)
        self.client.on_disconnect = lambda *_: self.disconnected.set()
        if prepare is not None:
            prepare(self.client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def connect(self, address: tuple[str, int], user: str | None = None, password: str | None = None) -> int:
        """Connect; return 0 when it was accepted."""
        if user is not None:
            self.client.username_pw_set(user, password)
        self.client.connect(*address)
        self.client.loop_start()
        reason: int = self._answers.get(timeout=TIMEOUT_S)
        return reason

    def subscribe(self, topic_filter: str, qos: int = 1) -> int:
        """Return the reason code of the subscription."""
        self.client.subscribe(topic_filter, qos)
        (reason,) = self._answers.get(timeout=TIMEOUT_S)
        return int(reason)

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> int:
        """Return the reason code of the acknowledgement."""
        self.client.publish(topic, payload, qos)
        return int(self._answers.get(timeout=TIMEOUT_S))

    def receive(self) -> tuple[str, bytes]:
        """Return topic and payload of the next message."""
        message = self.messages.get(timeout=TIMEOUT_S)
        return message.topic, bytes(message.payload)
