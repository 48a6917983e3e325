"""`timestone readers`: who has read how far, who pins retention, and how to let go of one that nobody uses any more.

Works beside the process that owns the store, which looks at the pins again every few seconds.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from timestone.errors import CorruptLog
from timestone.format.names import log_folder
from timestone.reading.named_readers import ReaderId
from timestone.repair.inspection import inspect_store
from timestone.view import StoreView, view_store

from ..errors import CommandError, UsageError
from ..output.inspect_table import print_readers
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..parser import given_path

EXAMPLES = """\
examples:
  timestone readers data                                who has read how far, and what is pinned
  timestone readers data --release billing              retention need not wait for it any more
  timestone readers data --forget billing --log telemetry-0
  timestone readers data --json | jq '.readers[].lag'

A reader keeps its place in the log: the offset that it reads next. With a pin, retention waits for
it, up to a limit. --release takes the pin away and leaves the place; a reader that is still in use
pins again with its next commit. --forget removes both: the next one of that name begins anew.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `readers`."""
    parser.description = "Show the named readers of a store, release what they pin, or forget them."
    parser.epilog = EXAMPLES
    parser.add_argument("directory", metavar="DIR", type=given_path, help="the store; it may have an owner")
    parser.add_argument(
        "--log", metavar="NAME", help="only of this log, or of one partition such as telemetry-0"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--release", metavar="READER", help="take its pin away, and leave its place")
    action.add_argument("--forget", metavar="READER", help="remove its place, and its pin")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object with the readers, or with what was done to them",
    )


def run(arguments: argparse.Namespace) -> int:
    """Show readers, or change what was asked; returns the exit code."""
    if arguments.release is None and arguments.forget is None:
        _show(arguments.directory, arguments.log, json=arguments.json)
        return 0
    with closing(view_store(arguments.directory)) as view:
        if arguments.release is not None:
            changes = _release(view, _chosen(view, arguments.release, arguments.log))
        else:
            changes = _forget(view, arguments.forget, arguments.log)
        changed = []
        for reader, sentence in changes:
            changed.append(reader)
            if not arguments.json:
                print(sentence)
    if arguments.json:
        print_json({"path": str(arguments.directory), "readers": changed})
    return 0


def _show(directory: Path, log: str | None, *, json: bool) -> None:
    with ProgressLine() as progress:
        report = inspect_store(directory, log=log, progress=progress.segments)
    if report.notes:
        raise CommandError(report.notes[0])
    if json:
        found = report.to_json()
        print_json({"path": found["path"], "readers": found["readers"]})
    elif report.readers:
        print_readers(report.readers)
    else:
        print("no named reader has committed")


def _release(view: StoreView, readers: Sequence[ReaderId]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each reader as soon as its pin is gone, for a program and for a person."""
    for reader in readers:
        found = view.committed(reader)
        where = f"reader {reader.name!r} of {log_folder(reader.log, reader.partition)}"
        offset = None if found is None else found.offset
        if found is None or found.pin is None:
            yield {**reader._asdict(), "offset": offset, "is_released": False}, f"{where} has no pin"
        else:
            view.commit_readers({reader: found.offset})
            sentence = f"{where}: its pin is released; it goes on at offset {found.offset}"
            yield {**reader._asdict(), "offset": offset, "is_released": True}, sentence


def _forget(view: StoreView, name: str, log: str | None) -> Iterator[tuple[dict[str, Any], str]]:
    """Each reader once they are gone, for a program and for a person."""
    try:
        readers = _chosen(view, name, log)
    except CorruptLog:
        # What cannot be read can still be removed, if it is said which.
        readers = [ReaderId(*one, name) for one in _logs(view, log)] if log is not None else []
        if not readers:
            raise
    view.forget_readers(readers)
    for reader in readers:
        sentence = f"reader {name!r} of {log_folder(reader.log, reader.partition)} is forgotten"
        yield {**reader._asdict(), "is_forgotten": True}, sentence


def _chosen(view: StoreView, name: str, log: str | None) -> list[ReaderId]:
    """The readers of a name: a consumer of several logs has one for each."""
    logs = _logs(view, log)
    readers = [one for one in view.readers() if one.name == name and one[:2] in logs]
    if not readers:
        known = sorted({one.name for one in view.readers() if one[:2] in logs})
        raise CommandError(
            f"no reader {name!r}; " + (f"there are {', '.join(known)}" if known else "there are none")
        )
    return readers


def _logs(view: StoreView, log: str | None) -> list[tuple[str, int]]:
    chosen = [one for one in view.log_names() if log is None or log in (one[0], log_folder(*one))]
    if log is not None and not chosen:
        raise UsageError(f"no log {log!r} in {view.path}")
    return chosen
