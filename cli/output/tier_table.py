"""The history in a bucket as tables for a person."""

from rich.console import Console

from timestone_tiering.operations.status import BucketStatus, LogStored
from timestone_tiering.operations.verification import LogVerification, ObjectDamage

from ..units import format_bytes, format_count, format_second, format_timestamp
from .tables import fits, print_split, print_tables, simple_table
from .text import not_uploaded, print_text


def print_status(status: BucketStatus) -> None:
    """Print who uploads, the logs, and what is to be said about them."""
    logs = format_count(len(status.logs), "log")
    size = format_bytes(sum(one.stored_bytes for one in status.logs))
    print_text(f"{status.url}: {logs}, {size}; {_claim(status)}")
    if status.logs:
        print()
        print_tables(lambda console: _print_logs(console, status))
    for one in status.logs:
        for first, end in one.missing:
            print_text(
                f"{one.log}-{one.partition}: offsets {first} to {end - 1} were lost before their upload"
            )


def print_verification(log: LogVerification) -> None:
    """Print what was read of a log, and each damaged object."""
    print(
        f"{log.log}-{log.partition}: offsets [{log.start_offset}, {log.end_offset}), "
        f"{format_count(log.object_count, 'object')}, {format_bytes(log.bytes)}"
    )
    for one in log.damage:
        print_text(f"  {one.object}: {_affected(one)}{one.reason}")


def _claim(status: BucketStatus) -> str:
    claim = status.claim
    if claim is None:
        return "no store has claimed it"
    own = {True: ", which is this store", False: ", which is ANOTHER store", None: ""}[status.is_own_claim]
    who = "" if claim.host is None else f" by {claim.host}, pid {claim.pid}"
    when = "" if claim.claimed_us is None else f" at {format_timestamp(claim.claimed_us)}"
    return f"claimed{who}{when}{own} (generation {claim.generation})"


def _print_logs(console: Console, status: BucketStatus) -> None:
    table = simple_table()
    for heading in ("log", "start", "end", "records", "segments", "size"):
        table.add_column(heading, justify="left" if heading == "log" else "right", no_wrap=True)
    for heading in ("first record", "last record", "manifest"):
        table.add_column(heading, no_wrap=True)
    compared = any(one.waiting is not None for one in status.logs)
    if compared:
        table.add_column("not uploaded", justify="right", no_wrap=True)
    for one in status.logs:
        cells = [
            f"{one.log}-{one.partition}",
            str(one.start_offset),
            str(one.end_offset),
            f"{one.records:,}",
            f"{one.segment_count:,}",
            format_bytes(one.stored_bytes),
            format_second(one.first_timestamp_us or 0),
            format_second(one.last_timestamp_us or 0),
            format_second(one.written_us),
        ]
        table.add_row(*cells, *([_waiting(one)] if compared else []))
    if fits(console, table):
        console.print(table)
    else:
        print_split(console, table)


def _waiting(log: LogStored) -> str:
    if log.waiting is None:
        return "not in this store"
    return not_uploaded(*log.waiting)


def _affected(damage: ObjectDamage) -> str:
    if damage.first_offset is None or damage.end_offset is None:
        return ""
    if damage.end_offset - damage.first_offset == 1:
        return f"offset {damage.first_offset}: "
    return f"offsets {damage.first_offset} to {damage.end_offset - 1}: "
