"""Process of the gateway as the server sees it: started with the front, started again when it dies, ended with it. Runs
in the loop of the server."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from flight_front.gateway.batch_memory import BatchMemory, new_memory
from flight_front.settings import ListenerSettings
from timestone.address import parse_address, send, shown_address

STOP, _RELOAD = b"stop\n", b"reload\n"
"""Lines on standard input after `Start`: end after the calls under way, and read the certificates again. Its end
without `STOP` means that the server is gone."""
_LINE_BYTES_MAX = 1 << 20
_BACKOFF_S = 0.2
_BACKOFF_MOST_S = 30.0
_STOP_S = 4.0


@dataclass(frozen=True, slots=True)
class Start:
    """What the process is given: a line of JSON."""

    settings: ListenerSettings
    path: Path
    """Of the store."""
    server: str
    """Address of the server's socket, `unix:PATH`."""
    memory: int = -1
    """Descriptor of the memory for batches."""

    def encode(self) -> bytes:
        """Return the line."""
        return json.dumps(asdict(self), default=str).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> "Start":
        """Return the values of a line."""
        values = json.loads(line)
        settings = values["settings"]
        for name in ("certificate", "key", "client_ca"):
            settings[name] = None if settings[name] is None else Path(settings[name])
        return cls(ListenerSettings(**settings), Path(values["path"]), values["server"], values["memory"])


class GatewayProcess:
    """Gateway of a front."""

    def __init__(self, start: Start, log: logging.Logger, use: Callable[[BatchMemory], None]) -> None:
        """use: called with the memory of each process before it is started."""
        self._use = use
        self._start = start
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._serving: asyncio.Task[None] | None = None
        self._refused: str | None = None
        self._reloaded = asyncio.Event()
        self._stopping = False
        self.port = 0
        """Port on which it listens, also after it was started again; 0 before the first time."""
        self.runs = False
        """Whether it listens now."""

    @property
    def pid(self) -> int | None:
        """Return its process id; None while it does not run."""
        return self._process.pid if self.runs and self._process is not None else None

    async def start(self) -> None:
        """Return when it listens. Raises OSError."""
        loop = asyncio.get_running_loop()
        listening: asyncio.Future[None] = loop.create_future()
        self._serving = loop.create_task(self._serve(listening))
        await listening

    async def reload(self) -> None:
        """Let it read the certificates again."""
        process = self._process
        if self.runs and process is not None and process.stdin is not None:
            self._reloaded.clear()
            with suppress(TimeoutError, ConnectionResetError):
                send(process.stdin, _RELOAD)
                await asyncio.wait_for(self._reloaded.wait(), _STOP_S)

    async def stop(self) -> None:
        """End it after the calls under way, within seconds."""
        self._stopping = True
        process, serving = self._process, self._serving
        if process is None or serving is None:
            return
        assert process.stdin is not None
        with suppress(ConnectionResetError):
            send(process.stdin, STOP)
        process.stdin.close()
        await asyncio.wait((serving,), timeout=_STOP_S)
        if not serving.done():
            serving.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _serve(self, listening: "asyncio.Future[None]") -> None:
        """Run one process after the other until `stop`."""
        failures = 0
        while not self._stopping:
            try:
                code = await self._run(listening)
            except OSError as error:
                code, self._refused = -1, f"the gateway cannot be started: {error}"
            failures = 0 if self.runs else failures + 1
            self.runs = False
            if not listening.done():
                listening.set_exception(
                    OSError(self._refused or f"the gateway ended with exit code {code} at its start")
                )
                return
            if not self._stopping:
                wait_s = min(_BACKOFF_MOST_S, _BACKOFF_S * 2**failures)
                self._log.warning(
                    "the gateway ended with exit code %d; it starts again in %.1f s", code, wait_s
                )
                await asyncio.sleep(wait_s)

    async def _run(self, listening: "asyncio.Future[None]") -> int:
        """Run a process to its end and return its exit code. Raises OSError."""
        # gRPC writes lines to standard error for which nothing follows.
        environment = {"GRPC_VERBOSITY": "ERROR", **os.environ}
        memory = new_memory()
        try:
            self._use(BatchMemory(memory))
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "flight_front.gateway.main", pass_fds=(memory,),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment, limit=_LINE_BYTES_MAX,
            )  # fmt: skip
        finally:
            os.close(memory)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(replace(self._start, memory=memory).encode())
        while line := await process.stdout.readline():
            values = json.loads(line)
            if "port" in values:
                self._listens_on(values["port"])
                if not listening.done():
                    listening.set_result(None)
            elif "log" in values:
                level, text = values["log"]
                self._log.log(level, "%s", text)
            elif "reloaded" in values:
                self._reloaded.set()
            else:
                self._refused = values["refused"]
        return await process.wait()

    def _listens_on(self, port: int) -> None:
        self.port, self.runs = port, True
        host, _ = parse_address(self._start.settings.listen, setting="listen")
        # Started again, it takes the same port.
        settings = replace(self._start.settings, listen=shown_address(host, port))
        self._start = replace(self._start, settings=settings)
