"""`timestone console`: pages and an HTTP API over a store, of a server that runs or of files alone."""

import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from timestone.address import parse_address, shown_address
from timestone.errors import MissingExtra, NotAStore
from timestone.view import view_store

from ..control.caller import Caller, Refused
from ..errors import CommandError, UsageError
from ..group import Command
from ..input.parameters import DIRECTORY
from ..process.version import timestone_version
from ..server.log_lines import log_to_standard_error

if TYPE_CHECKING:
    from timestone_console.config import ConsoleConfig

EXAMPLES = """\
Examples:
  timestone console data                        on 127.0.0.1:9465
  timestone console data --listen 127.0.0.1:0   on a free port
  timestone console backup/data                 a copy, without a server

DIR is a store: of a server that runs, of one that was stopped or killed, or a
copy of its files. The command prints a link with a key that is valid once:
who can start it can read the files.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9465",
    help="Address of the console; port 0 selects a free one.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    help="Lowest level logged to standard error.",
)
def command(directory: Path, listen: str, log_level: str) -> None:
    """Show a store and its server in a browser."""
    try:
        host, port = parse_address(listen, setting="--listen")
    except ValueError as error:
        raise UsageError(str(error)) from None
    log_to_standard_error(log_level, "text")
    console_config = _console_config()
    try:
        config = console_config(host=host, port=port)
    except ValueError as error:
        raise UsageError(str(error)) from None
    with closing(view_store(directory)) as view:
        _run(view, config)


def _console_config() -> "type[ConsoleConfig]":
    """Return the class of its settings. Raises MissingExtra."""
    try:
        # As below: the extra may be missing.
        from timestone_console.config import ConsoleConfig  # noqa: PLC0415
        from timestone_console.serving import run_console  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra("the pages of the console", error.name or "starlette", "console") from None
    return ConsoleConfig


def _run(view: Any, config: "ConsoleConfig") -> None:
    import dataclasses  # noqa: PLC0415

    from timestone_console.application import Application  # noqa: PLC0415
    from timestone_console.http.sessions import Sessions  # noqa: PLC0415
    from timestone_console.serving import listening_socket, run_console  # noqa: PLC0415
    from timestone_console.sources import Sources  # noqa: PLC0415

    listening = listening_socket(config)
    config = dataclasses.replace(config, port=listening.getsockname()[1])
    sessions = Sessions(time.monotonic)
    sources = Sources(
        view, config, sessions, server=ServerLink(view.path), tables=None, version=timestone_version()
    )
    application = Application(sources, config)
    link = f"http://{shown_address(config.host, config.port)}/login#{sessions.new_key()}"
    run_console(application, config, listening, lambda: print(f"console {link}", flush=True))


class ServerLink:
    """Control socket of a store for the console: one connection, made again when it has ended."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._caller: Caller | None = None

    def call(self, request: str, **arguments: Any) -> dict[str, Any]:
        """Return the result of a request. Raises NoServer, ServerRefused of the console."""
        from timestone_console.problems import NoServer, ServerRefused  # noqa: PLC0415

        with self._lock:
            for attempt in (1, 2):
                try:
                    if self._caller is None:
                        self._caller = Caller(self._store)
                    return self._caller.call(request, **arguments)
                except Refused as error:
                    raise ServerRefused(error.code, str(error)) from None
                except (CommandError, NotAStore, OSError) as error:
                    is_stale = self._caller is not None and attempt == 1
                    if self._caller is not None:
                        self._caller.close()
                        self._caller = None
                    if not is_stale:
                        raise NoServer(str(error)) from None
        raise AssertionError("the second attempt returns or raises")
