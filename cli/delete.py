"""`timestone delete`: delete a log with all its records, after saying what that is.

Needs the store for itself: whoever owns it writes to the log.
"""

import argparse
import sys
from contextlib import closing

import timestone
from timestone.names import log_folder
from timestone.view import LogView, view_store

from .errors import CommandError, UsageError
from .log_names import open_log
from .parser import given_count, given_path
from .progress import ProgressLine
from .quantities import format_bytes, format_count

EXAMPLES = """\
examples:
  timestone delete data telemetry               says what is in it, and asks
  timestone delete data telemetry --yes         does not ask: for scripts
  timestone delete data telemetry --partition 3

Records, settings and the places of named readers go; there is no way back. Other logs are not
touched. A log that is made under the name afterwards begins at offset 0. While `timestone serve`
runs on the store, stop it first. To keep the log and to delete what is old, set retention.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `delete`."""
    parser.description = "Delete a log with all its records."
    parser.epilog = EXAMPLES
    parser.add_argument("directory", metavar="DIR", type=given_path, help="the store; no process may own it")
    parser.add_argument("log", metavar="LOG", help="the log's name")
    parser.add_argument(
        "--partition", metavar="N", type=given_count, default=0, help="partition of the log (default: 0)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> int:
    """Say what will go, ask, and delete it."""
    folder = log_folder(arguments.log, arguments.partition)
    with closing(view_store(arguments.directory)) as view:
        what = _described(open_log(view, arguments.log, arguments.partition))
    if not arguments.yes:
        _ask(folder, what)
    with (
        ProgressLine() as progress,
        timestone.open(arguments.directory, create=False, progress=progress.segments) as store,
    ):
        store.delete_log(arguments.log, arguments.partition)
    print(f"{folder} is deleted: {what}")
    return 0


def _described(log: LogView) -> str:
    stored_bytes = sum(path.stat().st_size for path in log.folder.iterdir())
    what = f"offsets [{log.start_offset}, {log.end_offset}), {format_bytes(stored_bytes)}"
    readers = len(log.named_readers.all_committed())
    return f"{what}, {format_count(readers, 'named reader')}" if readers else what


def _ask(folder: str, what: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"nobody can be asked whether {folder} may go ({what}); say --yes")
    print(f"{folder}: {what}")
    try:
        answer = input(f"type {folder} to delete it: ")
    except EOFError:  # Ctrl-D
        print()
        answer = ""
    if answer.strip() != folder:
        raise CommandError("nothing was deleted")
