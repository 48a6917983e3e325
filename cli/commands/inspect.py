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
from ..input.bucket_options import bucket_at, noted_bucket
from ..input.parameters import STORE_OR_BUCKET
from ..output.inspect_entries import entries_json, print_entries
from ..output.inspect_table import print_report
from ..output.json_object import print_json
from ..output.progress import ProgressLine

EXAMPLES = """\
Examples:
  timestone inspect data          a line for each log, and the verdict
  timestone inspect data --segments --log telemetry
                                  also a line for each segment of this log
  timestone inspect data --deep   also check every byte of every record
  timestone inspect data --log telemetry --entries
  timestone inspect data --json | jq '.logs[].end_offset'
  timestone inspect s3://bucket/plant
                                  what a store has uploaded

Works beside the process that owns the store, and on files copied from
elsewhere; changes nothing.

Exit codes: 0 clean, also while a process writes; 1 unclosed but consistent: its
process ended without closing it; 2 torn tail; 3 corruption; 4 unreadable;
64 invalid arguments, or no such store or log; 74 the system failed, for
example because the output could not be written.
"""


@click.command(cls=Command, epilog=EXAMPLES, exit_failed=EXIT_SYSTEM)
@click.argument(
    "directory", metavar="DIR", type=STORE_OR_BUCKET, help="The store, or the URL of a bucket it uploads to."
)
@click.option("--log", metavar="LOG", help="Only this log, or one partition such as telemetry-0.")
@click.option("--segments", is_flag=True, help="List the segments: offsets, sizes, times, states.")
@click.option("--entries", is_flag=True, help="List every index entry: one line a record.")
@click.option("--deep", is_flag=True, help="Check the bytes of every record, not only of unclosed segments.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, always with the segments.")
def command(
    directory: Path | str, log: str | None, segments: bool, entries: bool, deep: bool, as_json: bool
) -> int:
    """Show logs and segments and whether they are sound. Reads only."""
    report = _inspected(directory, log, deep=deep)
    if as_json:
        found = report.to_json()
        if entries:
            found["entries"] = entries_json(report)
        print_json(found)
    else:
        print_report(report, segments=segments)
        if entries:
            print_entries(report)
    return report.exit_code


def _inspected(directory: Path | str, log: str | None, *, deep: bool) -> StoreReport:
    if isinstance(directory, str):
        return _inspected_bucket(directory, log, deep=deep)
    with ProgressLine() as progress:
        try:
            return inspect_store(
                directory,
                deep=deep,
                log=log,
                progress=progress.segments,
                bucket=noted_bucket(directory),
            )
        except (NotAStore, UnknownLog) as error:
            raise UsageError(str(error)) from error


def _inspected_bucket(url: str, log: str | None, *, deep: bool) -> StoreReport:
    # Not at the top: a store on the disk is inspected without the client of the bucket.
    from timestone_tiering.errors import NoHistory  # noqa: PLC0415
    from timestone_tiering.operations.inspection import inspect_bucket  # noqa: PLC0415

    with ProgressLine() as progress:
        try:
            return inspect_bucket(bucket_at(url, None, None), deep=deep, log=log, progress=progress.bytes)
        except (NoHistory, UnknownLog) as error:
            raise UsageError(str(error)) from error
