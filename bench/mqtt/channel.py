"""Opening a connection to a server under test: blocking, with a time limit, and without reading a byte too many."""

import socket
from collections.abc import Callable

from .wire import Wire

_TIMEOUT_S = 20.0
_ANSWER_BYTES = 64 * 1024


def open_channel(
    wire: Wire, address: tuple[str, int], client_id: str, *, clean: bool = True
) -> socket.socket:
    """A connection that the server has accepted. Raises ConnectionError when it does not."""
    try:
        channel = socket.create_connection(address, _TIMEOUT_S)
    except OSError as error:
        raise ConnectionError(f"{address[0]}:{address[1]}: {error.strerror or error}") from error
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    exchange(channel, wire.hello(client_id, clean=clean), wire.is_welcome)
    return channel


def subscribe(channel: socket.socket, wire: Wire, topic: str, qos: int) -> None:
    """Subscribe, and wait until the server has said yes."""
    exchange(channel, wire.subscribe(topic, qos), wire.is_subscribed)


def exchange(channel: socket.socket, request: bytes, is_complete: Callable[[bytes], bool]) -> None:
    """Send a request and read its answer, byte by byte: what follows belongs to another reader."""
    channel.sendall(request)
    answer = bytearray()
    try:
        while not is_complete(bytes(answer)):
            data = channel.recv(1)
            if not data:
                raise ConnectionError("the server closed the connection instead of an answer")
            answer += data
            if len(answer) > _ANSWER_BYTES:
                raise ConnectionError("the server's answer does not end")
    except TimeoutError as error:
        raise ConnectionError(f"no answer within {_TIMEOUT_S:.0f} s, only {bytes(answer)!r}") from error
    except ValueError as error:
        raise ConnectionError(str(error)) from error
