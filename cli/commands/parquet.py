"""`timestone parquet`: keep a Parquet file of each sealed segment beside the log, for readers of whole columns.

Prints what the keeper of side files does; decides nothing itself. Works through a view: the store may have an owner.
"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import CommandError
from ..group import Command
from ..input.parameters import DIRECTORY, duration_ms, size_bytes
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..output.text import print_text
from ..process.interrupts import Interrupts
from ..units import format_bytes, format_count

if TYPE_CHECKING:
    from pyspark_timestone.side_files.side_file import SegmentIdentity

# What is imported below needs Arrow, which may not be installed; `timestone parquet --help` does not.
# ruff: noqa: PLC0415

EXAMPLES = """\
Examples:
  timestone parquet data              once: from cron, or before a large query
  timestone parquet data --follow     each segment soon after it is sealed
  timestone parquet data --json | jq -r '.files[].path'

The files are in data/parquet/LOG-PARTITION. Spark reads them, and the log
behind them, with pyspark_timestone.history.read_history. A file whose segment
was deleted by retention or rewritten by compaction is not read any more; it is
removed after --keep.
"""
_LOOK_S = 10.0
_STEP_S = 0.2


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store.")
@click.option("--follow", is_flag=True, help=f"Look again every {_LOOK_S:.0f} seconds, until interrupted.")
@click.option(
    "--keep",
    "keep_ms",
    metavar="DURATION",
    type=duration_ms("s"),
    default="10min",
    help="How long a file that is not needed any more stays for running queries. Without a unit: seconds.",
)
@click.option(
    "--min-free",
    "min_free_bytes",
    metavar="SIZE",
    type=size_bytes("MiB"),
    default="64MiB",
    help="Write nothing that would leave less space than this. Without a unit: MiB.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object; with --follow, one for each file."
)
def command(directory: Path, follow: bool, keep_ms: int, min_free_bytes: int, as_json: bool) -> int:
    """Keep a Parquet file of each sealed segment, beside the log and its owner."""
    try:
        from pyspark_timestone.errors import SideFilesBusy
        from pyspark_timestone.side_files.keeper import SideFileKeeper
    except ModuleNotFoundError as error:
        raise CommandError(
            f"side files need {error.name}, which is not installed: pip install '.[arrow]' in a clone"
        ) from None
    keeper = SideFileKeeper(directory, keep_s=keep_ms / 1000, min_free_bytes=min_free_bytes)
    files: list[dict[str, Any]] = []
    try:
        with Interrupts() as interrupts, ProgressLine() as progress, keeper:

            def written(segment: "SegmentIdentity", path: Path) -> None:
                if not as_json:
                    print(f"{_line(segment, path)}\n  {path}", flush=True)
                elif follow:
                    print(json.dumps(_file_json(segment, path)), flush=True)
                else:
                    progress.show(_line(segment, path))
                    files.append(_file_json(segment, path))

            while True:
                found = keeper.run(written=written, stop=lambda: interrupts.requested)
                if interrupts.requested or not follow:
                    break
                _rest(interrupts)
    except SideFilesBusy as error:
        raise CommandError(str(error)) from None
    if as_json and not follow:
        print_json({"path": str(directory), "files": files, **asdict(found)})
    elif not follow:
        print_text(
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
        f"{format_bytes(path.stat().st_size)}"
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
