"""`timestone metrics`: what a server did over time, by the samples in its store; also of a stopped one."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click

from timestone.errors import CorruptRecord, OffsetOutOfRange, UnknownLog
from timestone.metrics.records import METRICS_LOG, Sample, UnsupportedSchema, decode_sample
from timestone.view import LogView, view_store

from ..errors import CommandError
from ..group import Command
from ..input.parameters import DIRECTORY, count_from, duration_ms
from ..output.json_object import print_json
from ..output.metrics_history import history_table, plot, steps
from ..output.tables import print_tables

EXAMPLES = """\
Examples:
  timestone metrics data                  the hour up to the last sample
  timestone metrics data --last 1d --steps 24
  timestone metrics data --json | jq '.steps[-1].in_per_s'

DIR is a store, of a server that runs or has stopped, or a copy. in and out are
messages from and to clients, ack the time from a publish to its
acknowledgement, flush that of writing to the disk: 99 of 100 took at most so
long. A cell is - for a time without a sample: the server did not run, or
--metrics-interval-ms was 0.
"""

_SAMPLE_COUNT = 2000
"""Most samples that are read; of more, so many at equal distances."""
_PLOT_STEPS = 50
_PLOTTED = ("in_per_s", "out_per_s", "clients", "acknowledge_p99_s", "flush_p99_s")


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=DIRECTORY, help="The store.")
@click.option(
    "--last",
    "last_ms",
    metavar="DURATION",
    type=duration_ms("s"),
    default="1h",
    help="Time before the last sample, from 1s.",
)
@click.option(
    "--steps", "step_count", metavar="N", type=count_from(1), default=12, help="Number of lines of the table."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, last_ms: int, step_count: int, as_json: bool) -> None:
    """Show what a server did over time, also after it has stopped."""
    last_us = max(1000, last_ms) * 1000
    with closing(view_store(directory)) as view:
        try:
            log = view.log(METRICS_LOG)
        except UnknownLog:
            raise CommandError(
                f"{directory} has no samples: no server has recorded its metrics there"
            ) from None
        try:
            samples = list(_samples(log, last_us))
        except UnsupportedSchema as error:
            raise CommandError(f"{directory}: {error}") from None
    if not samples:
        raise CommandError(f"{directory} has no samples yet")
    end_us = samples[-1].time_us
    start_us = end_us - last_us
    found = steps(samples, start_us, max(1, last_us // step_count), step_count)
    if as_json:
        print_json({"path": str(directory), "start_us": start_us, "end_us": end_us, "steps": found})
        return
    fine = steps(samples, start_us, max(1, last_us // _PLOT_STEPS), _PLOT_STEPS)
    print_tables(lambda console: console.print(history_table(found)))
    print()
    for key in _PLOTTED:
        print(plot(fine, key))


def _samples(log: LogView, last_us: int) -> Iterator[Sample]:
    """Yield the samples of the time before the last one, and the one before them."""
    end = log.end_offset
    if log.start_offset == end:
        return
    try:
        newest_us = log.record(end - 1).timestamp_us
    except (CorruptRecord, OffsetOutOfRange):
        newest_us = time.time_ns() // 1000
    count = end - max(log.start_offset, log.offset_at(newest_us - last_us) - 1)
    distance = max(1, -(-count // _SAMPLE_COUNT))
    for back in range((count - 1) // distance, -1, -1):
        try:
            yield decode_sample(log.record(end - 1 - back * distance).payload)
        except (CorruptRecord, OffsetOutOfRange):
            continue
