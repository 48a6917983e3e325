"""A throughput result as a table for a person."""

import os
import sys

from rich import box
from rich.console import Console
from rich.table import Table

from .measurement import PERCENTILES
from .throughput_result import Result, Row

_FILE_WIDTH = 140
"""Where there is no terminal to ask, such as in a pipe, the table takes the room it needs."""


def print_result(result: Result) -> None:
    """Header, table, warnings, on standard output."""
    known_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if known_width else _FILE_WIDTH, highlight=False)
    if console.is_terminal:
        _print_result(console, result)
        return
    with console.capture() as captured:
        _print_result(console, result)
    for line in captured.get().splitlines():
        print(line.rstrip())  # tables fill up their lines with blanks, which no file needs


def _print_result(console: Console, result: Result) -> None:
    for line in result.environment.lines():
        console.print(line, soft_wrap=True)
    parameters = result.parameters
    console.print(
        f"{parameters['count']:,} records of {parameters['record_bytes']:,} bytes, "
        f"ack {parameters['ack']} unless the row says otherwise, medians of {parameters['repeat']}",
        soft_wrap=True,
    )
    console.print()
    console.print(_table(result, console.width))
    console.print()
    console.print(
        "MB are 10^6 bytes of records. Ratio: records/s over those of the raw row above it, in the same repeat."
    )
    for warning in result.warnings:
        console.print(f"[yellow]warning:[/yellow] {warning}", soft_wrap=True)


def _table(result: Result, width: int) -> Table:
    percentiles = _shown_percentiles(width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("row", no_wrap=True)
    headings = [
        "records/s",
        "MB/s",
        "MB/s synced",
        "ratio",
        "cpu s/GB",
        *(f"{name} us" for name in percentiles),
    ]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row, following in zip(result.rows, [*result.rows[1:], None], strict=True):
        table.add_row(
            row.name if row.peer is None else f"  {row.name}",
            f"{row.records_per_s.median:,.0f}",
            f"{row.mb_per_s.median:,.1f}",
            f"{row.mb_per_s_synced.median:,.1f}" if row.mb_per_s_synced else "",
            f"{row.ratio.median:.2f}" if row.ratio else "",
            f"{row.cpu_s_per_gb.median:,.2f}",
            *(_microseconds(row.call_us[name]) for name in percentiles),
            style="dim" if row.peer is None else "",
            end_section=_ends_group(row, following),
        )
    return table


def _shown_percentiles(width: int) -> list[str]:
    """All of them where there is room; on a narrow terminal those that say most. `--json` has them all."""
    for width_needed, names in ((128, list(PERCENTILES)), (104, ["p50", "p99", "max"]), (94, ["p50", "p99"])):
        if width >= width_needed:
            return names
    return []


def _ends_group(row: Row, following: Row | None) -> bool:
    return following is not None and following.peer is None


def _microseconds(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
