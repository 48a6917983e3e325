"""The state of a pipeline as tables for a person."""

from rich.table import Table

from timestone_pipeline import PipelineStatus

from ..units import format_bytes, format_count, format_second
from .tables import print_tables, simple_table
from .text import print_text


def print_status(path: str, status: PipelineStatus) -> None:
    """Print tables, logs, dead letters and windows, and whether the counts add up."""
    age = "never written" if status.age_s is None else f"last written {status.age_s:,.0f} s ago"
    print(f"{path}: {status.batches:,} batch{'' if status.batches == 1 else 'es'}, {age}\n")
    _print(_tables(status))
    if status.logs:
        _print(_logs(status))
    if status.problems:
        _print(_problems(status))
    for minutes, closed_us in status.closed_us.items():
        print(f"windows of {minutes} min are closed up to {format_second(closed_us)}")
    if status.late:
        waiting = format_count(status.late, "late message")
        print_text(f"{waiting} not in all windows yet: timestone pipeline backfill, when those are closed")
    if status.exact:
        print("bronze = clean + dead_letters + duplicates")
    else:
        print("bronze is NOT clean + dead_letters + duplicates: rows were lost or came twice")


def _print(table: Table) -> None:
    print_tables(lambda console: console.print(table))
    print()


def _grid(*headings: str) -> Table:
    table = simple_table()
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("table", "log", "dead letters") else "right")
    return table


def _tables(status: PipelineStatus) -> Table:
    table = _grid("table", "rows", "files", "bytes")
    for one in status.tables:
        table.add_row(one.table, f"{one.rows:,}", f"{one.files:,}", format_bytes(one.file_bytes))
    return table


def _logs(status: PipelineStatus) -> Table:
    table = _grid("log", "position", "end", "lag")
    for one in status.logs:
        end, lag = ("?" if value is None else f"{value:,}" for value in (one.synced_offset, one.lag))
        table.add_row(f"{one.log}-{one.partition}", f"{one.offset:,}", end, lag)
    return table


def _problems(status: PipelineStatus) -> Table:
    table = _grid("dead letters", "rows")
    for problem, count in status.problems.items():
        table.add_row(problem, f"{count:,}")
    return table
