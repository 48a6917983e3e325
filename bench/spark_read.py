"""How fast does Spark read a log, beside Parquet and text of the same rows, and how fast does it get typed columns?

One core for everything: Spark's tasks, its Python worker and this program. Each row of the result is a whole scan
into Spark's `noop` sink, which takes every row and keeps none. The cases take turns, and each turn begins with another
one, so that what the machine does besides, and what one leaves to the next, meets all of them. Nothing is measured
before Java has compiled what they need: until then a case is faster each time, and more so a case that Java runs alone.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import timestone
from pyspark_timestone import DefaultSource
from pyspark_timestone.batch_reader import TimestoneReader
from pyspark_timestone.errors import SparkSourceError
from pyspark_timestone.history import read_history
from pyspark_timestone.options import read_options
from pyspark_timestone.session import spark_session
from pyspark_timestone.side_file_keeper import SideFileKeeper

from .errors import BenchmarkError

__all__ = ["BenchmarkError", "add_arguments", "run"]

LOG = "telemetry"
TOPIC_COUNT = 1000
_BATCH = 10_000
_COUNT, _QUICK_COUNT = 1_000_000, 200_000
_WARM_UP = 20
"""Turns in which Java compiles. After ten a scan still gets a tenth faster, after twenty a fiftieth."""
_COLUMNS = "log,partition,offset,timestamp,topic,value,flags"
"""What has a value; the headers of these records are null, and a column more for Spark to carry all the same."""
_FIELDS = "device string, seq bigint, temperature double"
_PARQUET, _FROM_JSON = "Parquet", "from_json"
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
"""Who is compared with whom; the others with Parquet."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case: the middle of its runs."""

    case: str
    seconds: float
    records_per_s: float
    mb_per_s: float
    peer: str
    """The case it is compared with."""
    ratio: float
    """How many times as fast as its peer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.description = "Scans of one log by Spark on one core, against Parquet of the same rows."
    parser.add_argument(
        "--count", type=int, metavar="N", help=f"records (default: {_COUNT}; quick: {_QUICK_COUNT})"
    )
    parser.add_argument(
        "--record-bytes", type=int, default=100, metavar="N", help="size of a record (default: 100)"
    )
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each row (default: 5)")
    parser.add_argument(
        "--warm-up",
        type=int,
        metavar="N",
        default=_WARM_UP,
        help=f"turns before those that count, in which Java compiles (default: {_WARM_UP})",
    )
    parser.add_argument("--quick", action="store_true", help="fewer records")
    parser.add_argument(
        "--only",
        metavar="WORD",
        default="",
        help="the rows whose names have WORD, and whom they are compared with",
    )
    parser.add_argument(
        "--dir", type=Path, default=Path(), metavar="DIR", help="where the data goes (default: .)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> int:
    """Measure and print; returns the exit code."""
    count = arguments.count or (_QUICK_COUNT if arguments.quick else _COUNT)
    # Before Java starts: it takes its number of threads from what it may use, and its children inherit the core.
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    directory = Path(tempfile.mkdtemp(prefix="timestone-bench-", dir=arguments.dir)).absolute()
    try:
        start_s, rows = _measure(directory, count, arguments, progress)
    except SparkSourceError as error:
        raise BenchmarkError(str(error)) from error
    finally:
        os.sched_setaffinity(0, before)
        shutil.rmtree(directory, ignore_errors=True)
    progress("")
    if arguments.json:
        setting = {
            "count": count,
            "record_bytes": arguments.record_bytes,
            "repeat": arguments.repeat,
            "warm_up": arguments.warm_up,
            "cores": 1,
            "start_s": start_s,
        }
        Console().print_json(json.dumps(setting | {"rows": [asdict(row) for row in rows]}))
    else:
        _print(rows, count, arguments.record_bytes, start_s)
    return 0


def _measure(
    directory: Path, count: int, arguments: argparse.Namespace, progress: Callable[[str], None]
) -> tuple[float, list[Row]]:
    """Seconds until Spark was there, and the rows."""
    size, repeat, warm_up = arguments.record_bytes, arguments.repeat, arguments.warm_up
    progress(f"appending {count:,} records")
    store = directory / "data"
    fill(store, count, size)
    progress("starting Spark")
    started = time.perf_counter()
    spark = spark_session("timestone-bench", master="local[1]", conf={"spark.driver.memory": "2g"})
    start_s = time.perf_counter() - started
    try:
        cases = _chosen(_cases(spark, directory, store, count), arguments.only)
        taken: dict[str, list[float]] = {name: [] for name in cases}
        names = list(cases)
        for turn in range(warm_up + repeat):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                progress(f"{name}, run {turn - warm_up + 1} of {repeat}")
                begun = time.perf_counter()
                cases[name]().write.format("noop").mode("overwrite").save()
                taken[name].append(time.perf_counter() - begun)
    finally:
        spark.stop()
    middle = {name: statistics.median(seconds[warm_up:]) for name, seconds in taken.items()}
    return start_s, [
        Row(name, seconds, count / seconds, count * size / seconds / 1e6, peer, middle[peer] / seconds)
        for name, seconds in middle.items()
        for peer in [_PEERS.get(name, _PARQUET)]
    ]


def _chosen(cases: Mapping[str, Callable[[], Any]], word: str) -> Mapping[str, Callable[[], Any]]:
    wanted = {name for name in cases if word in name}
    while missing := {_PEERS.get(name, _PARQUET) for name in wanted} - wanted:
        wanted |= missing
    if not wanted:
        raise BenchmarkError(f"no row has {word!r} in its name; there are {'; '.join(cases)}")
    return {name: load for name, load in cases.items() if name in wanted}


def _cases(spark: Any, directory: Path, store: Path, count: int) -> Mapping[str, Callable[[], Any]]:
    """A name, and what loads it anew: Spark keeps the plan of a DataFrame, and planning is part of a scan."""

    def log(source: str = "timestone", **options: str) -> Any:
        return spark.read.format(source).options(**options).load(str(store))

    def from_json() -> Any:
        message = f"from_json(cast(value as string), '{_FIELDS}') as payload"
        return log(columns="offset,value").selectExpr("offset", message).selectExpr("offset", "payload.*")

    def typed() -> Any:
        options = {"payload": "json", "payloadSchema": _FIELDS, "columns": "offset,payload"}
        return log(**options).selectExpr("offset", "payload.*")

    def aggregated(frame: Any) -> Any:
        return frame.groupBy("device").agg({"temperature": "avg", "seq": "max", "offset": "count"})

    plain, whole, packed, lines = (
        str(directory / name) for name in ("plain.parquet", "whole.parquet", "zstd.parquet", "lines")
    )
    log().write.option("compression", "uncompressed").parquet(whole)
    log(columns=_COLUMNS).write.option("compression", "uncompressed").parquet(plain)
    log(columns=_COLUMNS).write.option("compression", "zstd").parquet(packed)
    log(columns="value").selectExpr("cast(value as string)").write.text(lines)
    with SideFileKeeper(store) as keeper:
        keeper.run()
    spark.dataSource.register(ConstantSource)
    last = f"offset >= {count - count // 100}"
    return {
        _PARQUET: lambda: spark.read.parquet(plain),
        "Parquet, zstd": lambda: spark.read.parquet(packed),
        "Timestone": lambda: log(columns=_COLUMNS),
        "constant batches": lambda: log("timestone-constant", columns=_COLUMNS),
        _ALL: lambda: spark.read.parquet(whole),
        "Timestone, all columns": lambda: log(),
        "constant batches, all columns": lambda: log("timestone-constant"),
        "side files": lambda: read_history(spark, store, columns=_COLUMNS),
        "Parquet, value only": lambda: spark.read.parquet(plain).select("value"),
        "Timestone, value only": lambda: log(columns="value"),
        "Timestone, last hundredth": lambda: log(columns=_COLUMNS).where(last),
        _SIDE_LAST: lambda: read_history(spark, store, columns=_COLUMNS).where(last),
        "text": lambda: spark.read.text(lines),
        _FROM_JSON: from_json,
        "payload=json": typed,
        "from_json, aggregated": lambda: aggregated(from_json()),
        "payload=json, aggregated": lambda: aggregated(typed()),
    }


class ConstantSource(DefaultSource):
    """The source, but that each task yields its first batch over and over: what Spark takes from any source in Python,
    however fast that is."""

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
        del batches  # and what it holds open
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
    """A JSON message that differs from its neighbours, filled up or cut to `size` bytes."""
    device, temperature = f"device-{number % TOPIC_COUNT:04}", 20 + number % 97 / 10
    text = f'{{"device": "{device}", "seq": {number}, "temperature": {temperature}, "note": "'
    return text.encode().ljust(size - 2, b"x")[: size - 2] + b'"}'


def _print(rows: list[Row], count: int, size: int, start_s: float) -> None:
    title = f"{count:,} records of {size} bytes, one core; Spark started in {start_s:.1f} s"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
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
    Console().print(table)


def main() -> int:
    """`python -m timestone_bench.spark_read`."""
    parser = argparse.ArgumentParser(prog="timestone_bench.spark_read")
    add_arguments(parser)
    return run(parser.parse_args(), lambda text: None)


if __name__ == "__main__":
    raise SystemExit(main())
