"""`timestone console`: pages and an HTTP API over a store, of a server that runs or of files alone."""

import dataclasses
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from timestone.address import parse_address, shown_address
from timestone.errors import MissingExtra, NotAStore
from timestone.kernel.allocator_tuning import return_freed_memory
from timestone.view import view_store

from ..control.caller import Caller, Refused
from ..errors import CommandError, UsageError
from ..group import Command
from ..input.parameters import DIRECTORY, FILE
from ..process.version import timestone_version
from ..server.log_lines import log_to_standard_error
from ..settings.console import DEFAULT_ADDRESS
from .away_sessions import AwaySessions

if TYPE_CHECKING:
    from timestone_console.config import ConsoleConfig
    from timestone_console.sources import Tables

EXAMPLES = """\
Examples:
  timestone console data                        on 127.0.0.1:9465
  timestone console data --listen 127.0.0.1:0   on a free port
  timestone console backup/data                 a copy, without a server

DIR is a store: of a server that runs, of one that was stopped or killed, or a
copy of its files. The command prints a link with a key that is valid once:
who can start it can read the files.
"""
Answer = TypeVar("Answer")
_BLOCK_BYTES, _HEAPS = 1 << 20, 2
_NICE = 10
"""The clients of the server come first."""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=DEFAULT_ADDRESS,
    help="Address of the console on this machine; port 0 selects a free one.",
)
@click.option("--actions", is_flag=True, help="Allow actions, such as to disconnect a client.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    help="Lowest level logged to standard error.",
)
@click.option(
    "--pipeline",
    metavar="FILE",
    type=FILE,
    help="Settings of a pipeline, to show its tables and dead letters.",
)
@click.option("--inherited", metavar="FD", type=int, hidden=True)
def command(
    directory: Path,
    listen: str,
    actions: bool,
    log_level: str,
    pipeline: Path | None,
    inherited: int | None,
) -> None:
    """Show a store and its server in a browser."""
    if inherited is not None:
        _run_for_server(directory, inherited)
        return
    log_to_standard_error(log_level, "text")
    try:
        host, port = parse_address(listen, setting="--listen")
        config = _config_class()(host=host, port=port, actions=actions)
    except ValueError as error:
        raise UsageError(str(error)) from None
    from timestone_console.serving import listening_socket  # noqa: PLC0415

    with listening_socket(config) as listening:

        def say(config: "ConsoleConfig", key: str) -> None:
            print(f"console http://{shown_address(config.host, config.port)}/login#{key}", flush=True)

        _run(directory, config, listening, say, pipeline)


def _run_for_server(directory: Path, inherited: int) -> None:
    """Serve on the socket of `timestone serve`, with settings that are the first line of standard input; end when that
    ends."""
    os.nice(_NICE)
    settings = json.loads(sys.stdin.readline())
    log_to_standard_error(settings.pop("log_level"), settings.pop("log_format"))
    config_class = _config_class()
    from timestone_console.config import Role  # noqa: PLC0415

    users = {user: Role.parse(word) for user, word in settings.pop("users").items()}
    anonymous = Role.parse(settings["anonymous"]) if settings.pop("is_open") else Role.NONE
    settings.pop("anonymous")
    hosts = tuple(settings.pop("hosts"))
    pipeline = settings.pop("pipeline")
    with socket.socket(fileno=inherited) as listening:
        listening.setblocking(False)
        host, port = listening.getsockname()[:2]
        config = config_class(host=host, port=port, users=users, anonymous=anonymous, hosts=hosts, **settings)
        threading.Thread(target=_end_with_server, daemon=True).start()
        _run(
            directory,
            config,
            listening,
            lambda config, key: None,
            None if pipeline is None else Path(pipeline),
        )


def _end_with_server() -> None:
    """End the process when the server has gone, also by kill -9: its end of the pipe is closed then."""
    # Not through `sys.stdin`: its lock, held by this thread when the process ends, is a fatal error of the interpreter.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _config_class() -> "type[ConsoleConfig]":
    """Return the class of the settings. Raises MissingExtra."""
    try:
        from timestone_console.application import Application  # noqa: F401, PLC0415
        from timestone_console.config import ConsoleConfig  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra("the pages of the console", error.name or "starlette", "console") from None
    return ConsoleConfig


def _run(
    directory: Path,
    config: "ConsoleConfig",
    listening: socket.socket,
    started: "Callable[[ConsoleConfig, str], None]",
    pipeline: Path | None,
) -> None:
    """Serve a store on a socket until a signal. started: gets the settings with the actual port, and a key. pipeline:
    file with the settings of one."""
    # With a heap for each thread it keeps twice the memory; the default limit for large blocks grows to 32 MiB, and
    # heaps keep a tenth more. Before anything else: heaps that exist stay.
    return_freed_memory(_BLOCK_BYTES, _HEAPS)
    # As above: the extra may be missing, and other commands load nothing of it.
    from timestone_console.application import Application  # noqa: PLC0415
    from timestone_console.http.sessions import Sessions  # noqa: PLC0415
    from timestone_console.serving import run_console  # noqa: PLC0415
    from timestone_console.sources import Sources  # noqa: PLC0415

    config = dataclasses.replace(config, port=listening.getsockname()[1])
    sessions = Sessions(time.monotonic)
    with closing(view_store(directory)) as view:
        sources = Sources(
            view,
            config,
            sessions,
            server=ServerLink(directory),
            away=AwaySessions(view),
            tables=_tables(pipeline),
            version=timestone_version(),
        )
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        application = Application(sources, config)
        run_console(application, config, listening, lambda: started(config, sessions.new_key()))


def _tables(pipeline: Path | None) -> "Tables | None":
    """Return the tables of a pipeline. Raises UsageError, MissingExtra."""
    if pipeline is None:
        return None
    try:
        from .pipeline_tables import PipelineTables  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra("the tables of a pipeline", error.name or "pyspark", "pipeline") from None
    return PipelineTables(pipeline)


class ServerLink:
    """Control socket of a store for the console: one connection, made again when it has ended, and one more for each
    action. Usable from any thread."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._caller: Caller | None = None

    def call(self, request: str, **arguments: Any) -> dict[str, Any]:
        """Return the result of a request. Raises NoServer and ServerRefused of the console."""
        if "by" in arguments:
            return self._acted(request, arguments)
        return self._asked(lambda caller: caller.call(request, **arguments))

    def clients(self) -> list[dict[str, Any]]:
        """Return all connected clients. Raises as `call`."""
        return self._asked(Caller.clients)

    def _acted(self, request: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Send an action, once: it may be done although its connection failed. Other requests do not wait."""
        with _problems(), Caller(self._store) as caller:
            return caller.call(request, **arguments)

    def _asked(self, ask: Callable[[Caller], Answer]) -> Answer:
        with self._lock, _problems():
            for is_last in (False, True):
                is_new = self._caller is None
                try:
                    if self._caller is None:
                        self._caller = Caller(self._store)
                    return ask(self._caller)
                except Refused:
                    raise
                except (CommandError, NotAStore, OSError):
                    self.close()
                    if is_new or is_last:
                        raise
        raise AssertionError("the second attempt returns or raises")

    def close(self) -> None:
        """End the connection."""
        if self._caller is not None:
            self._caller.close()
            self._caller = None


@contextmanager
def _problems() -> Iterator[None]:
    """Raise what a caller of the control socket raises as NoServer and ServerRefused of the console."""
    from timestone_console.problems import NoServer, ServerRefused  # noqa: PLC0415

    try:
        yield
    except Refused as error:
        raise ServerRefused(error.code, str(error)) from None
    except (CommandError, NotAStore, OSError) as error:
        raise NoServer(str(error)) from None
