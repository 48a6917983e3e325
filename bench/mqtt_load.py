"""A publishing load on an MQTT server: raw sockets, packets encoded before the clock starts, a window of unacknowledged
publishes a client. Any server that speaks MQTT 3.1.1 can be the target.

It counts what was acknowledged, so the figure is that of the server and its disk, not of this process: packets are
slices of one prepared buffer, and acknowledgements are counted by length.
"""

import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

_PACKET_IDS = 65_535
_RECEIVE_BYTES = 256 * 1024
_PUBACK_BYTES = 4


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: by how many clients, how much each, with how many unacknowledged at a time."""

    clients: int = 10
    messages: int = 100_000
    """Of each client."""
    window: int = 100
    payload_bytes: int = 100
    qos: int = 1
    topic: str = "bench/{client}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    acknowledged: int
    seconds: float
    latencies_us: Sequence[float]
    """From sending a run of publishes to the acknowledgement of its last, one for each run."""

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.acknowledged / self.seconds


class _Client:
    """One connection and its place in the prepared packets."""

    def __init__(self, number: int, address: tuple[str, int], load: Load) -> None:
        self.load = load
        topic = load.topic.format(client=number).encode()
        # One full cycle of packet ids, so that any run of them is a slice; `window` more so that it wraps.
        ids = [at % _PACKET_IDS + 1 for at in range(min(load.messages, _PACKET_IDS) + load.window)]
        payload = (b"%d." % number + b"x" * load.payload_bytes)[: load.payload_bytes]
        packets = [publish(topic, packet_id, payload, load.qos) for packet_id in ids]
        self.packet_bytes = len(packets[0])
        self.data = memoryview(b"".join(packets))
        self.sent = self.acknowledged = 0
        self.spare_bytes = 0
        self.runs: list[tuple[int, float]] = []
        self.latencies_us: list[float] = []
        self.unsent: memoryview | None = None
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(connect(f"load-{number}"))
        answer = self.socket.recv(4)
        if answer != b"\x20\x02\x00\x00":
            raise ConnectionError(f"client {number} was refused: {answer.hex()}")
        self.socket.setblocking(False)

    @property
    def done(self) -> bool:
        return self.acknowledged == self.load.messages

    def send(self) -> None:
        """Fill the window."""
        if self.unsent is None:
            count = min(self.load.window - (self.sent - self.acknowledged), self.load.messages - self.sent)
            if count <= 0:
                return
            first = self.sent % _PACKET_IDS * self.packet_bytes
            self.unsent = self.data[first : first + count * self.packet_bytes]
            self.sent += count
            self.runs.append((self.sent, time.perf_counter()))
        try:
            taken = self.socket.send(self.unsent)
        except BlockingIOError:
            return
        self.unsent = self.unsent[taken:] if taken < len(self.unsent) else None

    def receive(self) -> None:
        """Count acknowledgements, and send as many more."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        packets, self.spare_bytes = divmod(self.spare_bytes + len(data), _PUBACK_BYTES)
        self.acknowledged += packets
        now = time.perf_counter()
        while self.runs and self.runs[0][0] <= self.acknowledged:
            self.latencies_us.append((now - self.runs.pop(0)[1]) * 1e6)
        self.send()


def run(address: tuple[str, int], load: Load) -> Outcome:
    """Publish until everything is acknowledged."""
    clients = [_Client(number, address, load) for number in range(load.clients)]
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
    started = time.perf_counter()
    for client in clients:
        client.send()
    left = len(clients)
    while left:
        for key, _ in selector.select(timeout=0.001 if any(one.unsent for one in clients) else None):
            client = key.data
            client.receive()
            if client.done:
                selector.unregister(client.socket)
                client.socket.close()
                left -= 1
        for client in clients:
            if client.unsent is not None:
                client.send()
    seconds = time.perf_counter() - started
    latencies = [latency for client in clients for latency in client.latencies_us]
    return Outcome(sum(client.acknowledged for client in clients), seconds, latencies)


def publish(topic: bytes, packet_id: int, payload: bytes, qos: int) -> bytes:
    """A PUBLISH of MQTT 3.1.1."""
    body = len(topic).to_bytes(2, "big") + topic + (packet_id.to_bytes(2, "big") if qos else b"") + payload
    return bytes((0x30 | qos << 1,)) + _varint(len(body)) + body


def connect(client_id: str) -> bytes:
    """A CONNECT of MQTT 3.1.1 with a clean session."""
    encoded = client_id.encode()
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(encoded).to_bytes(2, "big") + encoded
    return b"\x10" + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        encoded.append(low | (0x80 if value else 0))
        if not value:
            return bytes(encoded)


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="HOST:PORT")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--messages", type=int, default=100_000, help="of each client")
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--payload-bytes", type=int, default=100)
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    outcome = run(
        (host, int(port)),
        Load(options.clients, options.messages, options.window, options.payload_bytes),
    )
    print(f"{outcome.acknowledged} acknowledged in {outcome.seconds:.2f} s: {outcome.rate:,.0f} messages/s")
