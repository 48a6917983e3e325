"""Ports for servers that are started later, and again on the same port."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a port of 127.0.0.1: the system gives it neither to another server that takes any port nor to a client. A
    server can still listen on it: addresses are shared with sockets that do not listen."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        yield port
