"""`timestone pipeline`: from the records of a log to tables, and what keeps those tables right.

The commands, their errors and their output. `timestone_pipeline` does the work.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import CommandError, UsageError
from ..group import Group
from ..input.parameters import FILE, Parsed
from ..input.positions import parse_time_us
from ..output.json_object import print_json
from ..output.progress import Steps
from ..process.interrupts import Interrupts, killable
from ..units import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from timestone_pipeline import Commit, PipelineConfig, Warehouse

# What is imported below needs Spark, which may not be installed; `timestone pipeline --help` does not.
# ruff: noqa: PLC0415

EXAMPLES = """\
Examples:
  timestone pipeline run              settings in ./pipeline.toml, until Ctrl-C
  timestone pipeline run --once       what is there now, then stop
  timestone pipeline status           rows, lag, dead letters
  timestone pipeline COMMAND --help   options and examples of a command

The tables: bronze (every record as it came), clean (messages, each once),
dead_letters and duplicates (the rest of bronze), late (messages that missed
their window), windows, last (the newest message of each device). See
docs/pipeline.md.
"""

_RUN = """\
Examples:
  timestone pipeline run --config plant.toml
  timestone pipeline run --once --final  close all windows: the log has ended
  spark-submit submit_pipeline.py run    on a cluster; see docs/pipeline.md

The command may be killed at any moment and started again: each record is in the
tables once.
"""
_BACKFILL = """\
Examples:
  timestone pipeline backfill              windows that have late messages
  timestone pipeline backfill --from 2026-07-01T00:00:00Z \\
                              --to 2026-07-02T00:00:00Z

Computes closed windows again from clean, also while the stream runs. The times
are those of the events. Running it twice gives the same tables as once.
"""
_REPROCESS = """\
Examples:
  timestone pipeline reprocess             the dead letters, with today's schema
  timestone pipeline reprocess --all --from 2026-07-01T00:00:00Z

Parses records again and adds the resulting messages to their windows. The times
are those of the arrival. With --all every record in bronze is parsed, not only
dead letters.
"""
_COMPACT = """\
Examples:
  timestone pipeline compact   once an hour or a day, also while it runs

Merges small files (OPTIMIZE) and deletes files that were replaced long enough
ago (VACUUM). Needs no Java.
"""
_STATUS = """\
Examples:
  timestone pipeline status
  timestone pipeline status --json | jq '.logs[].lag'

Needs no Java and disturbs no other process. Exit code 1 when the counts of the
tables do not add up, or when there are no tables.
"""
_QUERY = """\
Examples:
  timestone pipeline query "SELECT device, ts, temperature FROM last"
  timestone pipeline query --json "SELECT problem, count(*) AS n
                                   FROM dead_letters GROUP BY problem"

SQL of DuckDB. Each table has its name, all of them as of one batch. Needs no
Java; reads a folder or object storage.
"""
_EXPORT = """\
Examples:
  timestone pipeline export copy
  timestone pipeline export copy clean windows

Copies the current files of the tables to folders of plain Parquet, for programs
that do not know Delta.
"""
_quiet_option = click.option("--quiet", is_flag=True, help="Show no progress on standard error.")
_TIME = Parsed("time", parse_time_us)
_config_option = click.option(
    "--config",
    "file",
    metavar="FILE",
    type=FILE,
    help="The settings.  [default: pipeline.toml, if it exists]",
)


@click.group(cls=Group, epilog=EXAMPLES)
def command() -> None:
    """Turn the records of a log into tables that are exact, and keep them so."""


@command.command(epilog=_RUN)
@_config_option
@click.option("--once", is_flag=True, help="Stop when all that is there now is in the tables.")
@click.option("--final", is_flag=True, help="With --once: the log has ended, close all windows.")
@_quiet_option
def run(file: Path | None, once: bool, final: bool, quiet: bool) -> int:
    """Bring the records of the log into the tables, until Ctrl-C."""
    if final and not once:
        raise UsageError("--final closes windows for good and needs --once")
    with _pipeline(file) as config:
        from timestone_pipeline import run as run_pipeline

        # A wrong path of the store is reported before Java starts and before tables of nothing are made.
        config.source.view().close()
        if once and not final and _is_done(config):
            _say_caught_up(config)  # known without waiting for Java
            return 0
        commits = 0

        def committed(commit: "Commit") -> None:
            nonlocal commits
            commits += 1
            steps.clear()
            _say_commit(commit)
            if not once:
                step("waiting for new records")

        def step(text: str) -> None:
            # A run without an end, whose standard error is a file, would fill that.
            if once or steps.on_terminal:
                steps.begin(text)

        with Steps(quiet=quiet) as steps, _spark(config, steps) as spark, Interrupts() as interrupts:
            if not once:
                steps.begin(f"following {config.source.path}; Ctrl-C ends it")
            run_pipeline(
                config,
                spark,
                once=once,
                final=final,
                committed=committed,
                stop=lambda: interrupts.requested,
                step=step,
            )
        if once and not commits and not interrupts.requested:
            _say_caught_up(config)
    # A signal is how a run that follows the log ends; one of --once has not done what it was asked for.
    return interrupts.exit_code if once else 0


@command.command(epilog=_BACKFILL)
@_config_option
@click.option(
    "--from", "since_us", metavar="TIME", type=_TIME, help="Event time at or after this RFC 3339 time."
)
@click.option("--to", "until_us", metavar="TIME", type=_TIME, help="Event time before this RFC 3339 time.")
@_quiet_option
def backfill(file: Path | None, since_us: int | None, until_us: int | None, quiet: bool) -> None:
    """Compute windows again, with the messages that came late."""
    if (since_us is None) != (until_us is None):
        raise UsageError(
            "--from and --to are needed together; without both, the windows of late messages are meant"
        )
    with _pipeline(file) as config:
        from timestone_pipeline import Span
        from timestone_pipeline import backfill as run_backfill

        span = None if since_us is None or until_us is None else Span(since_us, until_us)
        if span is not None and span.start_us >= span.end_us:
            raise UsageError("--from is not before --to")
        with _maintenance(file, config) as warehouse:
            if span is None and not warehouse.state().of(warehouse.tables.late).file_count:
                _say_commit(None)  # known without waiting for Java
                return
            with Steps(quiet=quiet) as steps, _spark(config, steps) as spark:
                commit = run_backfill(config, warehouse, spark, span, step=steps.begin)
                steps.clear()
                _say_commit(commit)


@command.command(epilog=_STATUS)
@_config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(file: Path | None, as_json: bool) -> int:
    """Show rows, files, lag, and dead letters by reason."""
    with _pipeline(file) as config:
        from timestone_pipeline import status as read_status

        from ..output.pipeline_table import print_status

        found = read_status(config, _tables(file, config))
        if as_json:
            print_json(found.to_json())
        else:
            print_status(config.tables.path, found)
    return 0 if found.exact else 1


@command.command(epilog=_COMPACT)
@_config_option
def compact(file: Path | None) -> None:
    """Merge small files and delete what was replaced."""
    with _pipeline(file) as config:
        from timestone_pipeline import compact as run_compact

        commits: list[Commit] = []

        def compacted(commit: "Commit") -> None:
            commits.append(commit)
            _say_commit(commit)

        with _maintenance(file, config) as warehouse:
            run_compact(config, warehouse, compacted)
        if not commits:
            _say_commit(None)


@command.command(epilog=_QUERY)
@_config_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a row.")
@click.argument("sql")
def query(file: Path | None, sql: str, as_json: bool) -> None:
    """Run SQL over the tables."""
    with _pipeline(file) as config:
        from timestone_pipeline import query as run_query

        from ..output.query_rows import print_rows

        with run_query(_tables(file, config), sql) as rows:
            print_rows(rows, as_json=as_json)


@command.command(epilog=_EXPORT)
@_config_option
@click.argument("folder", type=FILE)
@click.argument("table", nargs=-1)
def export(file: Path | None, folder: Path, table: tuple[str, ...]) -> None:
    """Copy the tables to plain Parquet."""
    with _pipeline(file) as config:
        from timestone_pipeline import export as run_export

        for name, rows in run_export(_tables(file, config), folder, table).items():
            print(f"{folder / name}: {format_count(rows, 'row')}")


@command.command(epilog=_REPROCESS)
@_config_option
@click.option(
    "--from", "since_us", metavar="TIME", type=_TIME, help="Arrival at or after this RFC 3339 time."
)
@click.option("--to", "until_us", metavar="TIME", type=_TIME, help="Arrival before this RFC 3339 time.")
@click.option("--all", "everything", is_flag=True, help="Every record in bronze, not only dead letters.")
@_quiet_option
def reprocess(
    file: Path | None, since_us: int | None, until_us: int | None, everything: bool, quiet: bool
) -> None:
    """Parse dead letters again, or everything."""
    with _pipeline(file) as config:
        from timestone_pipeline import reprocess as run_reprocess

        with (
            _maintenance(file, config) as warehouse,
            Steps(quiet=quiet) as steps,
            _spark(config, steps) as spark,
        ):
            commit = run_reprocess(
                config,
                warehouse,
                spark,
                since_us=since_us,
                until_us=until_us,
                everything=everything,
                step=steps.begin,
            )
            steps.clear()
            _say_commit(commit)


@contextmanager
def _pipeline(file: Path | None) -> Iterator["PipelineConfig"]:
    """Give the settings of the pipeline; inside, its errors become lines."""
    try:
        from timestone_pipeline import PipelineError, SparkSourceError
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the pipeline needs {error.name}, which is not installed: pip install '.[pipeline]' in a clone"
        ) from None
    from ..settings.pipeline import read_pipeline_config

    try:
        yield read_pipeline_config(file)
    except (PipelineError, SparkSourceError) as error:
        raise CommandError(" ".join(str(error).split())) from error


@contextmanager
def _maintenance(file: Path | None, config: "PipelineConfig") -> Iterator["Warehouse"]:
    """Give the tables, with no other process at their maintenance."""
    from timestone_pipeline import MAINTENANCE

    warehouse = _tables(file, config)
    with warehouse.role(MAINTENANCE):
        yield warehouse


def _tables(file: Path | None, config: "PipelineConfig") -> "Warehouse":
    """Return tables that exist: else a mistyped folder, or settings that were not found, would go unnoticed."""
    from timestone_pipeline import open_tables

    from ..settings.pipeline import DEFAULT, settings_file

    file = settings_file(file)
    warehouse = open_tables(config)
    if not warehouse.exists():
        origin = f"from {file}" if file is not None else f"the default; there is no {DEFAULT} here"
        raise CommandError(
            f"{config.tables.path}: no tables; `timestone pipeline run` makes them (tables.path, {origin})"
        )
    return warehouse


@contextmanager
def _spark(config: "PipelineConfig", steps: Steps) -> Iterator["SparkSession"]:
    """Give a session that Ctrl-C may end at any moment: the tables are right whenever their process is killed, and Java
    ends with it. Stopping Spark in order takes longer and leaves the same."""
    from timestone_pipeline import session_of
    from timestone_pipeline.failure import SPARK_ERRORS, silence_java

    silence_java()
    with killable():
        steps.begin("starting Spark, which takes some seconds")
        spark = session_of(config, scans=False)
        try:
            yield spark
        finally:
            with suppress(*SPARK_ERRORS):  # Java has ended, which was reported
                spark.stop()


def _is_done(config: "PipelineConfig") -> bool:
    """Return whether a run would find nothing to do, neither new records nor a batch to complete."""
    from timestone_pipeline import is_caught_up, open_tables

    tables = open_tables(config)
    if not tables.exists():
        return False
    state = tables.state()
    return state.newest == state.number and is_caught_up(config.source, state.progress.offset)


def _say_caught_up(config: "PipelineConfig") -> None:
    print(f"nothing to do: the tables have every record of {config.source.path}")


def _say_commit(commit: "Commit | None") -> None:
    """Print a line a commit: under a supervisor it goes into a file, where a line that changes is of no use."""
    if commit is None:
        print("nothing to do", flush=True)
        return
    rows: dict[str, int] = {}
    for file in commit.added:
        rows[file.table] = rows.get(file.table, 0) + file.rows
    tables = ", ".join(f"{table} {count:,}" for table, count in rows.items())
    gone = f"; replaces {format_count(commit.removed, 'file')}" if commit.removed else ""
    what = f"batch {commit.number}" if commit.action == "batch" else commit.action
    print(f"{what}: {tables or 'no rows'}{gone}", flush=True)
