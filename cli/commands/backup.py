"""`timestone backup`: copy a store whole, also while a server writes it.

Renders what `timestone.repair.backup` did; decides nothing itself. The original is only read.
"""

import argparse
from typing import Any

from timestone.format.names import parse_log_folder
from timestone.repair.backup import LogBackup, back_up_store

from ..errors import UsageError
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..parser import given_path
from ..units import format_bytes, format_count

EXAMPLES = """\
examples:
  timestone backup data backup-monday      a store of its own in ./backup-monday
  timestone inspect backup-monday --deep   prove every record of it
  timestone serve --data backup-monday     it is a store like any other
  timestone backup data backup-monday --json | jq '.logs[].stored_bytes'

Every record that was there when the backup began is in it, with settings, sessions and named
readers, but for what is deleted meanwhile. The owner of the store notices nothing. OUT appears
when it is complete; until then it is called OUT.partial. What a backup that was killed left
there, the next one to OUT replaces.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `backup`."""
    parser.description = "Copy a store whole, also while a server writes it."
    parser.epilog = EXAMPLES
    parser.add_argument("directory", metavar="DIR", type=given_path, help="the store; it may have an owner")
    parser.add_argument(
        "target", metavar="OUT", type=given_path, help="where the copy goes; must not exist yet"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object that says what was copied")


def run(arguments: argparse.Namespace) -> int:
    """Copy, and say what."""
    try:
        with ProgressLine() as progress:
            logs = back_up_store(
                arguments.directory,
                arguments.target,
                progress=lambda log, done: progress.show(f"{log}: {format_bytes(done)} copied"),
            )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if arguments.json:
        print_json(
            {
                "source": str(arguments.directory),
                "target": str(arguments.target),
                "logs": [_log_json(log) for log in logs],
            }
        )
        return 0
    for log in logs:
        if log.is_deleted:
            print(f"{log.folder}: left out, it was deleted meanwhile")
            continue
        print(f"{log.folder}: {format_count(log.segments, 'segment')}, {format_bytes(log.bytes)}")
    print(f"complete: {arguments.target}")
    return 0


def _log_json(log: LogBackup) -> dict[str, Any]:
    name = parse_log_folder(log.folder)
    assert name is not None
    return {
        "log": name[0],
        "partition": name[1],
        "segments": log.segments,
        "stored_bytes": log.bytes,  # of the segment files: so `inspect` calls it, where `bytes` is before compression
        "is_deleted": log.is_deleted,
    }
