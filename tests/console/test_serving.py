"""A console on a socket of its own, as uvicorn serves it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.stores import fill
from timestone.view import view_store
from timestone_cli.live.away_sessions import AwaySessions
from timestone_cli.live.console import ServerLink
from timestone_console.api.stream import ALL_STREAMS
from timestone_console.application import Application
from timestone_console.config import ConsoleConfig, Role
from timestone_console.http.sessions import Sessions
from timestone_console.serving import listening_socket, run_console
from timestone_console.sources import Sources


@contextmanager
def serving(path: Path, idle_s: float, **settings: Any) -> Iterator[tuple[str, int]]:
    """Serve a new store in `path` on a thread; the console ends by itself, `idle_s` after the last request."""
    fill(path / "data", 10)
    config = ConsoleConfig(port=0, idle_s=idle_s, **settings)
    listening = listening_socket(config)
    started = threading.Event()
    with closing(view_store(path / "data")) as view:
        sources = Sources(
            view,
            config,
            Sessions(time.monotonic),
            server=ServerLink(view.path),
            away=AwaySessions(view),
            tables=None,
            version="1",
        )
        application = Application(sources, config)
        thread = threading.Thread(target=run_console, args=(application, config, listening, started.set))
        thread.start()
        assert started.wait(60)
        yield listening.getsockname()
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    with serving(tmp_path, idle_s=0.2) as address:
        yield address


def exchanged(address: tuple[str, int], data: bytes, *, closes: bool = True) -> bytes:
    """Send bytes, and return all that comes until the connection is closed; unless the other side `closes`, this side
    sends its end."""
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(data)
        if not closes:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65_536):
            received += part
        return received


def test_console_answers_and_ends_after_idleness(address: tuple[str, int]) -> None:
    host = f"{address[0]}:{address[1]}".encode()
    answer = exchanged(
        address, b"GET /api/v1/me HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK") and b'"role":"none"' in body
    assert b"server:" not in head.lower() and head.lower().count(b"\r\ndate: ") == 1


def test_others_are_served_beside_streams_that_are_not_read(tmp_path: Path) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(serving(tmp_path, idle_s=0.2, anonymous=Role.READER))
        streams = [
            stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(ALL_STREAMS)
        ]
        for one in streams:
            one.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(15) == b"HTTP/1.1 200 OK"
        get = b"GET /api/v1/%b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert exchanged(address, get % b"overview").startswith(b"HTTP/1.1 200 OK")
        assert exchanged(address, get % b"stream").startswith(b"HTTP/1.1 429")
        for one in streams:
            one.close()


def test_address_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            listening_socket(ConsoleConfig(port=port))
