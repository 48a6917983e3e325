"""`timestone wait`: wait until a server is ready, for scripts that start one in the background."""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import click

from timestone.address import parse_address

from ..errors import CommandError, UsageError
from ..group import Command
from ..input.parameters import duration_ms

_DEFAULT = "127.0.0.1:1883"
_CONNECT_S = 1.0
_PAUSE_S = 0.05

EXAMPLES = """\
Examples:
  timestone serve --data data & timestone wait
  timestone wait 127.0.0.1:1884 --timeout 5min
  timestone serve --mqtt 127.0.0.1:0 --ready-file ready.json &
  timestone wait ready.json

SERVER is an address on which it listens, HOST:PORT, or the file of its option
--ready-file. A server listens as soon as clients can connect and not before.

Exit codes: 0 ready, 1 not ready in time, 64 invalid arguments.
"""


def _server(text: str) -> Callable[[], bool]:
    """Return a function that says whether the server is ready. Raises ValueError."""
    if ":" not in text or "/" in text:
        return lambda: _wrote(Path(text))
    host, port = parse_address(text, setting="SERVER")
    return lambda: _listens(host, port)


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


def _wrote(file: Path) -> bool:
    """Return whether a server that lives has written its ready file. A killed one leaves the file behind.
    Raises UsageError for a folder."""
    try:
        os.kill(int(json.loads(file.read_bytes())["pid"]), 0)
    except PermissionError:
        return True  # the process of another user
    except IsADirectoryError:
        raise UsageError(
            f"invalid SERVER {str(file)!r}: expected HOST:PORT or the file of --ready-file, got a folder"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument(
    "server", metavar="[SERVER]", default=_DEFAULT, help=f"Where it listens.  [default: {_DEFAULT}]"
)
@click.option(
    "--timeout",
    "timeout_ms",
    metavar="DURATION",
    type=duration_ms("s"),
    default="30s",
    help="How long to wait. Without a unit: seconds.",
)
def command(server: str, timeout_ms: int) -> None:
    """Wait until a server is ready."""
    try:
        is_ready = _server(server)
    except ValueError as error:
        raise UsageError(str(error)) from None
    deadline_s = time.monotonic() + timeout_ms / 1000
    while not is_ready():
        if time.monotonic() >= deadline_s:
            raise CommandError(f"{server} is not ready after {timeout_ms / 1000:g} s")
        time.sleep(_PAUSE_S)
