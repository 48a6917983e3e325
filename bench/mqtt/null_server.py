"""A server that does nothing: it counts and copies bytes, so its figures are the maximum of the load generator. With a
directory it writes the messages and 32 bytes of index for each to two files there before it passes them on: then its
figures are the bound of a log in Python.

`python -m timestone_bench.mqtt.null_server [DIRECTORY]` prints its port and serves until its standard input ends.
"""

import os
import select
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

from .load.client_protocols import PACKET_IDS

_RECEIVE_BYTES = 256 * 1024
_ACKS = b"".join(b"\x40\x02" + number.to_bytes(2, "big") for number in range(1, PACKET_IDS + 1))
_ENTRY_BYTES = 32
"""Entry of the index of a segment."""
_END = b"\xff\xffend"


@dataclass(slots=True)
class _Client:
    channel: socket.socket
    waiting: bytes = b""
    topic: bytes = b""
    """The topic of its messages, known from its first message on."""
    size: int = 0
    """Size of each of its messages."""
    acknowledged: int = 0
    acks: bool = False
    listeners: list[socket.socket] = field(default_factory=list)


class NullServer:
    """Parses the first message of each client and assumes that all others are as long."""

    def __init__(self, directory: Path | None = None) -> None:
        self._files = []
        if directory is not None:
            self._files = [
                os.open(directory / name, os.O_CREAT | os.O_WRONLY) for name in ("records", "index")
            ]
        self._ends = [0, 0]
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listening.getsockname()[1]
        self._poller = select.epoll()
        self._poller.register(self._listening, select.EPOLLIN)
        self._clients: dict[int, _Client] = {}
        self._subscribed: dict[bytes, list[socket.socket]] = {}

    def serve(self, control: int) -> None:
        """Serve until the file descriptor `control` can be read."""
        self._poller.register(control, select.EPOLLIN)
        while True:
            for fd, _ in self._poller.poll():
                if fd == control:
                    return
                if fd == self._listening.fileno():
                    self._accept()
                else:
                    self._receive(self._clients[fd])

    def _accept(self) -> None:
        channel, _ = self._listening.accept()
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients[channel.fileno()] = _Client(channel)
        self._poller.register(channel, select.EPOLLIN)

    def _receive(self, client: _Client) -> None:
        try:
            data = client.channel.recv(_RECEIVE_BYTES)
        except OSError:
            data = b""
        if not data:
            self._forget(client)
        elif client.size:
            self._pass_on(client, data)
        else:
            client.waiting += data
            self._talk(client)

    def _forget(self, client: _Client) -> None:
        del self._clients[client.channel.fileno()]
        for listeners in self._subscribed.values():
            if client.channel in listeners:
                listeners.remove(client.channel)
        self._poller.unregister(client.channel)
        client.channel.close()

    def _talk(self, client: _Client) -> None:
        """Answer the packets before the first message."""
        while (packet := _first_packet(client.waiting)) and not client.size:
            kind = packet[0] >> 4
            body = packet[2 if packet[1] < 128 else 3 :]
            if kind == 3:
                self._begin(client, packet, body)
                waiting, client.waiting = client.waiting, b""
                self._pass_on(client, waiting)
                return
            client.waiting = client.waiting[len(packet) :]
            if kind == 1:
                client.channel.sendall(b"\x20\x02\x00\x00")
            elif kind == 8:
                topic = body[4 : 4 + int.from_bytes(body[2:4], "big")]
                self._subscribed.setdefault(topic, []).append(client.channel)
                client.channel.sendall(b"\x90\x03" + body[:2] + body[-1:])

    def _begin(self, client: _Client, packet: bytes, body: bytes) -> None:
        client.size = len(packet)
        client.acks = bool(packet[0] & 2)
        topic = body[2 : 2 + int.from_bytes(body[:2], "big")]
        levels = topic.split(b"/")
        everybody = b"/".join([*levels[:2], *(b"+" for _ in levels[2:])])
        client.listeners = self._subscribed.get(topic, []) + self._subscribed.get(everybody, [])

    def _pass_on(self, client: _Client, data: bytes) -> None:
        data, ended = client.waiting + data, data.endswith(_END)
        if ended:
            # Before its topic: type, length, and two bytes of the topic's own length.
            data = data[: data.rfind(b"bench-end/") - 4]
        whole = len(data) - len(data) % client.size
        client.waiting = data[whole:]
        if self._files:
            self._write(data[:whole], bytes(whole // client.size * _ENTRY_BYTES))
        for listener in client.listeners:
            if listener.fileno() >= 0:
                listener.sendall(memoryview(data)[:whole])
        if client.acks:
            count, first = whole // client.size, client.acknowledged % PACKET_IDS
            client.acknowledged += count
            acks = _ACKS[first * 4 : (first + count) * 4]
            client.channel.sendall(acks + _ACKS[: count * 4 - len(acks)])
        if ended:
            client.channel.sendall(b"\x40\x02\xff\xff")

    def _write(self, *parts: bytes) -> None:
        for number, part in enumerate(parts):
            self._ends[number] += os.pwrite(self._files[number], part, self._ends[number])


def _first_packet(data: bytes) -> bytes:
    if len(data) < 2 or (data[1] & 0x80 and len(data) < 3):
        return b""
    length = data[1] & 0x7F | (data[2] << 7 if data[1] & 0x80 else 0)
    end = length + (3 if data[1] & 0x80 else 2)
    return data[:end] if len(data) >= end else b""


def main() -> None:
    """Serve until standard input ends."""
    server = NullServer(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    print(server.port, flush=True)
    server.serve(sys.stdin.fileno())


if __name__ == "__main__":
    main()
