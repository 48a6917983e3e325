"""`timestone parquet`: keep a Parquet file of each sealed segment beside the log, for readers of whole columns.

Prints what the keeper of side files does; decides nothing itself. Works through a view: the store may have an owner.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timestone.config import MIB

from ..errors import CommandError
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..parser import given_count, given_path
from ..process.interrupts import Interrupts
from ..units import format_bytes, format_count

if TYPE_CHECKING:
    from pyspark_timestone.side_files.side_file import SegmentIdentity

# What is imported below needs Arrow, which may not be installed; `timestone parquet --help` does not.
# ruff: noqa: PLC0415

EXAMPLES = """\
examples:
  timestone parquet data               once: from cron, or before a large query
  timestone parquet data --follow      each segment soon after it is sealed, beside a server
  timestone parquet data --json | jq -r '.files[].path'

The files lie in data/parquet/LOG-PARTITION. Spark reads them, and the log behind them, with
pyspark_timestone.history.read_history. What retention has deleted or compaction has rewritten
is not read any more at once; its file goes --keep seconds later.
"""
_LOOK_S = 10.0
_STEP_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `parquet`."""
    parser.description = "Keep a Parquet file of each sealed segment, beside the log and its owner."
    parser.epilog = EXAMPLES
    parser.add_argument("directory", metavar="DIR", type=given_path, help="the store")
    parser.add_argument(
        "--follow", action="store_true", help=f"go on: look every {_LOOK_S:.0f} seconds, until interrupted"
    )
    parser.add_argument(
        "--keep",
        dest="keep_s",
        metavar="SECONDS",
        type=given_count,
        default=600,
        help="how long a file that is not needed any more stays for queries that run (default: 600)",
    )
    parser.add_argument(
        "--min-free",
        dest="min_free_mib",
        metavar="MIB",
        type=given_count,
        default=64,
        help="write nothing that would leave less space than this (default: 64)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object; with --follow, a line of JSON for each file",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write and remove files until there is nothing to do, or for good; returns the exit code."""
    try:
        from pyspark_timestone.errors import SideFilesBusy
        from pyspark_timestone.side_files.keeper import SideFileKeeper
    except ModuleNotFoundError as error:
        raise CommandError(
            f"side files need {error.name}, which is not installed: pip install 'timestone[arrow]'"
        ) from None
    keeper = SideFileKeeper(
        arguments.directory, keep_s=arguments.keep_s, min_free_bytes=arguments.min_free_mib * MIB
    )
    files: list[dict[str, Any]] = []
    try:
        with Interrupts() as interrupts, ProgressLine() as progress, keeper:

            def written(segment: "SegmentIdentity", path: Path) -> None:
                if not arguments.json:
                    print(_line(segment, path), flush=True)
                elif arguments.follow:
                    print(json.dumps(_file_json(segment, path)), flush=True)
                else:
                    progress.show(_line(segment, path))
                    files.append(_file_json(segment, path))

            while True:
                found = keeper.run(written=written, stop=lambda: interrupts.requested)
                if interrupts.requested or not arguments.follow:
                    break
                _rest(interrupts)
    except SideFilesBusy as error:
        raise CommandError(str(error)) from None
    if arguments.json and not arguments.follow:
        print_json({"path": str(arguments.directory), "files": files, **asdict(found)})
    elif not arguments.follow:
        print(
            f"{format_count(found.written, 'file')} written, {found.there:,} were there, {found.removed:,} removed"
            + (f", {format_count(found.left_out, 'segment')} left out" if found.left_out else "")
        )
    return interrupts.exit_code


def _rest(interrupts: Interrupts) -> None:
    deadline = time.monotonic() + _LOOK_S
    while not interrupts.requested and time.monotonic() < deadline:
        time.sleep(_STEP_S)


def _line(segment: "SegmentIdentity", path: Path) -> str:
    records = format_count(segment.row_count, "record")
    return (
        f"{segment.log}-{segment.partition} [{segment.base_offset}, {segment.end_offset}): {records}, "
        f"{format_bytes(path.stat().st_size)} at {path}"
    )


def _file_json(segment: "SegmentIdentity", path: Path) -> dict[str, Any]:
    return {
        "log": segment.log,
        "partition": segment.partition,
        "base_offset": segment.base_offset,
        "next_offset": segment.end_offset,
        "records": segment.row_count,
        "file_bytes": path.stat().st_size,
        "path": str(path),
    }
