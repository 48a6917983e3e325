"""`timestone control`: what an operator has a running server do."""

from pathlib import Path
from typing import Any

import click

from ..control.caller import Caller
from ..errors import CommandError
from ..group import Group
from ..input.parameters import COUNT, DIRECTORY, duration_ms
from ..output.json_object import print_json
from ..output.text import print_text
from ..units import format_count

EXAMPLES = """\
Examples:
  timestone control watch data dev-17            its packets for ten minutes
  timestone control roll data mqtt               seal the growing segment
  timestone control scrub data                   read and verify the store
  timestone control reload data                  files of users, rules, keys
  timestone control log-level data debug --for 5m

DIR is the store of a server that runs on this machine. Each of these is
recorded in timestone.events. Others are `timestone kick`, `configure`,
`readers` and `pub`.
"""
_WATCH = """\
Examples:
  timestone control watch data dev-17
  timestone read data timestone.events --last 1 --follow

The server records kind, topic, size, QoS and reason of each packet as the event
`watched`, at most 200 a second, and no payload. Only this client leaves the
fast path.
"""
_SCRUB = """\
Examples:
  timestone control scrub data

Reads every sealed segment at full speed. What takes longer than 8 s continues
after the command; `timestone inspect` shows damage that was found.

Exit codes: 0 sound, or still reading; 3 segments are damaged.
"""
EXIT_CORRUPTION = 3
_directory = click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store of a running server.")
_duration = click.option(
    "--for", "duration_ms", metavar="DURATION", type=duration_ms("s"), default="10m", help="For how long."
)


@click.group(cls=Group, epilog=EXAMPLES)
def command() -> None:
    """Have a running server watch a client, roll a log, and more."""


@command.command(epilog=_WATCH)
@_directory
@click.argument("client", metavar="CLIENT", help="The id of the client.")
@click.option("--user", metavar="USER", help="Only the client of this user: users may use the same id.")
@_duration
def watch(directory: Path, client: str, user: str | None, duration_ms: int) -> None:
    """Record the packets of a client for some time."""
    count = 0
    with Caller(directory) as server:
        for front in server.call("status")["fronts_with_clients"]:
            arguments = {"front": front, "client": client, "user": user, "duration_s": duration_ms // 1000}
            count += len(server.call("watch", **arguments)["watched"])
    print_text(f"watching {format_count(count, 'connection')} for {duration_ms // 1000} s")


@command.command()
@_directory
@click.argument("log", metavar="LOG", help="The log.")
@click.option("--partition", metavar="N", type=COUNT, default=0, help="Partition of the log.")
def roll(directory: Path, log: str, partition: int) -> None:
    """Seal the growing segment of a log."""
    found = _call(directory, "roll", log=log, partition=partition)
    print_text(f"rolled {log}-{partition} at offset {found['end_offset']}")


@command.command(epilog=_SCRUB)
@_directory
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def scrub(directory: Path, as_json: bool) -> int:
    """Verify every sealed segment of the store now."""
    found = _call(directory, "scrub")
    damaged = found.get("damaged_segments", 0)
    if as_json:
        print_json({"path": str(directory), **found})
    elif found.get("is_running"):
        print_text("the server is still reading; `timestone inspect` will show what it finds")
    else:
        print_text(
            f"damaged: {format_count(damaged, 'segment')}" if damaged else "every sealed segment is sound"
        )
    return EXIT_CORRUPTION if damaged else 0


@command.command()
@_directory
def reload(directory: Path) -> None:
    """Read users, rules, keys and certificates again."""
    found = _call(directory, "reload")
    print_text(f"reloaded {format_count(found['reloaded'], 'part')}")


@command.command("log-level")
@_directory
@click.argument(
    "level", metavar="LEVEL", type=click.Choice(["debug", "info", "warning", "error"]), help="Level."
)
@_duration
def log_level(directory: Path, level: str, duration_ms: int) -> None:
    """Log more, or less, for some time."""
    found = _call(directory, "log_level", level=level, duration_s=duration_ms // 1000)
    print_text(f"level {level} for {found['duration_s']} s, then {found['usual']} again")


def _call(directory: Path, request: str, **arguments: Any) -> dict[str, Any]:
    with Caller(directory) as server:
        found = server.call(request, **arguments)
    if found.get("is_running") and request != "scrub":
        raise CommandError("the server has not finished within 8 s; its log and events have the outcome")
    return found
