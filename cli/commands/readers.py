"""`timestone readers`: how far named readers are and what they pin; release a pin, forget a reader.

Works beside the process that owns the store, which reads the pins again every few seconds.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from timestone.errors import CorruptLog, UnknownLog
from timestone.format.names import log_folder
from timestone.reading.named_readers import ReaderId
from timestone.repair.inspection import inspect_store
from timestone.view import StoreView, view_store

from ..errors import CommandError, UsageError
from ..group import Command
from ..input.bucket_options import noted_bucket
from ..input.parameters import DIRECTORY
from ..output.inspect_table import print_readers
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..output.text import print_text

EXAMPLES = """\
Examples:
  timestone readers data                    positions, lag and pins
  timestone readers data --release billing  let retention delete what it pins
  timestone readers data --forget billing --log telemetry-0
  timestone readers data --json | jq '.readers[].lag'

The position of a reader is the offset that it reads next. With a pin, retention
waits for the reader, up to a limit. --release removes the pin and keeps the
position; a reader that is still in use pins again with its next commit.
--forget removes both: the next reader of that name starts afresh.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store; it may have an owner.")
@click.option("--log", metavar="LOG", help="Only of this log, or of one partition such as telemetry-0.")
@click.option("--release", metavar="READER", help="Remove its pin and keep its position.")
@click.option("--forget", metavar="READER", help="Remove its position and its pin.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, log: str | None, release: str | None, forget: str | None, as_json: bool) -> None:
    """Show the named readers of a store, release what they pin, or forget them."""
    if release is not None and forget is not None:
        raise UsageError("--release and --forget exclude each other")
    if release is None and forget is None:
        _show(directory, log, as_json=as_json)
        return
    with closing(view_store(directory)) as view:
        if release is not None:
            changes = _release(view, _chosen(view, release, log))
        else:
            assert forget is not None
            changes = _forget(view, forget, log)
        changed = []
        for reader, sentence in changes:
            changed.append(reader)
            if not as_json:
                print_text(sentence)
    if as_json:
        print_json({"path": str(directory), "readers": changed})


def _show(directory: Path, log: str | None, *, as_json: bool) -> None:
    with ProgressLine() as progress:
        report = inspect_store(directory, log=log, progress=progress.segments, bucket=noted_bucket(directory))
    if report.notes:
        raise CommandError(report.notes[0])
    if as_json:
        found = report.to_json()
        print_json({"path": found["path"], "readers": found["readers"]})
    elif report.readers:
        print_readers(report)
    else:
        print("no named readers")


def _release(view: StoreView, readers: Sequence[ReaderId]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each reader once its pin is gone: for a program, and as a sentence."""
    for reader in readers:
        found = view.committed(reader)
        where = f"reader {reader.name!r} of {log_folder(reader.log, reader.partition)}"
        offset = None if found is None else found.offset
        if found is None or found.pin is None:
            yield {**reader._asdict(), "offset": offset, "is_released": False}, f"{where} has no pin"
        else:
            view.commit_readers({reader: found.offset}, metadata={reader: found.metadata})
            sentence = f"{where}: pin released; its position stays at offset {found.offset}"
            yield {**reader._asdict(), "offset": offset, "is_released": True}, sentence


def _forget(view: StoreView, name: str, log: str | None) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each reader once all are gone: for a program, and as a sentence."""
    try:
        readers = _chosen(view, name, log)
    except CorruptLog:
        # What cannot be read can still be removed when the log is named.
        readers = [ReaderId(*one, name) for one in _logs(view, log)] if log is not None else []
        if not readers:
            raise
    view.forget_readers(readers)
    for reader in readers:
        sentence = f"reader {name!r} of {log_folder(reader.log, reader.partition)} forgotten"
        yield {**reader._asdict(), "is_forgotten": True}, sentence


def _chosen(view: StoreView, name: str, log: str | None) -> list[ReaderId]:
    """Return the readers of a name: a consumer of several logs has one for each."""
    logs = _logs(view, log)
    readers = [one for one in view.readers() if one.name == name and one[:2] in logs]
    if not readers:
        known = sorted({one.name for one in view.readers() if one[:2] in logs})
        raise CommandError(f"no reader {name!r}; the store has {', '.join(known) or 'none'}")
    return readers


def _logs(view: StoreView, log: str | None) -> list[tuple[str, int]]:
    known = view.log_names(server=log is not None)
    chosen = [one for one in known if log is None or log in (one[0], log_folder(*one))]
    if log is not None and not chosen:
        raise UnknownLog(log, tuple(log_folder(*one) for one in view.log_names()))
    return chosen
