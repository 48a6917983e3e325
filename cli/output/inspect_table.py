"""A store's report as tables for a person."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from timestone.format.names import is_server_log
from timestone.recovery.segment_report import State
from timestone.repair.inspection_report import LogReport, ReaderReport, SegmentReport, StoreReport

from ..units import format_bytes, format_count, format_second
from .explanations import about_pins, explanations, loss, verdict
from .tables import fits, print_tables, simple_table
from .text import not_uploaded, wrapped

_PROSE_WIDTH = 100
_INDENT = (0, 0, 0, 2)
_STYLES: dict[State, str] = {
    State.SEALED: "",
    State.CLOSED: "",
    State.UNCLOSED: "cyan",
    State.TORN: "yellow",
    State.DAMAGED: "red",
    State.ORPHAN: "red",
}
"""Colours of the states, in the order of the attention that they need."""


def print_report(report: StoreReport, *, segments: bool = False) -> None:
    """Print the store, a line for each log, what is to be said about them, and the verdict. segments: instead of the
    line, all facts about each log and the table of its segments."""
    print_tables(lambda console: _print_report(console, report, segments=segments))


def print_readers(report: StoreReport) -> None:
    """Print how far named readers are, and what they pin."""
    print_tables(lambda console: _print_readers(console, report))


def _print_readers(console: Console, report: StoreReport) -> None:
    console.print(_readers(report.readers))
    _print_sentences(console, list(about_pins(report)))


def _print_sentences(console: Console, sentences: Sequence[str]) -> None:
    if sentences:
        console.print()
    for sentence in sentences:
        console.print(Padding(Text(sentence), _INDENT), width=min(console.width, _PROSE_WIDTH))


def _print_report(console: Console, report: StoreReport, *, segments: bool) -> None:
    owner = "not owned by any process" if report.owner_pid is None else f"owned by process {report.owner_pid}"
    owner = report.owner or owner
    own = [log for log in report.logs if is_server_log(log.log)]
    others = [log for log in report.logs if not is_server_log(log.log)]
    console.print(f"{report.path}: {format_count(len(others), 'log')}, {owner}")
    if segments:
        for log in [*others, *own]:
            _print_log(console, log)
    else:
        for logs, about in ((others, ""), (own, "written by the server about itself:")):
            _print_logs(console, logs, about)
    if report.bucket:
        console.print(f"\nuploaded to {report.bucket}, as far as the store has noted:")
        console.print(Padding(_uploads(others), _INDENT, expand=False))
    if report.readers:
        console.print()
        console.print(Padding(_readers(report.readers), _INDENT, expand=False))
    _print_sentences(console, list(explanations(report)))
    console.print(f"\n{verdict(report)}")


def _print_logs(console: Console, logs: Sequence[LogReport], about: str) -> None:
    if not logs:
        return
    console.print(f"\n{about}" if about else "")
    table = _logs(logs, wide=True)
    if not fits(console, table, indent=_INDENT[-1]):
        table = _logs(logs, wide=False)
    console.print(Padding(table, _INDENT, expand=False))


def _print_log(console: Console, log: LogReport) -> None:
    console.print()
    name = f"{log.log}-{log.partition}"
    console.print(Text.assemble((name, "bold"), wrapped(f"{name} {_log_facts(log)}")[len(name) :]))
    if log.segments:
        table = _segments(log, wide=True)
        if not fits(console, table, indent=_INDENT[-1]):
            table = _segments(log, wide=False)
        console.print(Padding(table, _INDENT, expand=False))


def _logs(logs: Sequence[LogReport], *, wide: bool) -> Table:
    """Return the table of logs. Not wide: without the columns that matter least; `--json` has them all."""
    table = simple_table()
    table.add_column("log", overflow="fold")
    for heading in ("start", "end", "records", "bytes", *(["stored", "topics", "epoch"] if wide else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("segments", justify="right", no_wrap=True)
    table.add_column("state")
    for log in logs:
        cells = [str(log.start_offset), str(log.end_offset), f"{log.records:,}", format_bytes(log.bytes)]
        if wide:
            cells += [format_bytes(log.stored_bytes), f"{log.topics:,}", str(log.epoch)]
        cells.append(f"{len(log.segments):,}")
        worst = _worst(log)
        unsynced = f", synced to {log.synced_offset}" if log.synced_offset < log.end_offset else ""
        state = "unreadable" if log.error else f"{worst or 'empty'}{unsynced}"
        style = "red" if log.error else _STYLES[worst] if worst else ""
        table.add_row(f"{log.log}-{log.partition}", *cells, state, style=style)
    return table


def _uploads(logs: Sequence[LogReport]) -> Table:
    """Return the table of what the bucket of a store has."""
    table = simple_table()
    table.add_column("log", overflow="fold")
    table.add_column("up to", justify="right", no_wrap=True)
    table.add_column("not uploaded")
    for log in logs:
        name = f"{log.log}-{log.partition}"
        if log.uploaded_offset is None:
            table.add_row(name, "", "not readable" if log.error else "stays on the disk")
        else:
            growing = sum(
                one.records
                for one in log.segments
                if one.state in (State.CLOSED, State.UNCLOSED, State.TORN)
                and one.next_offset > log.uploaded_offset
            )
            waiting = not_uploaded(log.waiting_segments, log.waiting_bytes, growing)
            table.add_row(name, str(log.uploaded_offset), waiting)
    return table


def _worst(log: LogReport) -> State | None:
    """Return the state of the segment that needs most attention; None without segments."""
    states = list(_STYLES)
    return max((State(segment.state) for segment in log.segments), key=states.index, default=None)


def _log_facts(log: LogReport) -> str:
    if log.error:
        return "unreadable"
    unsynced = log.end_offset - log.synced_offset
    synced = f"synced to {log.synced_offset}" if unsynced else "all synced"
    bucket = "" if log.local_start_offset is None else f" (below {log.local_start_offset} in the bucket only)"
    return (
        f"offsets [{log.start_offset}, {log.end_offset}){bucket}, {synced}, {format_count(log.records, 'record')}, "
        f"{_size(log.bytes, log.stored_bytes)}, {format_count(log.topics, 'topic')}, epoch {log.epoch}, "
        f"id {log.id:016x}"
    )


def _size(raw_bytes: int, stored_bytes: int) -> str:
    stored = f" ({format_bytes(stored_bytes)} stored)" if stored_bytes != raw_bytes else ""
    return f"{format_bytes(raw_bytes)}{stored}"


def _segments(log: LogReport, *, wide: bool) -> Table:
    """Return the table of segments. Not wide: without the columns that matter least; `--json` has them all."""
    lossy = any(loss(segment) for segment in log.segments)
    compressed = log.stored_bytes != log.bytes
    table = simple_table()
    sizes = ["bytes", *(["stored"] if compressed else []), *(["index"] if wide else [])]
    for heading in ("base", "next", "records", *sizes):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("first", "last") if wide else ("last",):
        table.add_column(heading, no_wrap=True)
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
    table = simple_table()
    table.add_column("named reader", overflow="fold")
    table.add_column("log", overflow="fold")
    for heading in ("next", "lag", "missed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("committed", no_wrap=True)
    for reader in readers:
        table.add_row(
            reader.name,
            f"{reader.log}-{reader.partition}",
            str(reader.offset),
            "?" if reader.lag is None else f"{reader.lag:,}",
            f"{reader.missed:,}" if reader.missed else "",
            format_second(reader.committed_us),
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
        cells += [format_bytes(segment.index_bytes), format_second(segment.first_timestamp_us)]
    cells += [format_second(segment.last_timestamp_us), segment.state]
    if wide:
        cells += [f"{segment.checkpoint:,}", "" if segment.topics is None else f"{segment.topics:,}"]
    return cells
