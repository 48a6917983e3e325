"""Ports for servers that are started later, and again on the same one."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 that the system gives to nobody else meanwhile, neither to a server that takes any nor to a
    client. A server can listen on it all the same: addresses are shared with whoever does not listen."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        yield port
