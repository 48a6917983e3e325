"""`timestone bench sizing`: machines, disks, bucket and money for fleets of devices. It measures nothing: it computes
with what was measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from timestone_cli.errors import UsageError
from timestone_cli.group import Command, Option
from timestone_cli.input.parameters import Parsed
from timestone_cli.output.json_object import print_json
from timestone_cli.output.tables import print_split, print_tables, simple_table

from ..options import AMOUNT, POSITIVE, Decorator, json_option
from .constants import CHOSEN, MEASURED, PRICES, Constant, constants
from .model import Fleet, Size, size

_DEVICES = (10, 1_000, 100_000, 1_000_000)
_EXAMPLES = """\
Examples:
  timestone bench sizing
  timestone bench sizing --devices 50000 --interval 60 --payload-bytes 1000
  timestone bench sizing --devices 1000000 --clusters 10
  timestone bench sizing --price core=12 --price traffic=0
  timestone bench sizing --set "led message=30" --json

Prices are examples, in any currency. --constants prints all numbers and where
they come from.
"""
_Line = tuple[str, Callable[[Size], str]]


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


_LINES: Sequence[_Line] = (
    ("messages/s", lambda one: _count(one.messages_per_s)),
    ("clusters", lambda one: f"{one.clusters}"),
    ("nodes", lambda one: f"{one.nodes}"),
    ("… decided by", lambda one: one.bound),
    ("cores, all nodes", lambda one: f"{one.cores}"),
    ("busy, of a node's core", lambda one: f"{one.node_busy:.1%} to {one.node_busy_alone:.1%}"),
    ("memory of a node, GiB", lambda one: _count(one.node_memory_gib)),
    ("disk of a node, GB", lambda one: _count(one.node_disk_gb)),
    ("disk of a node, MB/s", lambda one: _count(one.node_disk_mb_per_s)),
    ("network of a node, MB/s", lambda one: _count(one.node_network_mb_per_s)),
    ("local, GB a day", lambda one: _count(one.local_gb_per_day)),
    ("bucket, GB a day", lambda one: _count(one.bucket_gb_per_day)),
    ("bucket in the end, TB", lambda one: _count(one.bucket_tb)),
    ("writes to the bucket a day", lambda one: _count(one.bucket_writes_per_day)),
    ("a node lost: clients back, s", lambda one: _count(one.reconnect_s) if one.reconnect_s else "restart"),
    ("… state that is read, MB", lambda one: _count(one.state_mb)),
    ("requests to etcd/s", lambda one: _count(one.etcd_per_s)),
    *(
        (f"{name} a month", lambda one, name=name: _count(one.costs[name]))
        for name in ("cores", "memory", "disks", "bucket", "requests", "traffic")
    ),
    ("all a month", lambda one: _count(one.cost)),
    ("… a device", lambda one: ""),
)


def _pair(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        if not equals or not name:
            raise ValueError
        return name.strip(), float(value)
    except ValueError:
        raise ValueError(f"expected NAME=NUMBER, got {text!r}") from None


_PAIR = Parsed("pair", _pair)


def _fleet(*names: str, help: str, kind: click.ParamType[Any] = AMOUNT) -> Decorator:
    return click.option(*names, cls=Option, heading="Fleet", metavar="N", type=kind, help=help)


@click.command(cls=Command, epilog=_EXAMPLES)
@_fleet("--devices", kind=POSITIVE, help="Number of devices.  [default: 10, 1,000, 100,000 and 1,000,000]")
@_fleet("--interval", "interval_s", help="Seconds between two messages of a device.  [default: 10]")
@_fleet("--payload-bytes", kind=POSITIVE, help="Bytes of a message.  [default: 200]")
@_fleet("--replicas", kind=POSITIVE, help="Replicas of each record; 1: one server, no cluster.  [default: 3]")
@_fleet(
    "--clusters",
    kind=POSITIVE,
    help="Clusters that the devices are divided over.  [default: as many as need the fewest nodes]",
)
@click.option("--plain", cls=Option, heading="Fleet", is_flag=True, help="Connections have no TLS.")
@_fleet("--local-days", help="Days on the disks of nodes.  [default: 3]")
@_fleet("--bucket-days", help="Days in the bucket.  [default: 365]")
@_fleet("--compression", help="Bytes of a record over those in the bucket.  [default: 1]")
@click.option("--price", "prices", metavar="NAME=N", type=_PAIR, multiple=True, help="A price; repeatable.")
@click.option(
    "--set", "settings", metavar="NAME=N", type=_PAIR, multiple=True, help="Another constant; repeatable."
)
@click.option(
    "--constants", "only_constants", is_flag=True, help="Print the constants and where they come from."
)
@click.option("--markdown", is_flag=True, help="Print tables of Markdown.")
@json_option
def command(
    devices: int | None,
    plain: bool,
    prices: Sequence[tuple[str, float]],
    settings: Sequence[tuple[str, float]],
    only_constants: bool,
    markdown: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Compute what fleets of devices need in machines, disks, bucket and money."""
    values = _values(prices, settings)
    if only_constants:
        return _print_constants(markdown=markdown, as_json=as_json)
    fleet = replace(Fleet(devices=1), tls=not plain, **{name: one for name, one in given.items() if one})
    try:
        sizes = {
            count: size(replace(fleet, devices=count), values)
            for count in ([devices] if devices else _DEVICES)
        }
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        found = [
            {"devices": count, **asdict(one), "cost": one.cost, "cost_per_device": one.cost / count}
            for count, one in sizes.items()
        ]
        print_json({"fleet": asdict(fleet), "constants": values, "sizes": found})
        return None
    return _show(("devices", *(f"{count:,}" for count in sizes)), lines_of(sizes), markdown=markdown)


def _values(prices: Sequence[tuple[str, float]], settings: Sequence[tuple[str, float]]) -> dict[str, float]:
    values = constants()
    changes = [(f"price of {name}", value) for name, value in prices] + list(settings)
    for name, value in changes:
        if name not in values:
            raise UsageError(f"invalid name {name!r}: expected one of {', '.join(values)}")
        values[name] = value
    return values


def lines_of(sizes: Mapping[int, Size]) -> list[list[str]]:
    """Return the lines of the table, a column for each number of devices."""
    lines = [[name, *(show(one) for one in sizes.values())] for name, show in _LINES[:-1]]
    lines.append([_LINES[-1][0], *(_count(one.cost / count) for count, one in sizes.items())])
    return lines


def constant_lines() -> list[list[str]]:
    """Return the lines of the table of constants."""
    kinds: tuple[tuple[str, Mapping[str, Constant]], ...] = (
        ("measured", MEASURED), ("chosen", CHOSEN), ("price", PRICES),
    )  # fmt: skip
    return [
        [f"{kind}: {name}", f"{one.value:,g}", one.unit, one.source]
        for kind, table in kinds
        for name, one in table.items()
    ]


def _print_constants(*, markdown: bool, as_json: bool) -> None:
    if as_json:
        tables = {"measured": MEASURED, "chosen": CHOSEN, "prices": PRICES}
        found = {kind: {name: one._asdict() for name, one in table.items()} for kind, table in tables.items()}
        print_json(found)
        return
    _show(("constant", "value", "unit", "from"), constant_lines(), markdown=markdown)


def _show(headings: Sequence[str], lines: Sequence[Sequence[str]], *, markdown: bool) -> None:
    if markdown:
        for line in (headings, ["---", *["---:"] * (len(headings) - 1)], *lines):
            print(f"| {' | '.join(line)} |")
        return
    table = simple_table()
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    for line in lines:
        table.add_row(*line)
    print_tables(lambda console: print_split(console, table))
