"""Runs a console: a socket, an HTTP server on it, and the end after idleness."""

import asyncio
import logging
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from timestone.address import shown_address

from .application import Application
from .config import ConsoleConfig
from .http.deadlines import HEAD_BYTES, BoundedProtocol
from .problems import InvalidConfig

_BACKLOG = 128
_KEEP_ALIVE_S = 30
_log = logging.getLogger("timestone.console")


def listening_socket(config: ConsoleConfig) -> socket.socket:
    """Return a socket that listens on the address of a console. Raises OSError that names it."""
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        where = shown_address(config.host, config.port)
        code = error.errno or 0
        reason = os.strerror(code) if code > 0 else error.strerror  # codes below 0 are those of getaddrinfo
        raise OSError(code, f"cannot listen on {where}: {reason}") from None
    return listening


def run_console(
    application: Application, config: ConsoleConfig, listening: socket.socket, started: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT, or until the console has been idle for `config.idle_s`. Raises InvalidConfig for a
    certificate that cannot be used."""
    settings = uvicorn.Config(
        application,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,  # the gate adds it
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
    settings.load()
    if config.has_tls:
        settings.ssl = _tls(config)
    server = _Server(settings)
    asyncio.run(_run(server, application, config, listening, started))


class _Server(uvicorn.Server):
    """Server that ends in order at a signal: uvicorn's own raises the signal again at its end, and wakes up ten times a
    second until then."""

    def __init__(self, settings: uvicorn.Config) -> None:
        super().__init__(settings)
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Serve no more. Event-loop thread only."""
        self.should_exit = True
        self._ended.set()

    async def main_loop(self) -> None:
        await self._ended.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.end)
        yield


async def _run(
    server: _Server,
    application: Application,
    config: ConsoleConfig,
    listening: socket.socket,
    started: Callable[[], None],
) -> None:
    waiting = asyncio.create_task(_watch(server, application, config, started))
    try:
        await server.serve(sockets=[listening])
    finally:
        waiting.cancel()


async def _watch(
    server: _Server, application: Application, config: ConsoleConfig, started: Callable[[], None]
) -> None:
    """Call `started` once the server accepts, and end the server after idleness."""
    while not server.started:
        await asyncio.sleep(0.01)
    started()
    while config.idle_s:
        left_s = application.gate.last_request_s + config.idle_s - time.monotonic()
        if left_s <= 0:
            _log.info("the console ends after %g s without a request", config.idle_s)
            server.end()
            return
        await asyncio.sleep(left_s + 0.1)


def _tls(config: ConsoleConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    assert config.certificate is not None and config.key is not None
    try:
        context.load_cert_chain(config.certificate, config.key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(f"console_certificate {config.certificate}: {error}") from None
    return context
