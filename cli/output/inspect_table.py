"""A store's report as tables for a person."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from timestone.recovery.segment_report import State
from timestone.repair.inspection_report import LogReport, ReaderReport, SegmentReport, StoreReport

from ..units import format_bytes, format_count, format_timestamp
from .explanations import about_pin, explanations, loss, verdict
from .tables import print_tables

_WIDE = 110
"""On a narrower terminal the columns that matter least are left out; `--json` has them all."""
_PROSE_WIDTH = 100
_INDENT = (0, 0, 0, 2)
_STYLES = {
    State.SEALED: "",
    State.UNCLOSED: "cyan",
    State.TORN: "yellow",
    State.DAMAGED: "red",
    State.ORPHAN: "red",
}


def print_report(report: StoreReport) -> None:
    """Print the store, its logs with their segments, what is to be said about them, and the verdict."""
    print_tables(lambda console: _print_report(console, report))


def print_readers(readers: Sequence[ReaderReport]) -> None:
    """Print how far named readers are, and what they pin."""
    print_tables(lambda console: _print_readers(console, readers))


def _print_readers(console: Console, readers: Sequence[ReaderReport]) -> None:
    console.print(_readers(readers))
    _print_sentences(console, [about_pin(one, one.pin) for one in readers if one.pin is not None])


def _print_sentences(console: Console, sentences: Sequence[str]) -> None:
    if sentences:
        console.print()
    for sentence in sentences:
        console.print(Padding(Text(sentence), _INDENT), width=min(console.width, _PROSE_WIDTH))


def _print_report(console: Console, report: StoreReport) -> None:
    owner = "not owned by any process" if report.owner_pid is None else f"owned by process {report.owner_pid}"
    console.print(f"{report.path}: {format_count(len(report.logs), 'log')}, {owner}")
    for log in report.logs:
        console.print()
        console.print(Text(f"{log.log}-{log.partition}", style="bold"), _log_facts(log), soft_wrap=True)
        if log.segments:
            console.print(Padding(_segments(log, console.width), _INDENT, expand=False))
    if report.readers:
        console.print()
        console.print(Padding(_readers(report.readers), _INDENT, expand=False))
    _print_sentences(console, list(explanations(report)))
    console.print(f"\n{verdict(report)}")


def _log_facts(log: LogReport) -> str:
    if log.error:
        return "unreadable"
    unsynced = log.end_offset - log.synced_offset
    synced = f"synced to {log.synced_offset}" if unsynced else "all synced"
    return (
        f"offsets [{log.start_offset}, {log.end_offset}), {synced}, {format_count(log.records, 'record')}, "
        f"{_size(log.bytes, log.stored_bytes)}, {format_count(log.topics, 'topic')}, epoch {log.epoch}, "
        f"id {log.id:016x}"
    )


def _size(raw_bytes: int, stored_bytes: int) -> str:
    stored = f" ({format_bytes(stored_bytes)} stored)" if stored_bytes != raw_bytes else ""
    return f"{format_bytes(raw_bytes)}{stored}"


def _segments(log: LogReport, width: int) -> Table:
    wide = width >= _WIDE
    lossy = any(loss(segment) for segment in log.segments)
    compressed = log.stored_bytes != log.bytes
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    sizes = ["bytes", *(["stored"] if compressed else []), *(["index"] if wide else [])]
    for heading in ("base", "next", "records", *sizes):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("first", "last"):
        table.add_column(heading, min_width=len("2026-07-01"))  # may break before the time of day
    table.add_column("state", no_wrap=True)
    for heading in ("durable", "topics") if wide else ():
        table.add_column(heading, justify="right", no_wrap=True)
    if lossy:
        table.add_column("lost")
    for segment in log.segments:
        cells = [*_cells(segment, wide, compressed), *([loss(segment)] if lossy else [])]
        table.add_row(*cells, style=_STYLES[State(segment.state)])
    return table


def _readers(readers: Sequence[ReaderReport]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("named reader", overflow="fold")
    table.add_column("log")
    for heading in ("next", "lag", "missed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("committed")
    for reader in readers:
        table.add_row(
            reader.name,
            f"{reader.log}-{reader.partition}",
            str(reader.offset),
            "?" if reader.lag is None else f"{reader.lag:,}",
            f"{reader.missed:,}" if reader.missed else "",
            _time(reader.committed_us),
            style="yellow" if reader.missed else "",
        )
    return table


def _cells(segment: SegmentReport, wide: bool, compressed: bool) -> list[str]:
    cells = [
        str(segment.base_offset),
        str(segment.next_offset),
        f"{segment.records:,}",
        format_bytes(segment.bytes),
    ]
    if compressed:
        cells.append(format_bytes(segment.stored_bytes))
    if wide:
        cells.append(format_bytes(segment.index_bytes))
    cells += [_time(segment.first_timestamp_us), _time(segment.last_timestamp_us), segment.state]
    if wide:
        cells += [f"{segment.checkpoint:,}", "" if segment.topics is None else f"{segment.topics:,}"]
    return cells


def _time(timestamp_us: int) -> str:
    """To the second; the blank lets a narrow terminal break it between date and time."""
    return format_timestamp(timestamp_us)[:19].replace("T", " ") if timestamp_us else ""
