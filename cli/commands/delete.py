"""`timestone delete`: delete a log with all its records, after asking.

Needs the store for itself: an owner writes to the log.
"""

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import click

import timestone
from timestone.format.names import log_folder
from timestone.view import LogView, view_store

from ..group import Command
from ..input.confirmation import ask_to_delete
from ..input.log_names import open_log
from ..input.parameters import COUNT, DIRECTORY
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..output.text import print_text
from ..units import format_bytes, format_count

EXAMPLES = """\
Examples:
  timestone delete data telemetry               say what is in it, and ask
  timestone delete data telemetry --yes         do not ask: for scripts
  timestone delete data telemetry --partition 3
  timestone delete data telemetry --yes --json | jq .end_offset

Records, settings and the positions of named readers are deleted; this cannot be
undone. Other logs are not touched. A log created under the same name later
begins at offset 0. Stop `timestone serve` first if it runs on the store. To
keep the log and delete what is old, set its retention.
"""


@dataclass(frozen=True, slots=True)
class _Contents:
    """Contents of a log to delete, under the keys of `inspect --json`."""

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


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store; no process may own it.")
@click.argument("log", metavar="LOG", help="The log's name.")
@click.option("--partition", metavar="N", type=COUNT, default=0, help="The partition of the log.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, log: str, partition: int, yes: bool, as_json: bool) -> None:
    """Delete a log with all its records."""
    folder = log_folder(log, partition)
    with closing(view_store(directory)) as view:
        contents = _Contents.of(open_log(view, log, partition))
    if not yes:
        ask_to_delete(folder, str(contents))
    with (
        ProgressLine() as progress,
        timestone.open(directory, create=False, progress=progress.segments) as store,
    ):
        store.delete_log(log, partition)
    if as_json:
        print_json({"path": str(directory), **asdict(contents)})
    else:
        print_text(f"{folder} is deleted: {contents}")
