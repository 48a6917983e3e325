"""`timestone read`: the records of a log on standard output, between two offsets, the last ones, or as the log grows.

Reads through `timestone.view`, so it works beside the process that owns the store and on files copied from elsewhere.
"""

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

import timestone
from timestone.errors import CorruptRecord
from timestone.filters import validate_filter
from timestone.reader import Reader
from timestone.reading.batch import Batch
from timestone.view import LogView, StoreView

from ..errors import UsageError
from ..group import Command
from ..input.log_names import open_log
from ..input.parameters import COUNT, STORE_OR_BUCKET, Parsed
from ..input.positions import Position, parse_position
from ..output.record_formats import FORMATS, Formatter, formatter
from ..process.interrupts import Interrupts

EXIT_CORRUPT = 3
_LAST_ON_TERMINAL = 10
_BATCH_RECORDS = 16_384
_BATCH_BYTES = 1 << 20
_POLL_FIRST_S = 0.01
_POLL_LAST_S = 0.25
"""An idle `--follow` polls four times a second: the delay is imperceptible and the load hard to measure."""

EXAMPLES = """\
Examples:
  timestone read data mqtt --last 5                 the newest five records
  timestone read data mqtt > mqtt.jsonl             all, a line of JSON a record
  timestone read data mqtt --follow --from latest   what arrives from now on
  timestone read data mqtt --from time:2026-07-01T08:00:00Z --count 10
  timestone read data mqtt --topic 'devices/+/temp' --format text
  timestone read s3://bucket/plant mqtt --last 5    what a store has uploaded
  timestone read data images --from offset:17 --count 1 --format raw > 17.png

A PLACE is earliest, latest, offset:N or time:RFC3339. Ranges are half-open:
`--to offset:20` ends with offset 19. Without --follow the end is where the log
ends now. On a terminal, only the last 10 records are printed unless you ask for
others with --from, --to, --count or --last.

Exit codes: 0 done, 1 failed, 3 damaged records were skipped (each is named on
standard error), 64 invalid arguments, 130 interrupted.
"""


def _filter(text: str) -> str:
    validate_filter(text)
    return text


PLACE = Parsed("place", parse_position)


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument(
    "directory", metavar="DIR", type=STORE_OR_BUCKET, help="The store, or the URL of a bucket it uploads to."
)
@click.argument("log", metavar="LOG", help="The log's name.")
@click.option("--partition", metavar="N", type=COUNT, default=0, help="The partition of the log.")
@click.option(
    "--from", "start", metavar="PLACE", type=PLACE, help="Begin at this place.  [default: earliest]"
)
@click.option("--to", "end", metavar="PLACE", type=PLACE, help="Stop before this place.")
@click.option(
    "--topic", metavar="FILTER", type=Parsed("filter", _filter), help="Only topics of this MQTT filter."
)
@click.option("--last", metavar="N", type=COUNT, help="Only the last N records.")
@click.option("--count", metavar="N", type=COUNT, help="Stop after N records.")
@click.option("--follow", is_flag=True, help="At the end wait for more, until Ctrl-C.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="json",
    help="json: everything, a line a record; raw: the values back to back; text: a value a line; hex: a value a line, "
    "in hexadecimal.",
)
def command(
    directory: Path | str,
    log: str,
    partition: int,
    start: Position | None,
    end: Position | None,
    topic: str | None,
    last: int | None,
    count: int | None,
    follow: bool,
    form: str,
) -> int:
    """Print the records of a log, also while another process writes it."""
    if last is not None and start is not None:
        raise UsageError("--last and --from exclude each other")
    if follow and isinstance(directory, str):
        raise UsageError("--follow needs a store: a bucket gets whole segments")
    terminal = sys.stdout.isatty()
    if terminal and (start, end, last, count) == (None, None, None, None):
        last = _LAST_ON_TERMINAL
    with timestone.view(directory) as view, _history(view), Interrupts() as interrupts:
        found = open_log(view, log, partition)
        end_offset = end.resolve(found) if end is not None else None if follow else found.end_offset
        reading = _Reading(interrupts)
        if last is not None:
            upto = found.end_offset if end_offset is None else min(end_offset, found.end_offset)
            start_offset = reading.offset_of_last(found, last, upto, topic)
        else:
            start_offset = (start or Position("earliest")).resolve(found)
        printer = _Printer(formatter(form, terminal=terminal), end_offset, count)
        reading.print(found.reader(start_offset, topics=topic), found, printer, follow=follow)
    if interrupts.requested:
        return interrupts.exit_code
    return EXIT_CORRUPT if reading.skipped else 0


def _history(view: StoreView) -> AbstractContextManager[None]:
    """Let the logs of a view have what only a bucket has, if the store has one."""
    if not (view.path / "tier").exists():
        return nullcontext()
    from timestone_tiering.reading.local_view import remote_history  # noqa: PLC0415

    return remote_history(view)


class _Printer:
    """Formats and writes batches until an end offset or a count of records is reached."""

    def __init__(self, format_batch: Formatter, end: int | None, count: int | None) -> None:
        self._format = format_batch
        self._end = end
        self._left = count

    def room(self) -> int:
        """Return how many records the next batch may have."""
        return _BATCH_RECORDS if self._left is None else min(_BATCH_RECORDS, self._left)

    def finished(self, next_offset: int) -> bool:
        return self._left == 0 or (self._end is not None and next_offset >= self._end)

    def print(self, batch: Batch) -> None:
        count = _count_before(batch, self._end)
        if self._left is not None:
            self._left -= count
        if count:
            sys.stdout.buffer.write(self._format(batch, count))
            # At once: a follower wants to see it, and an interrupt must not find half a line in a buffer.
            sys.stdout.buffer.flush()


def _count_before(batch: Batch, end: int | None) -> int:
    """Return how many records of a batch lie before an offset."""
    if end is None or batch.next_offset <= end:
        return len(batch)
    return int(batch.offsets.searchsorted(end))


class _Reading:
    """Reads that pass over damaged records and count them in `skipped`."""

    def __init__(self, interrupts: Interrupts) -> None:
        self.skipped = 0
        self._interrupts = interrupts

    def print(self, reader: Reader, log: LogView, printer: _Printer, *, follow: bool) -> None:
        """Print until the end; with `follow` until an interrupt."""
        pause_s = _POLL_FIRST_S
        while not self._interrupts.requested and not printer.finished(reader.offset):
            try:
                batch = reader.read(max_records=printer.room(), max_bytes=_BATCH_BYTES)
            except CorruptRecord as damage:
                self.skipped += 1
                print(f"timestone read: skipped: {damage}", file=sys.stderr)
                reader.seek(damage.next_offset)
                continue
            if len(batch):
                printer.print(batch)
                pause_s = _POLL_FIRST_S
            elif follow:
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, _POLL_LAST_S)
                log.refresh()
            else:
                break

    def offset_of_last(self, log: LogView, count: int, end: int, topics: str | None) -> int:
        """Return the offset from which on `count` matching records lie before `end`; the start if there are fewer.

        Looks back over a window that grows, because offsets may be missing and topics may be rare.
        """
        window = count
        while True:
            first = max(log.start_offset, end - window)
            found = deque(self._offsets(log, first, end, topics), maxlen=count)
            if len(found) == count or first == log.start_offset or self._interrupts.requested:
                return found[0] if found else end
            window *= 4

    def _offsets(self, log: LogView, first: int, end: int, topics: str | None) -> Iterator[int]:
        reader = log.reader(first, topics=topics)
        while reader.offset < end and not self._interrupts.requested:
            try:
                batch = reader.read(max_records=_BATCH_RECORDS, max_bytes=_BATCH_BYTES)
            except CorruptRecord as damage:
                reader.seek(damage.next_offset)  # reported when it is printed
                continue
            if not len(batch):
                return
            yield from batch.offsets[: _count_before(batch, end)].tolist()
