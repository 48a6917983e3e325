"""A comparison of servers as a table for a person."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from ..environment import Environment
from .comparison import Comparison, ServerRow
from .target import NULL_SERVER

_FILE_WIDTH = 150
"""Where there is no terminal to ask, such as in a pipe, the table takes the room it needs."""


@dataclass(frozen=True, slots=True)
class Column:
    """One figure. With `ratio`, the first server's figure over each other's stands behind it."""

    heading: str
    figure: str
    show: Callable[[float], str]
    ratio: bool = False
    range: bool = False
    """With the lowest and the highest of the runs."""


def _micro(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _kib(value: float) -> str:
    return f"{value / 1024:,.1f}"


def _mib(value: float) -> str:
    return f"{value / 2**20:,.1f}"


def columns(name: str, *, delivers: bool, paced: bool) -> list[Column]:
    """What there is to say about a scenario; a figure that nobody has is left out later."""
    busy = Column("generator", "generator_busy", _percent)
    if name == "connection":
        return [
            Column("connects/s", "per_s", _count, ratio=True),
            Column("cpu us", "cpu_us", _micro, ratio=True),
            Column("p50 us", "connect_p50_us", _micro),
            Column("p99 us", "connect_p99_us", _micro),
            Column("KiB each", "rss_bytes", _kib, ratio=True),
            Column("idle cpu", "idle_cpu", _percent),
            Column("wake p50 us", "delivery_p50_us", _micro, ratio=True),
            busy,
        ]
    if name == "session-unload":
        return [
            Column("unloaded/s", "per_s", _count, ratio=True),
            Column("cpu us", "cpu_us", _micro, ratio=True),
            Column("grew MiB", "grown_bytes", _mib),
            Column("loaded/s", "load_per_s", _count, ratio=True),
            busy,
        ]
    if name == "back-pressure":
        return [
            Column("p50 us", "delivery_p50_us", _micro),
            Column("p99 us", "delivery_p99_us", _micro),
            Column("alone p50", "quiet_delivery_p50_us", _micro),
            Column("p99", "quiet_delivery_p99_us", _micro),
            Column("p50 times", "disturbed_delivery_p50_us", _micro, range=True),
            Column("p99 times", "disturbed_delivery_p99_us", _micro, range=True),
            Column("alone again", "again_delivery_p99_us", _micro, range=True),
            Column("flood MiB/s", "flood_bytes_per_s", _mib),
            Column("grew MiB", "grown_bytes", _mib),
            busy,
        ]
    rate = Column("deliveries/s" if delivers else "messages/s", "per_s", _count, ratio=not paced)
    latency = "delivery" if delivers and paced else "ack"
    return [
        rate,
        Column("cpu us", "cpu_us", _micro, ratio=True),
        Column("p50 us", f"{latency}_p50_us", _micro, ratio=True),
        *(Column(f"{share} us", f"{latency}_{share}_us", _micro) for share in ("p95", "p99", "p99.9", "max")),
        busy,
    ]


def print_comparisons(environment: Environment, comparisons: Sequence[Comparison]) -> None:
    """Header, then table and warnings of each, on standard output."""
    known_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if known_width else _FILE_WIDTH, highlight=False)
    with console.capture() as captured:
        for line in environment.lines():
            console.print(line, soft_wrap=True)
        for comparison in comparisons:
            _print(console, comparison)
    for line in captured.get().splitlines():
        print(line.rstrip())


def _print(console: Console, comparison: Comparison) -> None:
    scenario = comparison.scenario
    console.print()
    console.print(f"[bold]{scenario.describe()}, medians of {comparison.repeat}[/bold]", soft_wrap=True)
    console.print(_table(comparison))
    if not any(row.faults for row in comparison.rows if row.name != NULL_SERVER):
        console.print("Nothing was lost, came twice or out of order.", soft_wrap=True)
    for warning in comparison.warnings:
        console.print(f"[yellow]warning:[/yellow] {warning}", soft_wrap=True)


def _table(comparison: Comparison) -> Table:
    scenario, rows = comparison.scenario, comparison.rows
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("server", no_wrap=True)
    shown = [
        column
        for column in columns(
            scenario.name, delivers=scenario.subscribers > 0, paced=scenario.rate is not None
        )
        if any(column.figure in row.figures for row in rows)
    ]
    compared = any(row.ratios for row in rows if row.name != NULL_SERVER)
    for column in shown:
        table.add_column(column.heading, justify="right", no_wrap=True)
        if column.ratio and compared:
            table.add_column("ratio", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            *(cell for column in shown for cell in _cells(column, row, compared)),
            style="dim" if row.name == NULL_SERVER else "",
        )
    return table


def _cells(column: Column, row: ServerRow, compared: bool) -> list[str]:
    figure, ratio = row.figures.get(column.figure), row.ratios.get(column.figure)
    cells = [column.show(figure.median) if figure else ""]
    if figure and column.range:
        cells[0] += f" ({column.show(figure.low)}–{column.show(figure.high)})"
    if column.ratio and compared:
        cells.append(f"{ratio.median:.2f}" if ratio and row.name != NULL_SERVER else "")
    return cells
