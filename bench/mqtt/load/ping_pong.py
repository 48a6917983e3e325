"""The ping-pong scenario in one process: a message is published, and the next one follows when it was delivered.

Both connections are blocking sockets without anything around them, so that little but the server's part is measured."""

import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .channel import open_channel, subscribe
from .client_protocols import CLIENT_PROTOCOLS, PACKET_IDS
from .histogram import Histogram

_WARM_UP = 200
"""Messages that are not counted: the server learns the topic, and its code gets warm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PingPongJob:
    """Messages from one client to another."""

    scheme: str
    host: str
    port: int
    run: str
    payload_bytes: int
    qos: int
    messages: int
    rate: float | None = None
    """Messages a second; None: each as soon as the one before it has arrived."""

    def to_json(self) -> dict[str, Any]:
        """Return the job for its process."""
        return asdict(self)


class PingPong:
    """A publisher and a subscriber."""

    def __init__(self, job: PingPongJob) -> None:
        self._job = job
        self._protocol = protocol = CLIENT_PROTOCOLS[job.scheme]
        address, topic = (job.host, job.port), f"bench/{job.run}/ping"
        self._publisher = open_channel(protocol, address, f"{job.run}-publisher")
        self._subscriber = open_channel(protocol, address, f"{job.run}-subscriber")
        subscribe(self._subscriber, protocol, topic, job.qos)
        self._publication = protocol.publication(topic, job.payload_bytes, job.qos)
        self._delivery = protocol.delivery(topic, job.payload_bytes, job.qos)
        for number in range(_WARM_UP):
            self._exchange(number)

    def run(self, start_ns: int) -> dict[str, Any]:
        """Exchange all messages; return when, and how long each took to its delivery and to its PUBACK. Raises
        ConnectionError for anything else than the message."""
        job = self._job
        time.sleep(max(0, start_ns - time.monotonic_ns()) / 1e9)
        cpu_s, due_ns = time.process_time(), time.monotonic_ns()
        began_ns = due_ns
        delivered, acknowledged = np.zeros((2, job.messages), np.int64)
        for number in range(job.messages):
            if job.rate is not None:
                due_ns = began_ns + int(number / job.rate * 1e9)
                time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
            delivered[number], acknowledged[number] = self._exchange(_WARM_UP + number)
        latencies = Histogram(), Histogram()
        latencies[0].add(delivered)
        if job.qos:
            latencies[1].add(acknowledged)
        return {
            "started_ns": began_ns,
            "ended_ns": time.monotonic_ns(),
            "cpu_s": time.process_time() - cpu_s,
            "delivery_latency": latencies[0].to_json(),
            "ack_latency": latencies[1].to_json(),
        }

    def close(self) -> None:
        """Close both connections."""
        for channel in (self._publisher, self._subscriber):
            with channel, suppress(OSError):  # the server may have closed it
                channel.sendall(self._protocol.goodbye)

    def _exchange(self, number: int) -> tuple[int, int]:
        """Send one message and wait for it. Return nanoseconds until its delivery and until its acknowledgement."""
        job = self._job
        packet = self._publication.buffer(1)
        row = self._publication.packets(packet, 1)
        row["number"] = number
        if job.qos:
            row["id"] = number % PACKET_IDS + 1
        began_ns = time.monotonic_ns()
        self._publisher.sendall(packet)
        data = bytearray(self._received(self._subscriber, self._delivery.size_bytes))
        delivered_ns = acknowledged_ns = time.monotonic_ns()
        found = self._delivery.packets(data, 1)
        if int(found["number"][0]) != number:
            raise ConnectionError(
                f"invalid delivery: expected message {number}, got {int(found['number'][0])}"
            )
        if job.qos:
            self._received(self._publisher, self._protocol.puback_bytes)
            acknowledged_ns = time.monotonic_ns()
            self._subscriber.sendall(b"\x40\x02" + int(found["id"][0]).to_bytes(2, "big"))
        return delivered_ns - began_ns, acknowledged_ns - began_ns

    def _received(self, channel: socket.socket, size_bytes: int) -> bytes:
        noise = self._protocol.noise
        data = b""
        while len(data) < size_bytes:
            more = channel.recv(size_bytes - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
            if noise and data.startswith(noise):
                channel.sendall(b"PONG\r\n")
                data = data[len(noise) :]
        return data
