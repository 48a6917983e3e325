"""`timestone append`: one record for each line of standard input or of a file.

Lines are appended as they arrive. When they arrive faster than the disk syncs they gather into larger batches, because
reading continues while earlier batches are in flight, up to a bound.
"""

import errno
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import timestone
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.filters import validate_topic
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.writing.write_batch import Draft

from ..group import Command
from ..input.line_reader import LineReader
from ..input.parameters import DIRECTORY, FILE, Parsed
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..process.interrupts import Interrupts
from ..units import format_bytes, format_count

_IN_FLIGHT_BYTES = 16 << 20
"""Bytes submitted and not yet acknowledged: enough to keep a disk busy, little enough not to matter in memory."""

EXAMPLES = """\
Examples:
  echo '{"temp": 21.5}' | timestone append data telemetry --topic d/7/temp
  timestone append data telemetry --file export.jsonl
  producer | timestone append data telemetry --ack written
  producer | timestone append data telemetry --json | jq .end_offset

Each line is a record, without its newline; an empty line is an empty record.
Store and log are created when missing. A store has one owner: while
`timestone serve` runs on it, publish to the server instead.
"""


def _topic(text: str) -> str:
    validate_topic(text)
    return text


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store; created when missing.")
@click.argument("log", metavar="LOG", help="The log's name; created when missing.")
@click.option("--topic", metavar="TOPIC", type=Parsed("topic", _topic), help="The topic of all the records.")
@click.option(
    "--ack",
    type=click.Choice([level.value for level in Ack]),
    default=Ack.SYNCED.value,
    help="What has happened to a record that counts as appended: memory: accepted; written: survives kill -9; "
    "synced: survives power loss.",
)
@click.option("--file", metavar="FILE", type=FILE, help="Read lines from FILE instead of standard input.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, log: str, topic: str | None, ack: str, file: Path | None, as_json: bool) -> int:
    """Append one record for each line of standard input, or of a file."""
    with (
        ProgressLine() as progress,
        _input(file) as fd,
        timestone.open(directory, progress=progress.segments) as store,
        Interrupts() as interrupts,
    ):
        target = store.log(log)
        appender = Appender(target, topic=topic, ack=Ack(ack))
        lines = LineReader(fd, target.config.record_bytes)
        try:
            while not interrupts.requested and not lines.ended:
                appender.append(lines.read())
                progress.show(appender.describe())
        finally:
            try:
                appender.finish()
            finally:
                # Also after an error: what was appended before it is there.
                progress.clear()
                if as_json:
                    print_json(appender.to_json())
                else:
                    print(appender.describe())
    return interrupts.exit_code


@contextmanager
def _input(file: Path | None) -> Iterator[int]:
    if file is None:
        if sys.stdin.isatty():
            print("one record a line; Ctrl-D ends", file=sys.stderr)
        yield sys.stdin.fileno()
        return
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        yield fd
    finally:
        os.close(fd)


class Appender:
    """Hands lists of records to a log, keeps a bounded amount of them in flight, and counts what was acknowledged.

    The only writer of the log: its store belongs to this process.
    """

    def __init__(self, log: Log, *, topic: str | None, ack: Ack) -> None:
        self._log = log
        self._topic_id = NO_TOPIC if topic is None else log.topic_id(topic)
        self._ack = ack
        self._waiting: deque[Submission] = deque()
        self._waiting_bytes = 0
        self._first = log.end_offset
        self._count = 0
        self._bytes = 0
        self._started_s = time.monotonic()

    def append(self, records: list[bytes]) -> None:
        """Submit `records`; waits for earlier ones when too much is in flight. Raises what the log raises."""
        if not records:
            return
        draft = Draft(records, self._topic_id)
        self._waiting.append(self._log.submit(draft, ack=self._ack))
        self._waiting_bytes += draft.size_bytes
        if self._ack is Ack.MEMORY and self._waiting_bytes > _IN_FLIGHT_BYTES:
            # All of it counts as acknowledged, but none may be written yet: without waiting now and then, the whole
            # input could pile up in front of a slow disk. Drafts are written in order, so an empty one tells.
            self._log.submit(Draft([]), ack=Ack.WRITTEN).wait()
            self.finish()
        while self._waiting_bytes > _IN_FLIGHT_BYTES:
            self._wait_for_oldest()

    def finish(self) -> None:
        """Wait for everything submitted."""
        while self._waiting:
            self._wait_for_oldest()

    def _wait_for_oldest(self) -> None:
        submission = self._waiting.popleft()
        self._waiting_bytes -= submission.draft.size_bytes
        submission.wait()
        self._count += submission.draft.count
        self._bytes += submission.draft.size_bytes

    def to_json(self) -> dict[str, Any]:
        """Return what was acknowledged so far, for a program: the offsets [start, end), records and bytes."""
        return {
            "log": self._log.name,
            "partition": self._log.partition,
            "ack": self._ack.value,
            "start_offset": self._first,
            "end_offset": self._first + self._count,
            "records": self._count,
            "record_bytes": self._bytes,
        }

    def describe(self) -> str:
        """Return what was acknowledged so far, in one line."""
        name = f"{self._log.name}-{self._log.partition}"
        if not self._count:
            return f"{name}: no records appended"
        elapsed_s = max(time.monotonic() - self._started_s, 1e-9)
        rate = f"{format_bytes(self._bytes)} at {format_bytes(int(self._bytes / elapsed_s))}/s"
        offsets = f"[{self._first}, {self._first + self._count})"
        return (
            f"{name}: {format_count(self._count, 'record')} at offsets {offsets}, {self._ack.value}, {rate}"
        )
