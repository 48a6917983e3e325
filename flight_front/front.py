"""Flight front: a gRPC server in a thread with an event loop of its own, and its gateway, the process that clients
connect to and that reads for them. So neither its copies nor readers at full speed hold up other fronts.

The modules that need pyarrow and grpcio are loaded when the front is to listen: a server without it starts without
them."""

import asyncio
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

from flight_front.gateway.process import GatewayProcess, Start
from flight_front.settings import NODE_LOGS, FlightSettings
from timestone.address import parse_address, shown_address
from timestone.config import Ack, LogConfig, StoreConfig
from timestone.fronts import ClusterNode
from timestone.metrics.metric import Metric
from timestone.store import Store
from timestone_access.optional import load

if TYPE_CHECKING:
    from flight_front.server import FlightServer

_THREADS = 4
"""Threads that read from the disk, check secrets and take batches apart."""
_STOP_S = 5.0


def _server_module() -> Any:
    """Return the module of the server. Raises MissingExtra, a ValueError."""
    # gRPC writes a line to standard error whenever the server starts a program, for which nothing follows from it.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    return load("flight_front.server", extra="flight", what="a Flight listener", in_package=False)


class FlightFront:
    """Arrow Flight in front of a store. Does nothing unless `listen` is set."""

    name: ClassVar[str] = "flight"
    node_logs: ClassVar[Mapping[str, Mapping[str, int]]] = NODE_LOGS

    @classmethod
    def settings(cls) -> type[FlightSettings]:
        return FlightSettings

    @classmethod
    def check(cls, settings: FlightSettings, config: StoreConfig, existing: Mapping[str, LogConfig]) -> None:
        """Read the files that the settings name. Raises ValueError."""
        if settings.listen is not None:
            # Warnings about the files are logged when they are read for use.
            _server_module().read_security(settings, logging.Logger("check", logging.CRITICAL))

    def __init__(self, store: Store, settings: FlightSettings, *, log: logging.Logger) -> None:
        self._store = store
        self._settings = settings
        self._log = log
        self._ack = settings.ack or (Ack.WRITTEN if store.config.ack is Ack.MEMORY else store.config.ack)
        self._executor = ThreadPoolExecutor(_THREADS, "flight")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: FlightServer | None = None
        self._gateway: GatewayProcess | None = None
        self._node: ClusterNode | None = None
        self._folder: str | None = None
        """Folder of the socket between the two."""

    def join(self, node: ClusterNode) -> None:
        """Serve on a node of a cluster: appends where it leads, reads in any case. Called before `start`."""
        self._node = node

    @property
    def advertised(self) -> str | None:
        """Return the address by which clients of a cluster reach this front; None if it does not listen."""
        return None if self._server is None else self._settings.advertise or self._address

    async def start(self) -> None:
        """Listen. On return, clients can connect. Raises OSError, ValueError."""
        settings = self._settings
        if settings.listen is None:
            return
        module = await asyncio.to_thread(_server_module)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flight", daemon=True)
        self._thread.start()
        server = module.FlightServer(self._store, settings, self._executor, self._log, self._node)
        try:
            if settings.gateway:
                # A path in the store may be too long for a socket.
                self._folder = tempfile.mkdtemp(prefix="timestone-flight-")
                address = f"unix:{self._folder}/server"
                await self._in_loop(server.start(address))
                start = Start(settings.listener, self._store.path.absolute(), address)
                self._gateway = GatewayProcess(start, self._log, server.use_memory)
                await self._gateway.start()
            else:
                await self._in_loop(server.start(None))
        except BaseException:
            await self._in_loop(server.stop(0))
            await self._end_thread()
            raise
        self._server = server

    async def reload(self) -> None:
        """Read passwords, rights, keys and certificates again. Raises ValueError without a change if one is invalid."""
        if self._server is not None:
            await self._in_loop(self._server.reload())
            if self._gateway is not None:
                await self._gateway.reload()

    async def stop(self) -> None:
        """End followers, answer the appends that were taken, and close all connections, within seconds."""
        server, self._server = self._server, None
        if server is not None:
            self._final = server.metrics()
            # The server first: its statuses go to the clients through the gateway.
            await self._in_loop(server.stop(_STOP_S))
            if self._gateway is not None:
                await self._gateway.stop()
            await self._end_thread()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _in_loop(self, work: Any) -> Any:
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _end_thread(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        loop, thread = self._loop, self._thread
        assert loop is not None and thread is not None
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join, _STOP_S)
        if not thread.is_alive():
            loop.close()

    def describe(self) -> list[str]:
        """Return a line for the start message."""
        settings = self._settings
        if settings.listen is None:
            return []
        tls = " (TLS)" if settings.certificate is not None else ""
        ways = {
            "client certificates": settings.user_from != "login",
            "tokens": settings.jwt.enabled,
            "passwords": settings.password_file is not None,
            **{f"plug-in {name}": True for name in settings.authenticators},
            "anonymous": not settings.knows_users,
        }
        who = ", ".join(name for name, possible in ways.items() if possible)
        return [f"flight on {self._address}{tls}, Arrow Flight, ack {self._ack.value}, {who}"]

    @property
    def _address(self) -> str | None:
        """Address with the actual port, or as configured while it does not listen."""
        listen, server = self._settings.listen, self._server
        if listen is None or server is None:
            return listen
        port = server.port if self._gateway is None else self._gateway.port
        return shown_address(parse_address(listen, setting="listen")[0], port)

    def status(self) -> dict[str, Any]:
        """Return address, ack level and the number of calls under way."""
        if self._settings.listen is None:
            return {"address": None}
        open_count = 0 if self._server is None else self._server.calls.open_count
        return {"address": self._address, "ack": self._ack.value, "calls_open": open_count}

    def metrics(self) -> Sequence[Metric]:
        """Return the metrics of the front; after `stop` the final ones."""
        return self._final if self._server is None else self._server.metrics()

    _final: Sequence[Metric] = ()

    def checks(self) -> Mapping[str, str | None]:
        """Return whether clients can connect."""
        if self._settings.listen is None:
            return {}
        if self._server is None:
            return {"listening": "it does not run"}
        runs = self._gateway is None or self._gateway.runs
        return {"listening": None if runs else "its gateway is being started again"}
