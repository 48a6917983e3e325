"""The pipeline from a log to all its tables, beside a plain Spark job that does the same steps from Parquet to Parquet.

Both run in one session, on the same cores and from the same records. The plain job parses, drops repetitions, averages
windows and takes the newest message of each device; it reads everything at once and a kill makes it start again. The
pipeline also keeps the records themselves, and commits in batches."""

import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

import timestone
from timestone_cli.group import Command
from timestone_cli.output.json_object import print_json
from timestone_cli.output.tables import print_tables, simple_table
from timestone_cli.output.text import print_text
from timestone_pipeline import (
    Commit,
    PipelineConfig,
    PipelineError,
    SourceConfig,
    SparkConfig,
    TablesConfig,
    averages,
    good,
    newest,
    open_tables,
    parse,
    rejected,
    run,
    session_of,
)

from .errors import BenchmarkError
from .options import (
    POSITIVE,
    Progress,
    directory_option,
    json_option,
    progress_line,
    quick_option,
    repeat_option,
)
from .working_directory import working_directory

LOG = "telemetry"
_APPENDED = 20_000
"""Messages of one append."""
_SPACING_S = 15
"""Time between two messages of a device."""
_CONF = {"spark.driver.memory": "4g"}
_RECORDS = "records.parquet"
_COUNT, _QUICK_COUNT = 5_000_000, 200_000
_DEVICES, _QUICK_DEVICES = 20_000, 2_000
_REPEAT, _QUICK_REPEAT = 3, 1
_FIRST = "before the first batch"
"""Stage of what is done before a table is written."""


@dataclass(frozen=True, slots=True)
class Result:
    """Medians over the turns; times in seconds."""

    count: int
    devices: int
    pipeline_s: float
    plain_s: float
    ratio: float
    """Rate of the pipeline over that of the plain job."""
    stages_s: dict[str, float]
    """Time of the pipeline by what it says that it does: a table, or what comes before the first batch."""
    batches_s: list[float]
    """Time of each batch of the first turn, with the closing of windows at the end."""


@click.command(cls=Command)
@click.option(
    "--count",
    metavar="N",
    type=POSITIVE,
    help=f"Messages.  [default: {_COUNT}; with --quick: {_QUICK_COUNT}]",
)
@click.option(
    "--devices",
    metavar="N",
    type=POSITIVE,
    help=f"Devices.  [default: {_DEVICES}; with --quick: {_QUICK_DEVICES}]",
)
@click.option(
    "--batch-records", metavar="N", type=POSITIVE, help="Records of a batch.  [default: as `pipeline run`]"
)
@repeat_option(_REPEAT, quick=_QUICK_REPEAT)
@quick_option
@directory_option()
@json_option
def command(
    count: int | None,
    devices: int | None,
    batch_records: int | None,
    repeat: int | None,
    quick: bool,
    directory: Path,
    as_json: bool,
) -> None:
    """The pipeline, log to tables, beside a plain Spark job from Parquet to Parquet."""
    progress = progress_line()
    count = count or (_QUICK_COUNT if quick else _COUNT)
    devices = devices or (_QUICK_DEVICES if quick else _DEVICES)
    repeat = repeat or (_QUICK_REPEAT if quick else _REPEAT)
    source = SourceConfig(records_per_batch=batch_records) if batch_records else SourceConfig()
    try:
        with working_directory(directory) as work:
            result = _measure(work.absolute(), count, devices, source, repeat, progress)
    except PipelineError as error:
        raise BenchmarkError(str(error)) from error
    progress("")
    if as_json:
        print_json(asdict(result))
    else:
        _print(result)


def _measure(
    directory: Path, count: int, devices: int, source: SourceConfig, repeat: int, progress: Progress
) -> Result:
    store = directory / "data"
    config = PipelineConfig(source=replace(source, path=str(store)), spark=SparkConfig(conf=_CONF))
    progress("starting Spark")
    spark = session_of(config)
    try:
        progress(f"appending {count:,} messages")
        fill(store, count, devices)
        records = str(directory / _RECORDS)
        spark.read.format("timestone").load(str(store)).write.parquet(records)
        runs: list[_Run] = []
        plain_s: list[float] = []
        for turn in range(-1, repeat):  # the first is for Java, which compiles
            name = "warm-up" if turn < 0 else f"run {turn + 1} of {repeat}"
            tables = TablesConfig(path=str(directory / f"tables-{turn}"))
            progress(f"pipeline, {name}")
            whole = replace(config, tables=tables)
            runs.append(_pipeline(whole, spark))
            progress(f"plain job, {name}")
            begun = time.perf_counter()
            plain = directory / f"plain-{turn}"
            plain_job(spark, records, plain, config)
            plain_s.append(time.perf_counter() - begun)
            _check_equal(whole, spark, plain)
    finally:
        spark.stop()
    runs, plain_s = runs[1:], plain_s[1:]
    pipeline_s, plain_job_s = statistics.median(one.seconds for one in runs), statistics.median(plain_s)
    stages = {
        stage: statistics.median(one.stages_s.get(stage, 0.0) for one in runs) for stage in runs[0].stages_s
    }
    return Result(
        count, devices, pipeline_s, plain_job_s, plain_job_s / pipeline_s, stages, runs[0].batches_s
    )


@dataclass(frozen=True, slots=True)
class _Run:
    seconds: float
    stages_s: dict[str, float]
    batches_s: list[float]


def _pipeline(config: PipelineConfig, spark: Any) -> _Run:
    """Run the pipeline into new tables until all records are processed and all windows closed."""
    begun = time.perf_counter()
    steps: list[tuple[float, str]] = [(begun, _FIRST)]
    commits = [begun]

    def committed(commit: Commit) -> None:
        commits.append(time.perf_counter())

    def step(text: str) -> None:
        if text.startswith("looking for"):
            return  # still before the first batch
        steps.append((time.perf_counter(), text.rpartition(": ")[2] if text.startswith("batch ") else text))

    run(config, spark, once=True, final=True, committed=committed, step=step)
    ended = time.perf_counter()
    stages: dict[str, float] = {}
    for (since, stage), (until, _) in itertools.pairwise([*steps, (ended, "")]):
        stages[stage] = stages.get(stage, 0.0) + until - since
    return _Run(ended - begun, stages, [until - since for since, until in itertools.pairwise(commits)])


def plain_job(spark: Any, records: str, directory: Path, config: PipelineConfig) -> None:
    """Make the same messages, dead letters, windows and last states as Parquet, without the pipeline's bookkeeping."""
    message = config.message
    clean = str(directory / "clean")
    messages = parse(spark.read.parquet(records), message).persist()
    good(messages).dropDuplicates(list(message.keys)).write.parquet(clean)
    rejected(messages).write.parquet(str(directory / "dead_letters"))
    messages.unpersist()
    for minutes in config.windows.minutes:
        averages(spark.read.parquet(clean), minutes, message).write.parquet(
            str(directory / f"windows-{minutes}")
        )
    newest(spark.read.parquet(clean), message).write.parquet(str(directory / "last"))


def _check_equal(config: PipelineConfig, spark: Any, plain: Path) -> None:
    """Raise BenchmarkError if the two jobs differ in the messages that they kept."""
    warehouse = open_tables(config)
    kept = sum(one.rows for one in warehouse.state().of(warehouse.tables.clean).files())
    expected = spark.read.parquet(str(plain / "clean")).count()
    if kept != expected:
        raise BenchmarkError(f"the pipeline kept {kept:,} messages, the plain job {expected:,}")


def fill(store: Path, count: int, devices: int) -> None:
    """Append `count` messages of `devices` in turn, each device with one message in 15 seconds of the time before now.
    One message in a thousand repeats the one before it, and one is not JSON."""
    rounds = -(-count // devices)
    start_s = time.time() - rounds * _SPACING_S
    with timestone.open(store, ack="written") as opened:
        log = opened.log(LOG)
        for first in range(0, count, _APPENDED):
            numbers = range(first, min(first + _APPENDED, count))
            log.append_many(
                [message(number, devices, start_s) for number in numbers],
                topics=[f"devices/{number % devices}/telemetry" for number in numbers],
            )


def message(number: int, devices: int, start_s: float) -> bytes:
    """Return the n-th message."""
    if number % 1000 == 999:
        return b"no JSON"
    if number % 1000 == 998:
        number -= 1
    turn, device = divmod(number, devices)
    moment = datetime.fromtimestamp(start_s + turn * _SPACING_S, UTC).isoformat(timespec="milliseconds")
    return (
        f'{{"device":"device-{device:05}","seq":{turn},"ts":"{moment}","temperature":{20 + number % 97 / 10}'
        f',"humidity":{40 + number % 31}}}'
    ).encode()


def _print(result: Result) -> None:
    print_text(f"{result.count:,} messages of {result.devices:,} devices")
    print()
    table = simple_table()
    table.add_column("job")
    for heading in ("seconds", "messages/s", "times the plain job"):
        table.add_column(heading, justify="right")
    table.add_row(
        "pipeline",
        f"{result.pipeline_s:.1f}",
        f"{result.count / result.pipeline_s:,.0f}",
        f"{result.ratio:.2f}",
    )
    table.add_row("plain job", f"{result.plain_s:.1f}", f"{result.count / result.plain_s:,.0f}", "1.00")
    stages = simple_table()
    stages.add_column("stage of the pipeline")
    stages.add_column("seconds", justify="right")
    for stage, seconds in result.stages_s.items():
        stages.add_row(stage, f"{seconds:.1f}")
    print_tables(lambda console: console.print(table, stages, sep="\n"))
    if growth := _growth(result.batches_s):
        print_text(growth)


def _growth(batches_s: Sequence[float]) -> str:
    """Return how the time of a batch grows with the tables; nothing for less than four batches. The last entry is the
    closing of the windows."""
    batches = batches_s[:-1]
    quarter = len(batches) // 4
    if not quarter:
        return ""
    first, last = statistics.median(batches[:quarter]), statistics.median(batches[-quarter:])
    return (
        f"{len(batches)} batches: {first:.1f} s each in the first quarter, {last:.1f} s in the last,"
        f" {last / first:.2f} times as long"
    )
