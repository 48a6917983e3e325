"""The console of a server: holds its socket, and starts its process when the first browser connects. The server itself
reads nothing from that socket and loads nothing of the console."""

import asyncio
import importlib.util
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol

from timestone.address import is_loopback, send, shown_address
from timestone.fronts import Front, Guarded

from ..errors import CommandError

_NEEDED = ("timestone_console", "starlette", "uvicorn", "h11", "msgspec")
_BACKLOG = 64
_BACKOFF_S = 0.2
_BACKOFF_MOST_S = 30.0
_HEALTHY_S = 10.0
"""A process that ran for so long did not fail at its start."""
_STOP_S = 3.0
IDLE_S = 600.0
"""Time without a request after which the process ends, until the next visit."""
_log = logging.getLogger("timestone.console")


class ServerSettings(Protocol):
    """Settings of `serve` that the console needs."""

    @property
    def data(self) -> Path: ...
    @property
    def log_level(self) -> str: ...
    @property
    def log_format(self) -> str: ...


class Settings(Protocol):
    """Settings of the console, as `serve` has them."""

    @property
    def address(self) -> tuple[str, int] | None: ...
    @property
    def listen(self) -> str | None: ...
    @property
    def users(self) -> Mapping[str, str]: ...
    @property
    def hosts(self) -> tuple[str, ...]: ...
    @property
    def actions(self) -> bool: ...
    @property
    def allow_plain(self) -> bool: ...
    @property
    def pipeline(self) -> Path | None: ...
    @property
    def certificate(self) -> Path | None: ...
    @property
    def key(self) -> Path | None: ...


def is_installed() -> bool:
    """Return whether the extra `console` is there. Imports nothing of it."""
    return all(importlib.util.find_spec(name) is not None for name in _NEEDED)


class ConsoleService:
    """Listens for browsers while a server runs."""

    name: ClassVar[str] = "console"

    def __init__(
        self, store: Path, host: str, port: int, settings: Mapping[str, Any], *, is_default: bool
    ) -> None:
        """settings: of the console, without its address. is_default: the address was not asked for, so a busy one is
        not an error."""
        self._store = store
        self._host = host
        self._port = port
        self._settings = settings
        self._is_default = is_default
        self._listening: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._failures = 0

    @classmethod
    def of(
        cls,
        own: "ServerSettings",
        settings: "Settings",
        is_default: bool,
        fronts: Sequence[Front],
    ) -> "list[ConsoleService]":
        """Return the console of a server, if it is to have one. Raises CommandError if one was asked for and the extra
        is not installed."""
        address = settings.address
        if address is None:
            return []
        if not is_installed():
            if is_default:
                return []
            raise CommandError(
                f"console = {settings.listen} needs the extra `console`: pip install '.[console]' in a clone"
            )
        has_logins = any(isinstance(front, Guarded) and front.has_logins for front in fronts)
        passed = {
            "users": dict(settings.users),
            "hosts": settings.hosts,
            "actions": settings.actions,
            "allow_plain": settings.allow_plain,
            "certificate": None if settings.certificate is None else str(settings.certificate.absolute()),
            "key": None if settings.key is None else str(settings.key.absolute()),
            "pipeline": None if settings.pipeline is None else str(settings.pipeline.absolute()),
            "is_open": is_loopback(address[0]) and not has_logins and not settings.users,
            "anonymous": "reader",
            "idle_s": IDLE_S,
            "log_level": own.log_level,
            "log_format": own.log_format,
        }
        return [cls(own.data, *address, passed, is_default=is_default)]

    @property
    def address(self) -> str | None:
        """Return HOST:PORT with the actual port; None if it does not listen."""
        if self._listening is None:
            return None
        return shown_address(self._host, self._listening.getsockname()[1])

    async def start(self) -> None:
        """Listen. Raises OSError that names the address, unless it is the default one."""
        listening = socket.socket(
            socket.AF_INET6 if ":" in self._host else socket.AF_INET, socket.SOCK_STREAM
        )
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self._port))
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except OSError as error:
            listening.close()
            where, reason = shown_address(self._host, self._port), os.strerror(error.errno or 0)
            if not self._is_default:
                raise OSError(error.errno, f"cannot listen on {where}: {reason}") from None
            _log.info("no console on %s: %s; --console chooses another address", where, reason)
            return
        self._listening = listening
        self._await_visit()

    async def stop(self) -> None:
        """End the process and close the socket."""
        if self._listening is None:
            return
        asyncio.get_running_loop().remove_reader(self._listening.fileno())
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        self._listening.close()
        self._listening = None

    def describe(self) -> list[str]:
        """Return where the console is, for people."""
        scheme = "https" if self._settings.get("certificate") else "http"
        return [] if self.address is None else [f"console on {scheme}://{self.address}"]

    def _await_visit(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening.fileno(), self._visited)

    def _visited(self) -> None:
        """Start the process, which accepts the connection that waits."""
        assert self._listening is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening.fileno())
        self._running = loop.create_task(self._run(self._listening.fileno()))

    async def _run(self, fd: int) -> None:
        began_s = time.monotonic()
        code: int | None = None
        try:
            code = await self._served(fd)
        except OSError as error:
            _log.warning("the console could not be started: %s", error)
        if code == 0 or time.monotonic() - began_s > _HEALTHY_S:
            self._failures = 0
        else:
            self._failures += 1
        wait_s = min(_BACKOFF_MOST_S, _BACKOFF_S * 2**self._failures) if code != 0 else 0.0
        if code not in (0, None):
            _log.warning("the console ended with exit code %d; it starts again in %.1f s", code, wait_s)
        await asyncio.sleep(wait_s)
        self._await_visit()

    async def _served(self, fd: int) -> int:
        """Run the process to its end and return its exit code. It ends with its standard input, so also when this
        process is killed. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "timestone_cli",
            "console",
            str(self._store),
            "--inherited",
            str(fd),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(fd,),
        )
        try:
            assert process.stdin is not None
            with suppress(ConnectionResetError):
                send(process.stdin, json.dumps(self._settings).encode() + b"\n")
            return await process.wait()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), _STOP_S)
                except TimeoutError:
                    process.kill()
                    await process.wait()
