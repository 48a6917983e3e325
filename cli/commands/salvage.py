"""`timestone salvage`: copy everything that can still be proved out of a damaged store, into a new one.

Renders what `timestone.repair.salvage` did; decides nothing itself. The original is only read.
"""

import argparse
from pathlib import Path

from timestone.repair.salvage import REPORT_NAME, salvage_store
from timestone.repair.salvage_report import EXIT_LOSSES, EXIT_WHOLE, LogSalvage, SalvageReport

from ..errors import UsageError
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..parser import given_path
from ..units import format_bytes, format_count

EXAMPLES = """\
examples:
  timestone salvage data rescued        a new store in ./rescued; the report is in salvage.json
  timestone salvage data rescued --json | jq '.logs[].lost'
  timestone inspect rescued --deep      is the copy sound? (it is)

Reads every byte of the store and keeps each record whose index entry and bytes hold, also
from the .lost files that a recovery has put aside. Offsets, times, topics and headers stay as
they were; where records are lost, offsets are missing. Sessions, settings and named readers
come along. The original is not changed; no process may own it.
Exit codes: 0 everything was saved, 3 something was lost, 4 nothing was saved, 1 it could not be
done, 64 wrong usage.
"""
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `salvage`."""
    parser.description = "Copy all that can still be proved out of a damaged store, into a new one."
    parser.epilog = EXAMPLES
    parser.add_argument("directory", metavar="DIR", type=given_path, help="the damaged store; only read")
    parser.add_argument(
        "target", metavar="OUT", type=given_path, help="where the copy goes; must not exist yet"
    )
    parser.add_argument("--json", action="store_true", help="print the whole report as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Copy, say what was saved and what was not, and say it with the exit code."""
    try:
        with ProgressLine() as progress:
            report = salvage_store(
                arguments.directory,
                arguments.target,
                progress=lambda log, done, total: progress.show(
                    f"{log}: {format_bytes(done)} of {format_bytes(total)} read"
                ),
            )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if arguments.json:
        print_json(report.to_json())
    else:
        _print(report)
    return report.exit_code


def _print(report: SalvageReport) -> None:
    for log in report.logs:
        print(f"{log.log}-{log.partition}: {_saved(log)}")
        for line in _complaints(log):
            print(f"  {line}")
    for note in report.notes:
        print(note)
    if report.exit_code == EXIT_WHOLE:
        print(f"everything was saved: {report.target}")
    elif report.exit_code == EXIT_LOSSES:
        print(
            f"the rest was saved: {report.target}; the whole report is in {Path(report.target) / REPORT_NAME}"
        )
    else:
        print("nothing could be saved")


def _saved(log: LogSalvage) -> str:
    if log.error:
        return f"nothing was saved: {log.error}"
    return (
        f"{format_count(log.records, 'record')} saved, {format_bytes(log.bytes)}, "
        f"offsets from {log.start_offset} on; goes on at {log.next_offset}"
    )


def _complaints(log: LogSalvage) -> list[str]:
    lines = [
        f"lost: offset {loss.first}: {loss.reason}"
        if loss.end - loss.first == 1
        else f"lost: offsets {loss.first} to {loss.end - 1}: {loss.reason}"
        for loss in log.lost[:_SHOWN]
    ]
    if len(log.lost) > _SHOWN:
        lines.append(f"… {format_count(log.lost_count, 'offset')} lost in all")
    if log.from_aside:
        lines.append(
            f"{format_count(log.from_aside, 'record')} came from files that a recovery had put aside"
        )
    if log.topic_names_lost:
        lines.append(f"the names of {format_count(log.topic_names_lost, 'topic')} are lost")
    if log.later_count:
        lines.append(
            f"the times of {format_count(log.later_count, 'record')} were raised to keep their order"
        )
    return [*lines, *log.notes]
