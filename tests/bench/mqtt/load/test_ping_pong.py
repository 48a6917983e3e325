"""A pair that exchanges one message at a time, with a server that answers by hand."""

import socket
import threading
from collections.abc import Iterator

import pytest

from timestone_bench.mqtt.load.client_protocols import CLIENT_PROTOCOLS, Nats
from timestone_bench.mqtt.load.histogram import Histogram
from timestone_bench.mqtt.load.ping_pong import PingPong, PingPongJob


class Server:
    """Speaks NATS to two clients: it confirms each PING, and passes messages on, changed by `mangle`."""

    def __init__(self, mangle: bytes = b"") -> None:
        self._mangle = mangle
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._listening:
            publisher, _ = self._listening.accept()
            self._confirm(publisher)
            subscriber, _ = self._listening.accept()
            self._confirm(subscriber)
            self._confirm(subscriber)
            with publisher, subscriber:
                subscriber.sendall(Nats.noise)
                while data := publisher.recv(4096):
                    head, _, rest = data.partition(b"\r\n")
                    _, subject, size = head.split()
                    subscriber.sendall(b"MSG %s 1 %s\r\n" % (subject, size) + (self._mangle or rest))

    def _confirm(self, client: socket.socket) -> None:
        data = b""
        while not data.endswith(b"PING\r\n"):
            data += client.recv(4096)
        client.sendall(b"PONG\r\n")

    def join(self) -> None:
        self._thread.join(10)


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.join()


def job(server: Server) -> PingPongJob:
    return PingPongJob(
        scheme="nats", host="127.0.0.1", port=server.port, run="r", payload_bytes=50, qos=0, messages=30
    )


def test_every_message_is_exchanged_and_timed(server: Server) -> None:
    ping_pong = PingPong(job(server))
    report = ping_pong.run(0)
    ping_pong.close()
    assert Histogram.from_json(report["delivery_latency"]).count == 30
    assert Histogram.from_json(report["ack_latency"]).count == 0
    assert report["ended_ns"] > report["started_ns"]


def test_another_message_is_an_error() -> None:
    server = Server(mangle=bytes(range(50)) + b"\r\n")
    with pytest.raises(ConnectionError, match="expected message 0, got"):
        PingPong(job(server))
    assert "nats" in CLIENT_PROTOCOLS
