"""`timestone top`: what the clients of a running server do now, the busiest first. Refreshes on a terminal."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..control.caller import Caller
from ..group import Command
from ..input.parameters import DIRECTORY, count_from, duration_ms
from ..output.json_object import print_json
from ..output.tables import print_tables
from ..process.interrupts import Interrupts
from ..units import format_count
from .client_rows import RATES, key, rates_table, size, with_rates

EXAMPLES = """\
Examples:
  timestone top data                      refresh every 2 seconds, Ctrl-C ends
  timestone top data --sort lag           who is furthest behind
  timestone top data --interval 10s
  timestone top data --limit 5 | cat      once, for a file or a pipe
  timestone top data --json | jq '.clients[0].client'

DIR is the store of a server that runs on this machine. Rates are those of the
interval between two looks; the columns are explained by `timestone clients
--help`. The server computes nothing for it in between.
"""

_ORDERS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "messages": lambda row: row[RATES["publishes_received"]] + row[RATES["deliveries_sent"]],
    "bytes": lambda row: row[RATES["bytes_received"]] + row[RATES["bytes_sent"]],
    "lag": lambda row: row["lag"],
    "unsent": lambda row: row["unsent_bytes"],
    "idle": lambda row: row["idle_s"],
}
_STEP_S = 0.2
_OTHER_LINES = 5
"""Lines of a terminal that are not clients."""


class Look(NamedTuple):
    """Counters of a server at a moment."""

    at_s: float
    status: dict[str, Any]
    clients: Sequence[dict[str, Any]]


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store of a running server.")
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(_ORDERS)),
    default="messages",
    help="What puts a client first; messages and bytes count both directions.",
)
@click.option(
    "--interval",
    "interval_ms",
    metavar="DURATION",
    type=duration_ms("s"),
    default="2s",
    help="Time between two looks, from 100ms.",
)
@click.option(
    "--limit",
    metavar="N",
    type=count_from(1),
    default=20,
    help="Number of clients to print, where the output is not a terminal.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object after one interval.")
def command(directory: Path, order: str, interval_ms: int, limit: int, as_json: bool) -> int:
    """Show what the clients of a running server do, the busiest first."""
    interval_s = max(100, interval_ms) / 1000
    with Interrupts() as interrupts:
        if as_json or not sys.stdout.isatty():
            before = _look(directory)
            _wait(interval_s, interrupts)
            _print_once(directory, before, _look(directory), order, limit, as_json=as_json)
            return 0
        _refresh(directory, order, interval_s, interrupts)
    return 0


def _look(directory: Path) -> Look:
    with Caller(directory) as server:
        return Look(time.monotonic(), server.call("status"), server.clients())


def _wait(seconds: float, interrupts: Interrupts) -> None:
    until_s = time.monotonic() + seconds
    while not interrupts.requested and (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(_STEP_S, left_s))


def _busiest(before: Look, now: Look, order: str, limit: int) -> list[dict[str, Any]]:
    earlier = {key(row): row for row in before.clients}
    rows = with_rates(now.clients, earlier, max(0.001, now.at_s - before.at_s))
    rows.sort(key=lambda row: (-_ORDERS[order](row), row["client"]))
    return rows[:limit]


def _totals(before: Look, now: Look) -> dict[str, float]:
    """Return the rates of the server, of connections that have ended as well."""
    passed_s = max(0.001, now.at_s - before.at_s)
    found = {}
    for name, rate in RATES.items():
        rise = sum(part.get(name, 0) for part in now.status["parts"].values()) - sum(
            part.get(name, 0) for part in before.status["parts"].values()
        )
        found[rate] = round(max(0, rise) / passed_s, 1)
    return found


def _headline(directory: Path, before: Look, now: Look) -> str:
    rates = _totals(before, now)
    clients = format_count(len(now.clients), "client")
    return (
        f"{directory}: {clients}, messages/s {rates[RATES['publishes_received']]:,.0f} in"
        f" {rates[RATES['deliveries_sent']]:,.0f} out, bytes/s {size(rates[RATES['bytes_received']])} in"
        f" {size(rates[RATES['bytes_sent']])} out"
    )


def _print_once(directory: Path, before: Look, now: Look, order: str, limit: int, *, as_json: bool) -> None:
    rows = _busiest(before, now, order, limit)
    if as_json:
        print_json(
            {
                "path": str(directory),
                "now_us": now.status["now_us"],
                "client_count": len(now.clients),
                **_totals(before, now),
                "clients": rows,
            }
        )
        return

    def fill(console: Console) -> None:
        console.print(_headline(directory, before, now))
        console.print(rates_table(rows))

    print_tables(fill)


def _refresh(directory: Path, order: str, interval_s: float, interrupts: Interrupts) -> None:
    console = Console(highlight=False, emoji=False, markup=False)
    before = _look(directory)
    with Live(
        Text(f"{directory}: the first figures come after {interval_s:g} s"), console=console, screen=True
    ) as live:
        while True:
            _wait(interval_s, interrupts)
            if interrupts.requested:
                return
            now = _look(directory)
            rows = _busiest(before, now, order, max(1, console.height - _OTHER_LINES))
            live.update(Group(Text(_headline(directory, before, now)), rates_table(rows)), refresh=True)
            before = now
