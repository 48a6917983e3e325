"""`timestone salvage`: copy everything that can be verified out of a damaged store, into a new one.

Renders what `timestone.salvage` did; decides nothing itself. The original is only read.
"""

from pathlib import Path

import click

from timestone.repair.salvage import REPORT_NAME, salvage_store
from timestone.repair.salvage_report import EXIT_LOSSES, EXIT_WHOLE, LogSalvage, SalvageReport

from ..errors import UsageError
from ..group import Command
from ..input.parameters import DIRECTORY
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..output.text import print_text
from ..units import format_bytes, format_count

EXAMPLES = """\
Examples:
  timestone salvage data rescued     a new store in ./rescued, with the report
                                     in salvage.json
  timestone salvage data rescued --json | jq '.logs[].lost'
  timestone inspect rescued --deep   verify the copy

Reads every byte of the store and keeps each record whose index entry and bytes
can be verified, also from the .lost files that a recovery has put aside.
Offsets, times, topics and headers stay as they were; where records are lost,
offsets are missing. Sessions, settings and named readers are copied. The
original is not changed; no process may own it.

Exit codes: 0 everything was saved, 3 something was lost, 4 nothing was saved,
1 failed, 64 invalid arguments.
"""
_SHOWN = 20


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The damaged store; only read.")
@click.argument("target", metavar="OUT", type=DIRECTORY, help="Where the copy goes; must not exist.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as one JSON object.")
def command(directory: Path, target: Path, as_json: bool) -> int:
    """Copy all that can be verified out of a damaged store, into a new one."""
    try:
        with ProgressLine() as progress:
            report = salvage_store(
                directory,
                target,
                progress=lambda log, done, total: progress.show(
                    f"{log}: {format_bytes(done)} of {format_bytes(total)} read"
                ),
            )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        print_json(report.to_json())
    else:
        _print(report)
    return report.exit_code


def _print(report: SalvageReport) -> None:
    for log in report.logs:
        print_text(f"{log.log}-{log.partition}: {_saved(log)}")
        for line in _complaints(log):
            print_text(f"  {line}")
    for note in report.notes:
        print_text(note)
    if report.exit_code == EXIT_WHOLE:
        print(f"everything was saved: {report.target}")
    elif report.exit_code == EXIT_LOSSES:
        print_text(
            f"the rest was saved: {report.target}; the whole report is in {Path(report.target) / REPORT_NAME}"
        )
    else:
        print("nothing could be saved")


def _saved(log: LogSalvage) -> str:
    if log.error:
        return f"nothing was saved: {log.error}"
    return (
        f"{format_count(log.records, 'record')} saved, {format_bytes(log.bytes)}, "
        f"offsets from {log.start_offset}; the next offset is {log.end_offset}"
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
