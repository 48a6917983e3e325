"""What does a compressed log save, and what do reads of it cost?

The same telemetry in one log that stays raw and in one for each level; every repeat reads all of them in turn, so that
whatever disturbs one disturbs its peer as well. All of it comes from the page cache, so rates are by processor time;
what a slow disk would gain by reading less is not in these figures.
"""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

import timestone
from timestone import Ack, Compression, Log, Store
from timestone_cli.group import Command
from timestone_cli.input.parameters import Parsed
from timestone_cli.output.json_object import print_json

from .environment import probe_environment
from .options import POSITIVE, Progress, directory_option, json_option, progress_line, repeat_option
from .working_directory import working_directory

_COUNT, _REPEAT, _LEVELS = 1_000_000, 5, (1, 3, 6, 9)
_READ_BYTES = 1 << 20
_SINGLE_READS = 500
_BATCH = 4096
_SEED = 7
_FILE_WIDTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionRow:
    """One log. Reads are medians of the repeats; ratios are taken within each repeat."""

    name: str
    stored_bytes: int
    """Of the segment files; the indexes are the same for all."""
    saved_ratio: float
    """Raw bytes over stored bytes."""
    compress_mb_per_s: float | None
    """10^6 raw bytes a second of the processor, proving the copy included."""
    bulk_mb_per_s: float
    """10^6 raw bytes a second of the processor, in a process that reads all of it for the first time."""
    bulk_ratio: float
    """Over the raw log."""
    single_us: float
    """The median of `Log.record` at random offsets."""
    single_ratio: float
    """Over the raw log: how many times as long."""


@dataclass(slots=True)
class _Figures:
    bulk_s: list[float] = field(default_factory=list)
    single_us: list[float] = field(default_factory=list)


def _levels(text: str) -> list[int]:
    try:
        levels = [int(word) for word in text.split(",")]
    except ValueError:
        levels = [0]
    if not all(1 <= level <= 19 for level in levels):
        raise ValueError(f"expected levels from 1 to 19 such as 3,9, got {text!r}")
    return levels


@click.command(cls=Command)
@click.option("--count", metavar="N", type=POSITIVE, default=_COUNT, help="Records.")
@repeat_option(_REPEAT)
@click.option(
    "--levels",
    metavar="LIST",
    type=Parsed("levels", _levels),
    default=",".join(map(str, _LEVELS)),
    help="Levels of compression, from 1 to 19.",
)
@directory_option()
@json_option
def command(count: int, repeat: int, levels: list[int], directory: Path, as_json: bool) -> None:
    """The same telemetry raw and compressed: size, bulk reads, single reads."""
    progress = progress_line()
    rows = measure(directory, count, levels, repeat, progress)
    environment = probe_environment(directory)
    progress("")
    if as_json:
        print_json(
            {
                "benchmark": "compression",
                "parameters": {"count": count, "repeat": repeat, "levels": levels},
                "environment": asdict(environment),
                "rows": [asdict(row) for row in rows],
            }
        )
        return
    _print_rows(rows, environment.lines())


def measure(
    folder: Path, count: int, levels: Sequence[int], repeat: int, progress: Progress
) -> list[CompressionRow]:
    """The raw log and one for each level, read in turn."""
    with working_directory(folder) as directory:
        path = directory / "store"
        progress("appending")
        names = ["raw", *(f"zstd {level}" for level in levels)]
        spent_s = _prepare(path, count, dict(zip(map(_log_name, names[1:]), levels, strict=True)), progress)
        figures = {name: _Figures() for name in names}
        for number in range(repeat):
            for name in names if number % 2 == 0 else names[::-1]:
                progress(f"{name}, run {number + 1} of {repeat}")
                with timestone.open(path) as store:
                    log = store.log(_log_name(name))
                    figures[name].bulk_s.append(_bulk_s(log))
                    figures[name].single_us.append(_single_us(log))
        with timestone.open(path) as store:
            return [_row(store, name, figures, spent_s.get(_log_name(name))) for name in names]


def _row(store: Store, name: str, figures: dict[str, _Figures], spent_s: float | None) -> CompressionRow:
    trailers = [segment.trailer for segment in store.log(_log_name(name)).history.segments if segment.trailer]
    raw_bytes = sum(trailer.segment_bytes for trailer in trailers)
    stored_bytes = sum(trailer.stored_bytes for trailer in trailers)
    mine, raw = figures[name], figures["raw"]
    return CompressionRow(
        name=name,
        stored_bytes=stored_bytes,
        saved_ratio=raw_bytes / stored_bytes,
        compress_mb_per_s=None if spent_s is None else raw_bytes / spent_s / 1e6,
        bulk_mb_per_s=raw_bytes / statistics.median(mine.bulk_s) / 1e6,
        bulk_ratio=statistics.median(one / two for one, two in zip(raw.bulk_s, mine.bulk_s, strict=True)),
        single_us=statistics.median(mine.single_us),
        single_ratio=statistics.median(
            one / two for one, two in zip(mine.single_us, raw.single_us, strict=True)
        ),
    )


def _prepare(path: Path, count: int, levels: dict[str, int], progress: Progress) -> dict[str, float]:
    """Append the same records to all logs and compress those that are to be; seconds each took."""
    with timestone.open(path, ack=Ack.WRITTEN) as store:
        logs = [store.log("raw"), *(store.log(name) for name in levels)]
        for records in _telemetry(count):
            for log in logs:
                log.append_many(records)
    spent_s = {}
    with timestone.open(path, delete_delay_ms=0) as store:
        store.maintenance.stop()  # which would compress beside us, and rest in between
        for name, level in levels.items():
            progress(f"compressing at level {level}")
            log = store.log(name)
            log.configure(compression=Compression.ZSTD, compression_level=level)
            began = time.process_time()
            log.apply_compression()
            spent_s[name] = time.process_time() - began
            log.configure(compression=Compression.NONE)  # so that no later open continues with it
    return spent_s


def _log_name(row: str) -> str:
    return row.replace(" ", "-")


def _telemetry(count: int) -> Iterator[list[bytes]]:
    """What devices say: a few facts in JSON, half of them noise."""
    source = random.Random(_SEED)
    for start in range(0, count, _BATCH):
        yield [
            b'{"device":"sensor-%d","temperature":%.2f,"humidity":%d,"at":%d}'
            % (source.randrange(1000), source.gauss(20, 3), source.randrange(100), 1_700_000_000_000 + number)
            for number in range(start, min(start + _BATCH, count))
        ]


def _bulk_s(log: Log) -> float:
    """Seconds of the processor to read a log from start to end."""
    offset, began = log.start_offset, time.process_time()
    while offset < log.end_offset:
        offset = log.read(offset, max_records=_READ_BYTES, max_bytes=_READ_BYTES).next_offset
    return time.process_time() - began


def _single_us(log: Log) -> float:
    """The median of reads of one record."""
    source, taken_us = random.Random(_SEED), []
    for _ in range(_SINGLE_READS):
        offset = source.randrange(log.start_offset, log.end_offset)
        began = time.perf_counter_ns()
        log.record(offset)
        taken_us.append((time.perf_counter_ns() - began) / 1000)
    return statistics.median(taken_us)


def _print_rows(rows: Sequence[CompressionRow], head: Sequence[str]) -> None:
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH, highlight=False, emoji=False, markup=False)
    for line in head:
        console.print(line)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("log")
    for heading in (
        "stored MB", "saved", "compress MB/s", "bulk read MB/s", "of raw", "single read us", "of raw",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.stored_bytes / 1e6:,.1f}",
            f"{row.saved_ratio:.2f}",
            "" if row.compress_mb_per_s is None else f"{row.compress_mb_per_s:,.0f}",
            f"{row.bulk_mb_per_s:,.0f}",
            f"{row.bulk_ratio:.2f}",
            f"{row.single_us:,.1f}",
            f"{row.single_ratio:.1f}",
        )
    console.print()
    console.print(table)
