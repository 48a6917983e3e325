"""Connections to a server under test: blocking, with a time limit, and without reading a byte too many."""

import socket
from collections.abc import Callable

from .client_protocols import ClientProtocol

_TIMEOUT_S = 20.0
_ANSWER_BYTES = 64 * 1024


def open_channel(
    protocol: ClientProtocol, address: tuple[str, int], client_id: str, *, clean: bool = True
) -> socket.socket:
    """Open a connection and wait until the server has accepted it. Raises ConnectionError when it does not."""
    try:
        channel = socket.create_connection(address, _TIMEOUT_S)
    except OSError as error:
        raise ConnectionError(f"{address[0]}:{address[1]}: {error.strerror or error}") from error
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    exchange(channel, protocol.hello(client_id, clean=clean), protocol.is_welcome)
    return channel


def subscribe(channel: socket.socket, protocol: ClientProtocol, topic: str, qos: int) -> None:
    """Subscribe, and wait until the server has granted it."""
    exchange(channel, protocol.subscribe(topic, qos), protocol.is_subscribed)


def exchange(channel: socket.socket, request: bytes, is_complete: Callable[[bytes], bool]) -> None:
    """Send a request and read its answer, byte by byte: the bytes after it belong to another reader."""
    channel.sendall(request)
    answer = bytearray()
    try:
        while not is_complete(bytes(answer)):
            data = channel.recv(1)
            if not data:
                raise ConnectionError("the server closed the connection before it answered")
            answer += data
            if len(answer) > _ANSWER_BYTES:
                raise ConnectionError("the server's answer is too long")
    except TimeoutError as error:
        raise ConnectionError(f"no answer within {_TIMEOUT_S:.0f} s, only {bytes(answer)!r}") from error
    except ValueError as error:
        raise ConnectionError(str(error)) from error


def receive(channel: socket.socket, size_bytes: int) -> bytes:
    """Return so many bytes; fewer if the server closes the connection before."""
    answer = b""
    while len(answer) < size_bytes and (data := channel.recv(size_bytes - len(answer))):
        answer += data
    return answer
