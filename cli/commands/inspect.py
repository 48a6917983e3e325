"""`timestone inspect`: what a store is made of, whether it is sound, and what to do when it is not.

Renders what `timestone.repair.inspection` found; decides nothing itself. Reads only, also a live store and copies.
"""

import argparse

from timestone.errors import UnknownLog
from timestone.repair.inspection import inspect_store
from timestone.repair.inspection_report import StoreReport

from ..errors import UsageError
from ..output.inspect_entries import entries_json, print_entries
from ..output.inspect_table import print_report
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..parser import given_path

EXIT_FAILED = 4
"""Unreadable: for `inspect`, 1 already means something."""

EXAMPLES = """\
examples:
  timestone inspect data                  a table of logs and segments, and the verdict in words
  timestone inspect data --deep           also check every byte of every record
  timestone inspect data --log telemetry --entries
  timestone inspect data --json | jq '.logs[].end_offset'

Works beside the process that owns the store, and on files copied from elsewhere; changes nothing.
Exit codes: 0 clean, 1 unclosed but consistent (as while a process writes), 2 torn tail,
3 corruption, 4 unreadable, 64 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `inspect`."""
    parser.description = "Show logs and segments and say whether they are sound. Reads only."
    parser.epilog = EXAMPLES
    parser.add_argument("directory", metavar="DIR", type=given_path, help="the store")
    parser.add_argument("--log", metavar="NAME", help="only this log, or one partition such as telemetry-0")
    parser.add_argument("--entries", action="store_true", help="list every index entry: one line a record")
    parser.add_argument(
        "--deep", action="store_true", help="check the bytes of every record, not only what is unclosed"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Look, print, and say the state with the exit code."""
    report = _inspected(arguments)
    if arguments.json:
        found = report.to_json()
        if arguments.entries:
            found["entries"] = entries_json(report)
        print_json(found)
    else:
        print_report(report)
        if arguments.entries:
            print_entries(report)
    return report.exit_code


def _inspected(arguments: argparse.Namespace) -> StoreReport:
    with ProgressLine() as progress:
        try:
            return inspect_store(
                arguments.directory,
                deep=arguments.deep,
                log=arguments.log,
                progress=progress.segments,
            )
        except UnknownLog as error:
            raise UsageError(str(error)) from error
