"""Two ends of a connection, for one side of it at a time."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.waiting import TIMEOUT_S


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ours, and the server's."""
    listening = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listening.getsockname())
    theirs, _ = listening.accept()
    theirs.settimeout(TIMEOUT_S)
    with listening, ours, theirs:
        yield ours, theirs


def read_exactly(channel: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += channel.recv(count - len(data))
    return data
