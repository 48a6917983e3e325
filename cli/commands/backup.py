"""`timestone backup`: copy a store, also while a server writes it.

Renders what `timestone.backup` did; decides nothing itself. The original is only read.
"""

from pathlib import Path
from typing import Any

import click

from timestone.format.names import parse_log_folder
from timestone.repair.backup import LogBackup, back_up_store

from ..errors import UsageError
from ..group import Command
from ..input.parameters import DIRECTORY
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..units import format_bytes, format_count

EXAMPLES = """\
Examples:
  timestone backup data backup-monday      a store of its own in ./backup-monday
  timestone inspect backup-monday --deep   verify every record of it
  timestone serve --data backup-monday     it is a store like any other
  timestone backup data backup-monday --json | jq '.logs[].stored_bytes'

The copy has every record that was there when the backup began, with settings,
sessions and named readers, except what is deleted during the backup. The owner
of the store is not affected. OUT appears when it is complete; until then it is
called OUT.partial, which the next backup to OUT replaces.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store; it may have an owner.")
@click.argument("target", metavar="OUT", type=DIRECTORY, help="Where the copy goes; must not exist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, target: Path, as_json: bool) -> None:
    """Copy a store, also while a server writes it."""
    try:
        with ProgressLine() as progress:
            logs = back_up_store(
                directory,
                target,
                progress=lambda log, done: progress.show(f"{log}: {format_bytes(done)} copied"),
            )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        print_json({"path": str(directory), "target": str(target), "logs": [_log_json(log) for log in logs]})
        return
    for log in logs:
        if log.is_deleted:
            print(f"{log.folder}: left out, deleted during the backup")
            continue
        print(f"{log.folder}: {format_count(log.segments, 'segment')}, {format_bytes(log.bytes)}")
    print(f"complete: {target}")


def _log_json(log: LogBackup) -> dict[str, Any]:
    name = parse_log_folder(log.folder)
    assert name is not None
    return {
        "log": name[0],
        "partition": name[1],
        "segment_count": log.segments,
        "stored_bytes": log.bytes,  # of the segment files, as `inspect` calls it
        "is_deleted": log.is_deleted,
    }
