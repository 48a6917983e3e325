"""`timestone append`: one record for each line of standard input or of a file, also of what `timestone read` printed.

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
from timestone.errors import RecordTooLarge, TimestoneError
from timestone.filters import validate_topic
from timestone.format.names import validate_target
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.writing.write_batch import WriteBatch

from ..errors import CommandError
from ..group import Command
from ..input.line_reader import LineReader
from ..input.log_names import check_new_store
from ..input.parameters import DIRECTORY, FILE, Parsed
from ..input.record_lines import PARSERS, Parser, RecordLine
from ..output.json_object import print_json
from ..output.progress import ProgressLine
from ..output.text import print_text
from ..process.interrupts import Interrupts
from ..units import format_bytes, format_count

_LINE_FACTORS = {"text": 1, "json": 12, "hex": 2}
"""By format, how much longer than the largest record a line may be: JSON writes some bytes as six, and has headers."""
_IN_FLIGHT_BYTES = 16 << 20
"""Bytes submitted and not yet acknowledged: enough to keep a disk busy, little enough not to matter in memory."""

EXAMPLES = """\
Examples:
  echo '{"temp": 21.5}' | timestone append data telemetry --topic d/7/temp
  timestone append data telemetry --file export.jsonl
  producer | timestone append data telemetry --ack written
  producer | timestone append data telemetry --json | jq .end_offset
  timestone read data telemetry | timestone append other telemetry --format json

Each line is a record, without its newline; an empty line is an empty record.
With --format json, value, topic, key, headers and flags are those of the line;
--topic is for records without one. Each record gets a new offset and time; the
publisher and packet id that a server had stored are left out.
Store and log are created when missing. A store has one owner: while
`timestone serve` runs on it, publish to the server instead.
"""


def _log_name(text: str) -> str:
    validate_target(text)
    return text


def _topic(text: str) -> str:
    validate_topic(text)
    return text


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store; created when missing.")
@click.argument(
    "log", metavar="LOG", type=Parsed("log", _log_name), help="The log's name; created when missing."
)
@click.option("--topic", metavar="TOPIC", type=Parsed("topic", _topic), help="The topic of all the records.")
@click.option(
    "--ack",
    type=click.Choice([level.value for level in Ack]),
    default=Ack.SYNCED.value,
    help="What has happened to a record that counts as appended: memory: accepted; written: survives kill -9; "
    "synced: survives power loss.",
)
@click.option("--file", metavar="FILE", type=FILE, help="Read lines from FILE instead of standard input.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_LINE_FACTORS)),
    default="text",
    help="What a line is: the value as it is; with json and hex, what `timestone read` prints in that format.",
)
@click.option(
    "--roll",
    is_flag=True,
    help="Seal the segment at the end, as `timestone parquet` needs it; otherwise the next append continues a "
    "small one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    directory: Path,
    log: str,
    topic: str | None,
    ack: str,
    file: Path | None,
    form: str,
    roll: bool,
    as_json: bool,
) -> int:
    """Append one record for each line of standard input, or of a file."""
    check_new_store(directory)
    with (
        ProgressLine() as progress,
        _input(file) as fd,
        timestone.open(directory, progress=progress.segments) as store,
        Interrupts() as interrupts,
    ):
        target = store.log(log)
        appender = Appender(target, ack=Ack(ack))
        records = RecordLines(target, topic, PARSERS.get(form))
        lines = LineReader(fd, _LINE_FACTORS[form] * target.config.record_bytes)
        try:
            while not interrupts.requested and not lines.ended:
                appender.append(records.batch(lines.read()))
                records.check()
                progress.show(appender.describe())
            if roll:
                appender.finish()
                target.roll()
        finally:
            try:
                appender.finish()
            finally:
                # Also after an error: what was appended before it is there.
                progress.clear()
                if as_json:
                    print_json(appender.to_json())
                else:
                    print_text(appender.describe())
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


class RecordLines:
    """Makes write batches of lines. A line that is not a record ends the reading, after those before it."""

    def __init__(self, log: Log, topic: str | None, parse: Parser | None) -> None:
        """Without `parse`, a line is the payload of its record."""
        self._log = log
        self._topic_id = NO_TOPIC if topic is None else log.topic_id(topic)
        self._parse = parse
        self._count = 0
        self._problem = ""

    def batch(self, lines: list[bytes]) -> WriteBatch:
        """Return the records of the next lines, up to the first that is not one."""
        if self._parse is None:
            return WriteBatch(lines, self._topic_id)
        records: list[RecordLine] = []
        for line in lines:
            self._count += 1
            try:
                records.append(self._checked(self._parse(line)))
            except (ValueError, RecordTooLarge) as error:
                self._problem = f"line {self._count} is not a record: {error}"
                break
        return WriteBatch(
            [record.headers + record.payload for record in records],
            [
                self._topic_id if record.topic is None else self._log.topic_id(record.topic)
                for record in records
            ],
            flags=[record.flags for record in records],
            header_lengths=[len(record.headers) for record in records],
        )

    def check(self) -> None:
        """Raise CommandError for the line that was not a record."""
        if self._problem:
            raise CommandError(self._problem)

    def _checked(self, record: RecordLine) -> RecordLine:
        size, limit = len(record.headers) + len(record.payload), self._log.config.record_bytes
        if size > limit:
            raise RecordTooLarge(size, limit)
        return record


class Appender:
    """Writer of lists of records to a log, which keeps a bounded amount of them in flight and counts those
    acknowledged. The only writer of the log: its store belongs to this process."""

    def __init__(self, log: Log, *, ack: Ack) -> None:
        self._log = log
        self._ack = ack
        self._waiting: deque[Submission] = deque()
        self._waiting_bytes = 0
        self._first = log.end_offset
        self._count = 0
        self._bytes = 0
        self._has_failed = False
        self._started_s = time.monotonic()

    def append(self, write_batch: WriteBatch) -> None:
        """Submit a batch; waits for earlier ones while too much is in flight. Raises the errors of the log."""
        if not write_batch.count:
            return
        self._waiting.append(self._log.submit(write_batch, ack=self._ack))
        self._waiting_bytes += write_batch.size_bytes
        if self._ack is Ack.MEMORY and self._waiting_bytes > _IN_FLIGHT_BYTES:
            # All of it counts as acknowledged, but none may be written yet: without an occasional wait, the whole input
            # could pile up in front of a slow disk. Batches are written in order, so an empty one reports the end of
            # those before it.
            self._log.submit(WriteBatch([]), ack=Ack.WRITTEN).wait()
            self.finish()
        while self._waiting_bytes > _IN_FLIGHT_BYTES:
            self._wait_for_oldest()

    def finish(self) -> None:
        """Wait for everything submitted, also for what follows a batch that has failed. Raises the first error."""
        failure: Exception | None = None
        while self._waiting:
            try:
                self._wait_for_oldest()
            except (TimestoneError, OSError) as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _wait_for_oldest(self) -> None:
        submission = self._waiting[0]
        try:
            submission.wait()
        except (TimestoneError, OSError):
            self._has_failed = True
            raise
        finally:
            self._waiting.popleft()
            self._waiting_bytes -= submission.write_batch.size_bytes
        self._count += submission.write_batch.count
        self._bytes += submission.write_batch.size_bytes

    def to_json(self) -> dict[str, Any]:
        """Return what was acknowledged so far, for a program: the offsets [start, end), records and bytes. And how many
        records are in the log behind them, of which it is not known whether they will stay."""
        return {
            "log": self._log.name,
            "partition": self._log.partition,
            "ack": self._ack.value,
            "start_offset": self._first,
            "end_offset": self._first + self._count,
            "records": self._count,
            "bytes": self._bytes,
            "unacknowledged": self._unacknowledged,
        }

    @property
    def _unacknowledged(self) -> int:
        return max(0, self._log.end_offset - self._first - self._count) if self._has_failed else 0

    def describe(self) -> str:
        """Return what was acknowledged so far, in one line."""
        name, left = f"{self._log.name}-{self._log.partition}", ""
        if unknown := self._unacknowledged:
            records = format_count(unknown, "record")
            left = f"; {records} from offset {self._first + self._count} on may stay, not {self._ack.value}"
        if not self._count:
            return f"{name}: no records appended{left}"
        elapsed_s = max(time.monotonic() - self._started_s, 1e-9)
        rate = f"{format_bytes(self._bytes)} at {format_bytes(int(self._bytes / elapsed_s))}/s"
        offsets = f"[{self._first}, {self._first + self._count})"
        records = format_count(self._count, "record")
        return f"{name}: {records} at offsets {offsets}, {self._ack.value}, {rate}{left}"
