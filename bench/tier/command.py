"""`timestone bench tier`: what a bucket costs, beside the client of object stores alone and Parquet in the same bucket.

The rows run in turn, and each turn begins with another one. A ratio is the median of the ratios of the turns, so that
other work on the machine affects both sides of it."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from timestone.config import Compression
from timestone_cli.errors import UsageError
from timestone_cli.group import Command
from timestone_cli.output.tables import print_tables, simple_table
from timestone_tiering.buckets.bucket_url import open_bucket
from timestone_tiering.errors import BucketError, TieringError

from ..environment import probe_environment
from ..errors import BenchmarkError
from ..measurement import Spread
from ..options import (
    AMOUNT,
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
from ..report import print_report
from ..working_directory import working_directory
from .s3_server import Identity, s3_server
from .scans import Scans
from .uploads import RECORD_BYTES, Target, Uploads

_MB, _QUICK_MB = 256, 32
_WARM_UP = 8
_WINDOW_S = 2.0


class Case(NamedTuple):
    """A row: what it measures, and what it is compared with."""

    measure: Callable[["_Cases"], float]
    peer: str
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a case. Rates are in 10^6 bytes a second."""

    case: str
    rate: Spread
    peer: str
    ratio: Spread
    """Of the rates in the same turn."""
    goal: float | None


class _Cases:
    """What the rows measure; Spark starts when the first of its rows does."""

    def __init__(self, directory: Path, target: Target, size_bytes: int, window_s: float) -> None:
        self._directory = directory
        self._spark: Scans | None = None
        self._made = partial(Uploads, target=target, size_bytes=size_bytes, window_s=window_s)
        self.uploads = self._made(directory)

    @property
    def scans(self) -> Scans:
        if self._spark is None:
            with closing(self._made(self._directory / "compressed", compression=Compression.ZSTD)) as other:
                self._spark = Scans(self._directory, self.uploads, other)
        return self._spark

    def close(self) -> None:
        if self._spark is not None:
            self._spark.close()
        self.uploads.close()


_OBSTORE, _APPENDS, _PARQUET = "obstore", "append", "Parquet by Spark"
CASES: Mapping[str, Case] = {
    _OBSTORE: Case(lambda on: on.uploads.by_obstore(), _OBSTORE),
    "upload": Case(lambda on: on.uploads.by_tier(), _OBSTORE, 0.8),
    _APPENDS: Case(lambda on: on.uploads.appends(), _APPENDS),
    "append beside obstore": Case(lambda on: on.uploads.appends_beside_obstore(), _APPENDS),
    "append beside upload": Case(lambda on: on.uploads.appends_beside_tier(), _APPENDS, 0.9),
    _PARQUET: Case(lambda on: on.scans.parquet(), _PARQUET),
    "log by Spark": Case(lambda on: on.scans.log(), _PARQUET),
    "compressed log by Spark": Case(lambda on: on.scans.compressed(), _PARQUET, 0.8),
    "log by Spark, again": Case(lambda on: on.scans.log_again(), _PARQUET),
}


@click.command(cls=Command)
@click.option(
    "--tier",
    "url",
    metavar="URL",
    help="A bucket to measure, with AWS_… in the environment; without it, an S3 server is started on this machine.",
)
@click.option(
    "--megabytes",
    metavar="N",
    type=AMOUNT,
    help=f"10^6 bytes of records in the segments.  [default: {_MB}; with --quick: {_QUICK_MB}]",
)
@repeat_option(5)
@warm_up_option(_WARM_UP, "Turns of the rows of Spark before those that count, in which Java compiles.")
@quick_option
@only_option
@directory_option()
@json_option
def command(
    url: str | None,
    megabytes: float | None,
    repeat: int,
    warm_up: int,
    quick: bool,
    only: str,
    directory: Path,
    as_json: bool,
) -> None:
    """Uploads, appends beside them, and scans of a bucket by Spark."""
    progress = progress_line()
    chosen = chosen_rows(only, CASES, lambda name: CASES[name].peer)
    size_bytes = int((megabytes or (_QUICK_MB if quick else _MB)) * 1e6)
    if size_bytes < RECORD_BYTES * 1000:
        raise UsageError(f"invalid --megabytes: expected {RECORD_BYTES / 1000} or more, got {megabytes}")
    with working_directory(directory) as work, _target(url, work, progress) as target:
        progress("filling a store")
        cases = _Cases(work.absolute(), target, size_bytes, _WINDOW_S / (8 if quick else 1))
        try:
            rates = _measure(cases, chosen, warm_up, repeat, progress)
        finally:
            cases.close()
        environment = probe_environment(work)
    progress("")
    rows = [_row(name, rates) for name in chosen]
    if as_json:
        result = {"megabytes": size_bytes / 1e6, "record_bytes": RECORD_BYTES, "repeat": repeat, "tier": url}
        print_report(
            "tier", result | {"rows": [_to_json(row) for row in rows]}, environment, [], as_json=True
        )
        return
    head = f"{size_bytes / 1e6:,.0f} MB of records of {RECORD_BYTES} bytes, medians of {repeat} turns"
    print_report("tier", {}, environment, [head, ""], as_json=False)
    _print(rows)


@contextmanager
def _target(url: str | None, work: Path, progress: Progress) -> Iterator[Target]:
    """Where the rows upload to: the bucket of the user, or of a server for the block."""
    if url is not None:
        try:
            open_bucket(url).prefixes("")  # can it be reached?
        except BucketError as error:
            raise BenchmarkError(str(error)) from None
        except TieringError as error:
            raise UsageError(str(error)) from None
        yield Target(url)
        return
    progress("starting an S3 server")
    with ExitStack() as stack:
        server = stack.enter_context(
            s3_server(work / "s3", [Identity("bench", {"bench-key": "bench-secret"})])
        )
        before = {name: os.environ[name] for name in os.environ if name.startswith("AWS_")}
        stack.callback(os.environ.update, before)
        stack.callback(lambda: [os.environ.pop(name, None) for name in server.environment])
        for name in before:
            del os.environ[name]
        os.environ.update(server.environment)  # Spark's processes inherit it
        yield Target(f"s3://{server.bucket}")


def _measure(
    cases: _Cases, chosen: list[str], warm_up: int, repeat: int, progress: Progress
) -> dict[str, list[float]]:
    scans = [name for name in chosen if CASES[name].peer == _PARQUET]
    for turn in range(warm_up if scans else 0):
        for name in scans:
            progress(f"{name}, warm-up {turn + 1} of {warm_up}")
            CASES[name].measure(cases)
    rates: dict[str, list[float]] = {name: [] for name in chosen}
    for turn in range(repeat):
        first = turn % len(chosen)
        for name in (*chosen[first:], *chosen[:first]):
            progress(f"{name}, run {turn + 1} of {repeat}")
            rates[name].append(CASES[name].measure(cases))
    return rates


def _row(name: str, rates: Mapping[str, list[float]]) -> Row:
    case = CASES[name]
    ratios = [own / other for own, other in zip(rates[name], rates[case.peer], strict=True)]
    return Row(name, Spread.of(rates[name]), case.peer, Spread.of(ratios), case.goal)


def _to_json(row: Row) -> dict[str, object]:
    return asdict(row) | {"rate": row.rate.to_json(), "ratio": row.ratio.to_json()}


def _print(rows: list[Row]) -> None:
    table = simple_table()
    table.add_column("row")
    for heading in ("MB/s", "times", "range", "goal"):
        table.add_column(heading, justify="right")
    table.add_column("of")
    for row in rows:
        table.add_row(
            row.case,
            f"{row.rate.median:,.1f}",
            f"{row.ratio.median:.2f}",
            f"{row.ratio.low:.2f}–{row.ratio.high:.2f}",
            "" if row.goal is None else f"{row.goal}",
            row.peer,
        )
    print_tables(lambda console: console.print(table))
