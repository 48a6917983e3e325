"""`timestone delete`: delete a log with all its records, after saying what that is.

Needs the store for itself: whoever owns it writes to the log.
"""

import argparse
import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Self

import timestone
from timestone.format.names import log_folder
from timestone.view import LogView, view_store

from ..errors import CommandError, UsageError
from ..input.log_names import open_log
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..parser import given_count, given_path
from ..units import format_bytes, format_count

EXAMPLES = """\
examples:
  timestone delete data telemetry               says what is in it, and asks
  timestone delete data telemetry --yes         does not ask: for scripts
  timestone delete data telemetry --partition 3
  timestone delete data telemetry --yes --json | jq .end_offset

Records, settings and the places of named readers go; there is no way back. Other logs are not
touched. A log that is made under the name afterwards begins at offset 0. While `timestone serve`
runs on the store, stop it first. To keep the log and to delete what is old, set retention.
"""


@dataclass(frozen=True, slots=True)
class _Contents:
    """What goes with a log, in the words of `inspect --json`."""

    log: str
    partition: int
    id: str
    start_offset: int
    end_offset: int
    file_bytes: int
    """Of all its files."""
    readers: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, log: LogView) -> Self:
        return cls(
            log.name,
            log.partition,
            f"{log.id:016x}",
            log.start_offset,
            log.end_offset,
            sum(path.stat().st_size for path in log.folder.iterdir()),
            tuple(
                {**reader._asdict(), "offset": found.offset}
                for reader, found in sorted(log.named_readers.all_committed().items())
            ),
        )

    def __str__(self) -> str:
        what = f"offsets [{self.start_offset}, {self.end_offset}), {format_bytes(self.file_bytes)}"
        return f"{what}, {format_count(len(self.readers), 'named reader')}" if self.readers else what


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
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object that says what was deleted"
    )


def run(arguments: argparse.Namespace) -> int:
    """Say what will go, ask, and delete it."""
    folder = log_folder(arguments.log, arguments.partition)
    with closing(view_store(arguments.directory)) as view:
        contents = _Contents.of(open_log(view, arguments.log, arguments.partition))
    if not arguments.yes:
        _ask(folder, str(contents))
    with (
        ProgressLine() as progress,
        timestone.open(arguments.directory, create=False, progress=progress.segments) as store,
    ):
        store.delete_log(arguments.log, arguments.partition)
    if arguments.json:
        print_json({"path": str(arguments.directory), **asdict(contents)})
    else:
        print(f"{folder} is deleted: {contents}")
    return 0


def _ask(folder: str, what: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"nobody can be asked whether {folder} may go ({what}); say --yes")
    # On standard error: what is asked is no result, and a program may be reading that.
    print(f"{folder}: {what}", f"type {folder} to delete it: ", sep="\n", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D
        print(file=sys.stderr)
    if answer.strip() != folder:
        raise CommandError("nothing was deleted")
