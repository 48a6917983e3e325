"""Spark's read rate of a log, beside Parquet and text of the same rows, and its rate with typed columns.

One core for everything: Spark's tasks, its Python worker and this program. Each row of the result is a complete scan
into Spark's `noop` sink. The cases run in turn, and each turn begins with another case, so that other work on the
machine, and effects of one case on the next, affect all alike. Measuring starts after Java has compiled the code
involved: until then each scan is faster than the one before, most of all in cases that run in Java alone.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

import timestone
from pyspark_timestone import DefaultSource
from pyspark_timestone.errors import SparkSourceError
from pyspark_timestone.history import read_history
from pyspark_timestone.options.read_options import read_options
from pyspark_timestone.reading.batch_reader import TimestoneReader
from pyspark_timestone.session import spark_session
from pyspark_timestone.side_files.keeper import SideFileKeeper
from timestone_cli.errors import UsageError
from timestone_cli.group import Command
from timestone_cli.output.json_object import print_json
from timestone_cli.output.tables import print_tables, simple_table
from timestone_cli.output.text import print_text

from .errors import BenchmarkError
from .options import (
    POSITIVE,
    Progress,
    chosen_rows,
    directory_option,
    json_option,
    only_option,
    progress_line,
    quick_option,
    repeat_option,
    warm_up_option,
)
from .working_directory import working_directory

LOG = "telemetry"
TOPIC_COUNT = 1000
_BATCH = 10_000
_END = b'"}'
"""End of a message."""
_COUNT, _QUICK_COUNT = 1_000_000, 200_000
_WARM_UP = 20
"""Turns in which Java compiles. After ten a scan still gets a tenth faster, after twenty a fiftieth."""
_COLUMNS = "log,partition,offset,timestamp,topic,value,flags"
"""The columns with values. The headers of these records are null, but they would be one more column for Spark to
transfer."""
_FIELDS = "device string, seq bigint, temperature double"
_PARQUET, _FROM_JSON = "Parquet", "from_json"
"""Parquet is as Spark writes it by default: with snappy."""
_SIDE_LAST = "side files, last hundredth"
_ALL = "Parquet, all columns"
_PEERS = {
    "Timestone, all columns": _ALL,
    "constant batches, all columns": _ALL,
    "Timestone, value only": "Parquet, value only",
    _SIDE_LAST: "Timestone, last hundredth",
    "payload=json": _FROM_JSON,
    "payload=json, aggregated": "from_json, aggregated",
}
"""Peer of each case; the others are compared with Parquet."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case: the median of its runs."""

    case: str
    seconds: float
    records_per_s: float
    mb_per_s: float
    peer: str
    """The case it is compared with."""
    ratio: float
    """How many times as fast as its peer."""


@click.command(cls=Command)
@click.option(
    "--count", metavar="N", type=POSITIVE, help=f"Records.  [default: {_COUNT}; with --quick: {_QUICK_COUNT}]"
)
@click.option("--record-bytes", metavar="N", type=POSITIVE, default=100, help="Size of a record.")
@repeat_option(5)
@warm_up_option(_WARM_UP, "Turns before those that count, in which Java compiles.")
@quick_option
@only_option
@click.option("--java", metavar="OPTIONS", default="", help="Options of Java, for example --java=-Xms2g.")
@directory_option()
@json_option
def command(
    count: int | None,
    record_bytes: int,
    repeat: int,
    warm_up: int,
    quick: bool,
    only: str,
    java: str,
    directory: Path,
    as_json: bool,
) -> None:
    """Scans of one log by Spark on one core, beside Parquet of the same rows."""
    progress = progress_line()
    count = count or (_QUICK_COUNT if quick else _COUNT)
    chosen = chosen_rows(only, CASES, _peer)
    least = max(len(_unfilled(number)) for number in range(max(0, count - TOPIC_COUNT), count)) + len(_END)
    if record_bytes < least:
        raise UsageError(
            f"invalid --record-bytes: expected {least} or more, because the messages are JSON, got {record_bytes}"
        )
    # Before Java starts: it derives its number of threads from the allowed cores, and its children inherit the core.
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        with working_directory(directory) as work:
            start_s, rows = _measure(
                work.absolute(),
                count,
                chosen,
                record_bytes=record_bytes,
                java=java,
                turns=(warm_up, repeat),
                progress=progress,
            )
    except SparkSourceError as error:
        raise BenchmarkError(str(error)) from error
    finally:
        os.sched_setaffinity(0, before)
    progress("")
    if as_json:
        setting = {
            "count": count,
            "record_bytes": record_bytes,
            "repeat": repeat,
            "warm_up": warm_up,
            "cores": 1,
            "java": java,
            "start_s": start_s,
        }
        print_json(setting | {"rows": [asdict(row) for row in rows]})
    else:
        _print(rows, count, record_bytes, start_s)


def _measure(
    directory: Path,
    count: int,
    chosen: Sequence[str],
    *,
    record_bytes: int,
    java: str,
    turns: tuple[int, int],
    progress: Progress,
) -> tuple[float, list[Row]]:
    """Return the seconds until Spark was started, and the rows. turns: the warm-up turns, and the measured ones."""
    warm_up, repeat = turns
    # First, because it may not be installed.
    progress("starting Spark")
    started = time.perf_counter()
    conf = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": java}
    spark = spark_session("timestone-bench", master="local[1]", conf=conf)
    start_s = time.perf_counter() - started
    try:
        progress(f"appending {count:,} records")
        store = directory / "data"
        fill(store, count, record_bytes)
        scans = Scans(spark, directory, store, count)
        taken: dict[str, list[float]] = {name: [] for name in chosen}
        for turn in range(warm_up + repeat):
            first = turn % len(chosen)
            for name in (*chosen[first:], *chosen[:first]):
                progress(f"{name}, run {turn - warm_up + 1} of {repeat}")
                begun = time.perf_counter()
                CASES[name](scans).write.format("noop").mode("overwrite").save()
                taken[name].append(time.perf_counter() - begun)
    finally:
        spark.stop()
    middle = {name: statistics.median(seconds[warm_up:]) for name, seconds in taken.items()}
    return start_s, [
        Row(
            name, seconds, count / seconds, count * record_bytes / seconds / 1e6, peer, middle[peer] / seconds
        )
        for name, seconds in middle.items()
        for peer in [_peer(name)]
    ]


def _peer(name: str) -> str:
    """Return the row that a row is compared with."""
    return _PEERS.get(name, _PARQUET)


class Scans:
    """Equal rows in every format, and functions that load them again: Spark keeps the plan of a DataFrame, and
    planning is part of a scan."""

    def __init__(self, spark: Any, directory: Path, store: Path, count: int) -> None:
        self.spark, self.store = spark, store
        self.plain, self.whole, self.uncompressed, self.zstd, self.lines = (
            str(directory / name)
            for name in ("plain.parquet", "whole.parquet", "uncompressed.parquet", "zstd.parquet", "lines")
        )
        self.last = f"offset >= {count - count // 100}"
        self.log().write.parquet(self.whole)
        self.log(columns=_COLUMNS).write.parquet(self.plain)
        self.log(columns=_COLUMNS).write.option("compression", "uncompressed").parquet(self.uncompressed)
        self.log(columns=_COLUMNS).write.option("compression", "zstd").parquet(self.zstd)
        self.log(columns="value").selectExpr("cast(value as string)").write.text(self.lines)
        with SideFileKeeper(store) as keeper:
            keeper.run()
        spark.dataSource.register(ConstantSource)

    def log(self, source: str = "timestone", **options: str) -> Any:
        return self.spark.read.format(source).options(**options).load(str(self.store))

    def history(self) -> Any:
        return read_history(self.spark, self.store, columns=_COLUMNS)

    def from_json(self) -> Any:
        message = f"from_json(cast(value as string), '{_FIELDS}') as payload"
        return (
            self.log(columns="offset,value").selectExpr("offset", message).selectExpr("offset", "payload.*")
        )

    def typed(self) -> Any:
        options = {"payload": "json", "payloadSchema": _FIELDS, "columns": "offset,payload"}
        return self.log(**options).selectExpr("offset", "payload.*")


def _aggregated(frame: Any) -> Any:
    return frame.groupBy("device").agg({"temperature": "avg", "seq": "max", "offset": "count"})


CASES: Mapping[str, Callable[[Scans], Any]] = {
    _PARQUET: lambda on: on.spark.read.parquet(on.plain),
    "Parquet, uncompressed": lambda on: on.spark.read.parquet(on.uncompressed),
    "Parquet, zstd": lambda on: on.spark.read.parquet(on.zstd),
    "Timestone": lambda on: on.log(columns=_COLUMNS),
    "constant batches": lambda on: on.log("timestone-constant", columns=_COLUMNS),
    _ALL: lambda on: on.spark.read.parquet(on.whole),
    "Timestone, all columns": lambda on: on.log(),
    "constant batches, all columns": lambda on: on.log("timestone-constant"),
    "side files": lambda on: on.history(),
    "Parquet, value only": lambda on: on.spark.read.parquet(on.plain).select("value"),
    "Timestone, value only": lambda on: on.log(columns="value"),
    "Timestone, last hundredth": lambda on: on.log(columns=_COLUMNS).where(on.last),
    _SIDE_LAST: lambda on: on.history().where(on.last),
    "text": lambda on: on.spark.read.text(on.lines),
    _FROM_JSON: lambda on: on.from_json(),
    "payload=json": lambda on: on.typed(),
    "from_json, aggregated": lambda on: _aggregated(on.from_json()),
    "payload=json, aggregated": lambda on: _aggregated(on.typed()),
}
"""The cases by name."""


class ConstantSource(DefaultSource):
    """The source, except that each task yields its first batch repeatedly: the most that Spark takes from any source in
    Python."""

    @classmethod
    def name(cls) -> str:
        return "timestone-constant"

    def reader(self, schema: Any) -> Any:
        return ConstantReader(read_options(self.options, streaming=False), schema)


class ConstantReader(TimestoneReader):
    """Plans as the reader does."""

    def read(self, partition: Any) -> Iterator[Any]:
        left = partition.range.end - partition.range.start
        batches = super().read(partition)
        first = next(batches)
        del batches  # and the resources that it holds open
        while left > 0:
            yield first.slice(0, left)
            left -= first.num_rows


def fill(store: Path, count: int, size: int) -> None:
    """Append `count` telemetry messages of `size` bytes, on TOPIC_COUNT topics."""
    with timestone.open(store, ack="written") as opened:
        log = opened.log(LOG)
        for first in range(0, count, _BATCH):
            numbers = range(first, min(first + _BATCH, count))
            log.append_many(
                [message(number, size) for number in numbers],
                topics=[f"devices/{number % TOPIC_COUNT}/telemetry" for number in numbers],
            )


def message(number: int, size: int) -> bytes:
    """Return a JSON message that differs from its neighbours, padded or cut to `size` bytes."""
    return _unfilled(number).ljust(size - len(_END), b"x")[: size - len(_END)] + _END


def _unfilled(number: int) -> bytes:
    device, temperature = f"device-{number % TOPIC_COUNT:04}", 20 + number % 97 / 10
    return f'{{"device": "{device}", "seq": {number}, "temperature": {temperature}, "note": "'.encode()


def _print(rows: list[Row], count: int, size: int, start_s: float) -> None:
    print_text(f"{count:,} records of {size} bytes, one core; Spark started in {start_s:.1f} s")
    print()
    table = simple_table()
    table.add_column("scan")
    for heading in ("seconds", "records/s", "MB/s", "times"):
        table.add_column(heading, justify="right")
    table.add_column("of")
    for row in rows:
        table.add_row(
            row.case,
            f"{row.seconds:.2f}",
            f"{row.records_per_s:,.0f}",
            f"{row.mb_per_s:.0f}",
            f"{row.ratio:.2f}",
            row.peer,
        )
    print_tables(lambda console: console.print(table))
