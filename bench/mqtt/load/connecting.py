"""The connection scenario in one process: many clients connect at a rate, subscribe, and then do nothing."""

import select
import socket
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .channel import open_channel
from .client_protocols import CLIENT_PROTOCOLS, publish
from .histogram import Histogram

_EVENTS = 256
_IN_PROGRESS = 256
"""Connections that wait for the server at a time; more would only wait in its backlog."""
_STALL_S = 20.0
_PAYLOAD = b"wake up"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectJob:
    """Number and rate of the clients. Each subscribes to a different topic."""

    scheme: str
    host: str
    port: int
    run: str
    clients: int
    rate: float | None = None

    def topic(self, client: int) -> str:
        """Return the topic that a client subscribes to."""
        return f"bench/{self.run}/{client:06}"

    def to_json(self) -> dict[str, Any]:
        """Return the job for its process."""
        return asdict(self)


class Connecting:
    """Clients that connect and then idle."""

    def __init__(self, job: ConnectJob) -> None:
        self._job = job
        self._protocol = CLIENT_PROTOCOLS[job.scheme]
        self._poller = select.epoll()
        self._due_ns: dict[int, int] = {}
        self._answers: dict[int, bytes] = {}
        self._latencies = Histogram()
        self._clients: dict[int, tuple[int, socket.socket]] = {}
        """Number and channel of those that are not refused, by descriptor."""

    def run(self, start_ns: int) -> dict[str, Any]:
        """Connect and subscribe all clients; return the times. A refused client counts as failed."""
        job = self._job
        time.sleep(max(0, start_ns - time.monotonic_ns()) / 1e9)
        cpu_s, number = time.process_time(), 0
        progress_ns = time.monotonic_ns()
        connected: deque[int] = deque()
        while number < job.clients or self._due_ns:
            now = time.monotonic_ns()
            allowed = job.clients if job.rate is None else int((now - start_ns) / 1e9 * job.rate) + 1
            while number < min(job.clients, allowed) and len(self._due_ns) < _IN_PROGRESS:
                due = now if job.rate is None else start_ns + int(number / job.rate * 1e9)
                self._begin(number, due)
                number += 1
            for fd, _ in self._poller.poll(0.001 if number < job.clients else 0.1, _EVENTS):
                progress_ns = time.monotonic_ns()
                if self._answered(fd):
                    connected.append(fd)
            if time.monotonic_ns() - progress_ns > _STALL_S * 1e9:
                break
        ended_ns = time.monotonic_ns()
        return {
            "started_ns": start_ns,
            "ended_ns": ended_ns,
            "connected": len(connected),
            "failed": job.clients - len(connected),
            "cpu_s": time.process_time() - cpu_s,
            "latency": self._latencies.to_json(),
        }

    def _begin(self, number: int, due_ns: int) -> None:
        channel = socket.socket()
        try:
            # Blocking: a server nearby accepts at once, or its backlog is full and all others have to wait too.
            channel.settimeout(_STALL_S)
            channel.connect((self._job.host, self._job.port))
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client_id = f"bench-{self._job.run}-{number}"
            channel.send(
                self._protocol.hello(client_id) + self._protocol.subscribe(self._job.topic(number), 1)
            )
        except OSError:
            channel.close()
            return
        channel.setblocking(False)
        fd = channel.fileno()
        self._clients[fd], self._due_ns[fd], self._answers[fd] = (number, channel), due_ns, b""
        self._poller.register(fd, select.EPOLLIN)

    def _answered(self, fd: int) -> bool:
        """Read the server's answers; return whether the client is connected and subscribed."""
        _, channel = self._clients[fd]
        try:
            data = channel.recv(4096)
            self._answers[fd] += data
            is_refused = not data
            if data and not self._is_in(self._answers[fd]):
                return False
        except (OSError, ValueError):
            is_refused = True
        self._poller.unregister(fd)
        due_ns = self._due_ns.pop(fd)
        if is_refused:
            del self._clients[fd]
            channel.close()
            return False
        self._latencies.add(np.array([time.monotonic_ns() - due_ns]))
        return True

    def _is_in(self, answer: bytes) -> bool:
        # Each answer of MQTT has its length; NATS answers both with PONG.
        if self._job.scheme == "nats":
            return answer.count(b"PONG\r\n") == 2
        return (
            len(answer) >= 9
            and self._protocol.is_welcome(answer[:4])
            and self._protocol.is_subscribed(answer[4:])
        )

    def wake(self, count: int) -> dict[str, Any]:
        """Publish once to each of `count` of the topics, one after the other; return how long until its subscriber has
        it."""
        latencies, lost = Histogram(), 0
        channel = open_channel(
            self._protocol, (self._job.host, self._job.port), f"bench-{self._job.run}-waker"
        )
        step = max(1, len(self._clients) // max(1, count))
        for number, client in list(self._clients.values())[::step][:count]:
            topic = self._job.topic(number)
            client.settimeout(_STALL_S)
            sent_ns = time.monotonic_ns()
            if self._job.scheme == "nats":
                channel.sendall(
                    b"PUB %s %d\r\n%s\r\n" % (topic.replace("/", ".").encode(), len(_PAYLOAD), _PAYLOAD)
                )
            else:
                channel.sendall(publish(topic.encode(), 0, _PAYLOAD, 0))
            try:
                while _PAYLOAD not in client.recv(4096):
                    pass  # a PING of NATS
                latencies.add(np.array([time.monotonic_ns() - sent_ns]))
            except TimeoutError:
                lost += 1
        channel.close()
        return {"lost": lost, "latency": latencies.to_json()}

    def close(self) -> None:
        """Send DISCONNECT and close the sockets."""
        for _, channel in self._clients.values():
            try:
                channel.send(self._protocol.goodbye)
            except OSError:
                pass
            channel.close()
        self._poller.close()
