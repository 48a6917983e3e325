"""`timestone inspect`: what a store is made of, whether it is sound, and what to do when it is not.

Renders what `timestone.inspection` found; decides nothing itself. Reads only, also a live store and copied files.
"""

from pathlib import Path

import click

from timestone.errors import NotAStore, UnknownLog
from timestone.repair.inspection import inspect_store
from timestone.repair.inspection_report import StoreReport

from ..errors import EXIT_SYSTEM, UsageError
from ..group import Command
from ..input.parameters import DIRECTORY
from ..output.inspect_entries import entries_json, print_entries
from ..output.inspect_table import print_report
from ..output.json_object import print_json
from ..output.progress import ProgressLine

EXAMPLES = """\
Examples:
  timestone inspect data          logs and segments, and the verdict in words
  timestone inspect data --deep   also check every byte of every record
  timestone inspect data --log telemetry --entries
  timestone inspect data --json | jq '.logs[].end_offset'

Works beside the process that owns the store, and on files copied from
elsewhere; changes nothing.

Exit codes: 0 clean, also while a process writes; 1 unclosed but consistent: its
process ended without closing it; 2 torn tail; 3 corruption; 4 unreadable;
64 wrong usage, also when there is no such store or log; 74 the system failed,
for example because the output could not be written.
"""


@click.command(cls=Command, epilog=EXAMPLES, exit_failed=EXIT_SYSTEM)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store.")
@click.option("--log", metavar="LOG", help="Only this log, or one partition such as telemetry-0.")
@click.option("--entries", is_flag=True, help="List every index entry: one line a record.")
@click.option("--deep", is_flag=True, help="Check the bytes of every record, not only of unclosed segments.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, log: str | None, entries: bool, deep: bool, as_json: bool) -> int:
    """Show logs and segments and whether they are sound. Reads only."""
    report = _inspected(directory, log, deep=deep)
    if as_json:
        found = report.to_json()
        if entries:
            found["entries"] = entries_json(report)
        print_json(found)
    else:
        print_report(report)
        if entries:
            print_entries(report)
    return report.exit_code


def _inspected(directory: Path, log: str | None, *, deep: bool) -> StoreReport:
    with ProgressLine() as progress:
        try:
            return inspect_store(directory, deep=deep, log=log, progress=progress.segments)
        except (NotAStore, UnknownLog) as error:
            raise UsageError(str(error)) from error
