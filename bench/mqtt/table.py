"""A comparison of servers as a table for a person."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.table import Table

from timestone_cli.output.tables import print_split, print_tables, simple_table
from timestone_cli.output.text import print_text

from ..environment import Environment
from .comparison import Comparison, ServerRow
from .target import NULL_SERVERS


@dataclass(frozen=True, slots=True)
class Column:
    """One figure. With `ratio`, it is followed by the first server's figure over each other's."""

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
    """Return the columns of a scenario; a figure that no server has is left out later."""
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
    latency = "delivery" if name == "ping-pong" or (delivers and paced) else "ack"
    return [
        rate,
        Column("cpu us", "cpu_us", _micro, ratio=True),
        Column("p50 us", f"{latency}_p50_us", _micro, ratio=True),
        *(Column(f"{share} us", f"{latency}_{share}_us", _micro) for share in ("p95", "p99", "p99.9", "max")),
        busy,
    ]


def print_environment(environment: Environment) -> None:
    """Print the header of the tables on standard output."""
    for line in environment.lines():
        print_text(line)


def print_comparison(comparison: Comparison) -> None:
    """Print the table of a scenario with its warnings on standard output."""
    print()
    print_text(f"{comparison.scenario.describe()}, medians of {comparison.repeat}")
    print()
    print_tables(lambda console: print_split(console, _table(comparison), attached=("ratio",)))
    print()
    if not any(row.faults for row in comparison.rows if row.name not in NULL_SERVERS):
        print_text("Nothing was lost, came twice or out of order.")
    for warning in comparison.warnings:
        print_text(f"warning: {warning}")


def _table(comparison: Comparison) -> Table:
    scenario, rows = comparison.scenario, comparison.rows
    table = simple_table()
    table.add_column("server", no_wrap=True)
    shown = [
        column
        for column in columns(
            scenario.name, delivers=scenario.subscribers > 0, paced=scenario.rate is not None
        )
        if any(column.figure in row.figures for row in rows)
    ]
    compared = any(row.ratios for row in rows if row.name not in NULL_SERVERS)
    for column in shown:
        table.add_column(column.heading, justify="right", no_wrap=True)
        if column.ratio and compared:
            table.add_column("ratio", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            *(cell for column in shown for cell in _cells(column, row, compared)),
            style="dim" if row.name in NULL_SERVERS else "",
        )
    return table


def _cells(column: Column, row: ServerRow, compared: bool) -> list[str]:
    figure, ratio = row.figures.get(column.figure), row.ratios.get(column.figure)
    cells = [column.show(figure.median) if figure else ""]
    if figure and column.range:
        cells[0] += f" ({column.show(figure.low)}–{column.show(figure.high)})"
    if column.ratio and compared:
        cells.append(f"{ratio.median:.2f}" if ratio and row.name not in NULL_SERVERS else "")
    return cells
