"""A throughput result as a table for a person."""

from rich.table import Table

from timestone_cli.output.tables import print_split, print_tables, simple_table
from timestone_cli.output.text import print_text

from ..measurement import PERCENTILES
from .throughput_result import Result, Row


def print_result(result: Result) -> None:
    """Header, table, warnings, on standard output."""
    for line in result.environment.lines():
        print_text(line)
    parameters = result.parameters
    print_text(
        f"{parameters['count']:,} records of {parameters['record_bytes']:,} bytes, "
        f"ack {parameters['ack']} unless the row says otherwise, medians of {parameters['repeat']}"
    )
    print()
    print_tables(lambda console: print_split(console, _table(result)))
    print()
    print_text(
        "MB are 10^6 bytes of records. Ratio: records/s over those of the raw row above it, in the same repeat."
    )
    for warning in result.warnings:
        print_text(f"warning: {warning}")


def _table(result: Result) -> Table:
    table = simple_table()
    table.add_column("row", no_wrap=True)
    headings = [
        "records/s",
        "MB/s",
        "MB/s synced",
        "ratio",
        "cpu s/GB",
        *(f"{name} us" for name in PERCENTILES),
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
            *(_microseconds(row.call_us[name]) for name in PERCENTILES),
            style="dim" if row.peer is None else "",
            end_section=_ends_group(row, following),
        )
    return table


def _ends_group(row: Row, following: Row | None) -> bool:
    return following is not None and following.peer is None


def _microseconds(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
