"""`timestone read`: the records of a log on standard output, from a place to a place, or on and on as it grows.

Reads through `timestone.view`, so it works beside the process that owns the store and on files copied from elsewhere.
"""

import argparse
import sys
import time

import timestone
from timestone.errors import CorruptRecord, InvalidName
from timestone.filters import validate_filter
from timestone.reader import Reader
from timestone.view import LogView

from ..input.log_names import open_log
from ..input.positions import Position, parse_position
from ..output.record_formats import FORMATS, Formatter, formatter
from ..parser import given_count, given_path
from ..process.interrupts import Interrupts

EXIT_CORRUPT = 3
_BATCH_RECORDS = 16_384
_BATCH_BYTES = 1 << 20
_POLL_FIRST_S = 0.01
_POLL_LAST_S = 0.25
"""An idle `--follow` looks four times a second: no more delay than a person notices, no load that one could measure."""

EXAMPLES = """\
examples:
  timestone read data mqtt                                all of it, a line of JSON a record
  timestone read data mqtt --follow --from latest         what arrives from now on
  timestone read data mqtt --from time:2026-07-01T08:00:00Z --to time:2026-07-01T09:00:00Z
  timestone read data mqtt --topic 'devices/+/temp' --count 10 --format text
  timestone read data images --from offset:17 --count 1 --format raw > image.png

Ranges are half-open: `--to offset:20` ends with offset 19. Without --follow the end is where the
log ends now. Exit codes: 0 done, 1 failed, 3 damaged records were skipped (each is named on
standard error), 64 wrong usage, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `read`."""
    parser.description = "Print the records of a log; also while another process writes it."
    parser.epilog = EXAMPLES
    parser.add_argument("directory", metavar="DIR", type=given_path, help="the store")
    parser.add_argument("log", metavar="LOG", help="the log's name")
    parser.add_argument(
        "--partition", metavar="N", type=given_count, default=0, help="partition of the log (default: 0)"
    )
    parser.add_argument(
        "--from", dest="start", metavar="PLACE", type=parse_position, default=Position("earliest"),
        help="earliest (default), latest, offset:N or time:RFC3339",
    )  # fmt: skip
    parser.add_argument(
        "--to", dest="end", metavar="PLACE", type=parse_position, help="stop before this place"
    )
    parser.add_argument(
        "--topic", metavar="FILTER", type=_filter, help="only topics that match this MQTT filter"
    )
    parser.add_argument("--count", metavar="N", type=given_count, help="stop after N records")
    parser.add_argument("--follow", action="store_true", help="wait for more at the end; Ctrl-C ends it")
    parser.add_argument(
        "--format", choices=FORMATS, default="json",
        help="json (default): everything, a line a record; raw: the values back to back; text: a value a line; "
        "hex: a value a line in hexadecimal",
    )  # fmt: skip


def _filter(text: str) -> str:
    try:
        validate_filter(text)
    except InvalidName as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def run(arguments: argparse.Namespace) -> int:
    """Print what was asked for; the exit code says whether anything had to be skipped."""
    with timestone.view(arguments.directory) as view, Interrupts() as interrupts:
        log = open_log(view, arguments.log, arguments.partition)
        start = arguments.start.resolve(log)
        end = arguments.end.resolve(log) if arguments.end is not None else None
        if end is None and not arguments.follow:
            end = log.end_offset
        reader = log.reader(start, topics=arguments.topic)
        printer = _Printer(formatter(arguments.format, terminal=sys.stdout.isatty()), end, arguments.count)
        skipped = _copy(reader, log, printer, interrupts, follow=arguments.follow)
    if interrupts.requested:
        return interrupts.exit_code
    return EXIT_CORRUPT if skipped else 0


class _Printer:
    """Formats and writes batches until an end offset or a count of records is reached."""

    def __init__(self, format_batch: Formatter, end: int | None, count: int | None) -> None:
        self._format = format_batch
        self._end = end
        self._left = count

    def room(self) -> int:
        """How many records the next batch may have."""
        return _BATCH_RECORDS if self._left is None else min(_BATCH_RECORDS, self._left)

    def finished(self, next_offset: int) -> bool:
        return self._left == 0 or (self._end is not None and next_offset >= self._end)

    def print(self, batch: timestone.Batch) -> None:
        count = len(batch)
        if self._end is not None and batch.next_offset > self._end:
            count = int(batch.offsets.searchsorted(self._end))
        if self._left is not None:
            self._left -= count
        if count:
            sys.stdout.buffer.write(self._format(batch, count))
            # At once: whoever follows a log wants to see it, and an interrupt must not find half a line in a buffer.
            sys.stdout.buffer.flush()


def _copy(reader: Reader, log: LogView, printer: _Printer, interrupts: Interrupts, *, follow: bool) -> int:
    """Read and print until the end, or forever with `follow`; returns how many damaged records were skipped."""
    skipped = 0
    pause_s = _POLL_FIRST_S
    while not interrupts.requested and not printer.finished(reader.offset):
        try:
            batch = reader.read(max_records=printer.room(), max_bytes=_BATCH_BYTES)
        except CorruptRecord as damage:
            skipped += 1
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
    return skipped
