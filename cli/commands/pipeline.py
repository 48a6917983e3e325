"""`timestone pipeline`: from the records of a log to tables, and what keeps those tables right.

One inner command a verb. Here they are named, their errors are turned into lines and their results are shown; the work
is done in `timestone_pipeline`.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import timestone

from ..errors import CommandError, UsageError
from ..input.positions import parse_position
from ..output.json_object import print_json
from ..parser import given_path
from ..process.interrupts import Interrupts, killable
from ..units import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from timestone_pipeline import Commit, PipelineConfig, Warehouse

# What is imported below needs Spark, which may not be installed; `timestone pipeline --help` does not.
# ruff: noqa: PLC0415

EXAMPLES = """\
examples:
  timestone pipeline run                     settings in ./pipeline.toml, until Ctrl-C
  timestone pipeline run --once              what is there now, then stop
  timestone pipeline status                  rows, lag, dead letters
  timestone pipeline VERB --help             options and examples of a verb

The tables: bronze (every record as it came), clean (messages, each once), dead_letters and
duplicates (the rest of bronze), late (messages that missed their window), windows, last (the
newest message of each device). docs/pipeline.md has all of it.
"""

_RUN = """\
examples:
  timestone pipeline run --config plant.toml
  timestone pipeline run --once --final      a log that has ended: close all windows too
  spark-submit submit_pipeline.py run        on a cluster; the file has two lines, see the docs

May be killed at any moment and started again: each record is in the tables once.
"""
_BACKFILL = """\
examples:
  timestone pipeline backfill                windows that have late messages
  timestone pipeline backfill --from 2026-07-01T00:00:00Z --to 2026-07-02T00:00:00Z

Computes closed windows again from clean, also while the stream runs. The times are those of
the events. Twice gives the same tables as once.
"""
_REPROCESS = """\
examples:
  timestone pipeline reprocess               the dead letters, with the schema as it is now
  timestone pipeline reprocess --all --from 2026-07-01T00:00:00Z

Parses records again and brings the messages that come out of it into their windows. The times
are those of the arrival. With --all every record in bronze is parsed, not just dead letters.
"""
_COMPACT = """\
examples:
  timestone pipeline compact                 once an hour or a day, also while the stream runs

Merges small files, deletes files that were replaced long enough ago, shortens the ledger.
Needs no Java.
"""
_STATUS = """\
examples:
  timestone pipeline status
  timestone pipeline status --json | jq '.logs[].lag'

Needs no Java and disturbs nobody. Exit code 1 when the counts of the tables do not add up, and
where there are none.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs."""
    parser.description = "Turn the records of a log into tables that are exact, and keep them so."
    parser.epilog = EXAMPLES
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    add = partial(_add, verbs)
    one = add("run", "bring what the log has into the tables, and go on", _RUN)
    one.add_argument("--once", action="store_true", help="stop when all is in the tables that is there now")
    one.add_argument("--final", action="store_true", help="with --once: the log has ended, close all windows")
    one = add("backfill", "compute windows again, with the messages that came late", _BACKFILL)
    _add_range(one, "event time")
    one = add("status", "rows, files, lag, dead letters by reason", _STATUS)
    one.add_argument("--json", action="store_true", help="print one JSON object")
    add("compact", "merge small files and delete what was replaced", _COMPACT)
    one = add("reprocess", "parse dead letters again, or everything", _REPROCESS)
    _add_range(one, "arrival")
    one.add_argument("--all", action="store_true", help="every record in bronze, not just dead letters")


def run(arguments: argparse.Namespace) -> int:
    """Do what the verb says; 0, or 1 from a `status` that does not add up."""
    try:
        from timestone_pipeline import PipelineError, SparkSourceError
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the pipeline needs {error.name}, which is not installed: pip install 'timestone[spark]'"
        ) from None
    from ..settings.pipeline import read_pipeline_config

    verbs: dict[str, Callable[[argparse.Namespace, PipelineConfig], int]] = {
        "run": _run,
        "backfill": _backfill,
        "status": _status,
        "compact": _compact,
        "reprocess": _reprocess,
    }
    try:
        return verbs[arguments.verb](arguments, read_pipeline_config(arguments.config))
    except (PipelineError, SparkSourceError) as error:
        raise CommandError(" ".join(str(error).split())) from error


def _add(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str, examples: str
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    parser.epilog = examples
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=given_path,
        help="the settings (default: pipeline.toml, if it is there)",
    )
    return parser


def _add_range(parser: argparse.ArgumentParser, what: str) -> None:
    for option, dest, word in (("--from", "since_us", "at or after"), ("--to", "until_us", "before")):
        parser.add_argument(
            option, dest=dest, metavar="TIME", type=_time_us, help=f"{what} {word} this RFC 3339 time"
        )


def _time_us(text: str) -> int:
    return parse_position(f"time:{text}").value


def _run(arguments: argparse.Namespace, config: "PipelineConfig") -> int:
    from timestone_pipeline import run as run_pipeline

    if arguments.final and not arguments.once:
        raise UsageError("--final closes windows for good and belongs to --once")
    # What is no store is known before Java is there, and before tables of nothing come to be.
    timestone.view(config.source.path).close()
    with _spark(config) as spark, Interrupts() as interrupts:
        run_pipeline(
            config,
            spark,
            once=arguments.once,
            final=arguments.final,
            committed=_say_commit,
            stop=lambda: interrupts.requested,
        )
    # A signal is how a run that follows the log ends; one of --once has not done what it was asked for.
    return interrupts.exit_code if arguments.once else 0


def _backfill(arguments: argparse.Namespace, config: "PipelineConfig") -> int:
    from timestone_pipeline import Span, backfill

    given = (arguments.since_us, arguments.until_us)
    if given.count(None) == 1:
        raise UsageError("name both --from and --to, or neither for the windows of late messages")
    span = None if None in given else Span(*given)
    if span is not None and span.start_us >= span.end_us:
        raise UsageError("--from is not before --to")
    with _maintenance(arguments, config) as warehouse:
        if span is None and not warehouse.ledger.state().of("late"):
            _say_commit(None)  # known without waiting for Java
            return 0
        with _spark(config) as spark:
            _say_commit(backfill(config, warehouse, spark, span))
    return 0


def _reprocess(arguments: argparse.Namespace, config: "PipelineConfig") -> int:
    from timestone_pipeline import reprocess

    with _maintenance(arguments, config) as warehouse, _spark(config) as spark:
        commit = reprocess(
            config,
            warehouse,
            spark,
            since_us=arguments.since_us,
            until_us=arguments.until_us,
            everything=arguments.all,
        )
        _say_commit(commit)
    return 0


def _compact(arguments: argparse.Namespace, config: "PipelineConfig") -> int:
    from timestone_pipeline import compact

    commits: list[Commit] = []

    def compacted(commit: "Commit") -> None:
        commits.append(commit)
        _say_commit(commit)

    with _maintenance(arguments, config) as warehouse:
        compact(config, warehouse, compacted)
    if not commits:
        _say_commit(None)
    return 0


@contextmanager
def _maintenance(arguments: argparse.Namespace, config: "PipelineConfig") -> Iterator["Warehouse"]:
    """The tables, with nobody else at their maintenance."""
    from timestone_pipeline import MAINTENANCE

    warehouse = _tables(arguments, config)
    with warehouse.role(MAINTENANCE):
        yield warehouse


def _tables(arguments: argparse.Namespace, config: "PipelineConfig") -> "Warehouse":
    """Tables that are there. Else nobody would hear of a folder that was mistyped, or of settings not found."""
    from timestone_pipeline import open_tables

    from ..settings.pipeline import DEFAULT, settings_file

    file = settings_file(arguments.config)
    warehouse = open_tables(config)
    if not warehouse.ledger.folder.is_dir():
        said = f"as {file} says" if file is not None else f"the default; there is no {DEFAULT} here"
        raise CommandError(
            f"{warehouse.root}: there are no tables; `timestone pipeline run` makes them (tables.path, {said})"
        )
    return warehouse


def _status(arguments: argparse.Namespace, config: "PipelineConfig") -> int:
    from timestone_pipeline import status

    from ..output.pipeline_table import print_status

    found = status(config, _tables(arguments, config))
    if arguments.json:
        print_json(found.to_json())
    else:
        print_status(config.tables.path, found)
    return 0 if found.exact else 1


@contextmanager
def _spark(config: "PipelineConfig") -> Iterator["SparkSession"]:
    """A session that Ctrl-C may end at any moment: the tables are right whenever their process is killed, and Java ends
    with it. Stopping Spark in order takes longer and leaves the same."""
    from timestone_pipeline import session_of
    from timestone_pipeline.failure import SPARK_ERRORS, silence_java

    silence_java()
    with killable():
        spark = session_of(config, scans=False)
        try:
            yield spark
        finally:
            with suppress(*SPARK_ERRORS):  # Java is gone, and that has been told
                spark.stop()


def _say_commit(commit: "Commit | None") -> None:
    """A line a commit: under a supervisor it goes into a file, where a line that changes is of no use."""
    if commit is None:
        print("nothing to do", flush=True)
        return
    rows: dict[str, int] = {}
    for file in commit.added:
        rows[file.table] = rows.get(file.table, 0) + file.rows
    tables = ", ".join(f"{table} {count:,}" for table, count in rows.items())
    gone = f"; replaces {format_count(len(commit.removed), 'file')}" if commit.removed else ""
    print(f"{commit.action} {commit.number}: {tables or 'no rows'}{gone}", flush=True)
