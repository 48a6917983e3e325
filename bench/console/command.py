"""`timestone bench console`: the goals of the console and of the figures, each a row.

Costs are differences and ratios of the same load with and without, at the same moment or in turn; answers are those of
one console beside a server of full size."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import click

from timestone_cli.group import Command
from timestone_cli.output.tables import print_split, print_tables, simple_table

from ..environment import probe_environment
from ..mqtt.command import allow_connections
from ..options import (
    POSITIVE,
    directory_option,
    json_option,
    progress_line,
    quick_option,
    repeat_option,
)
from ..report import print_report
from ..working_directory import working_directory
from .answers import AT_ONCE, Answers, Size, measure_answers
from .costs import LOADS, PLAN, Costs, Estimate, measure_costs, scenarios

_MIB = 1 << 20
_STEADY, _FULL = LOADS

EXAMPLES = """\
Examples:
  timestone bench console
  timestone bench console --quick
  timestone bench console --only answers            the API, pages and process
  timestone bench console --only costs --repeat 7   the server with and without
  timestone bench console --clients 1000 --json > result.json

A cost is processor time in cores: 0.01 is a hundredth of one. All processes are
on this machine, so on few cores browsers and load take from the server, too.
"""


class Goal(NamedTuple):
    """A figure and its goal."""

    figure: str
    unit: str
    limit: float
    is_least: bool
    """The figure has to be at least the limit, not at most."""
    of: Callable[[Costs, Answers], float | Estimate]


def _most(figure: str, unit: str, limit: float, of: Callable[[Costs, Answers], float | Estimate]) -> Goal:
    return Goal(figure, unit, limit, is_least=False, of=of)


def _in_mib(size: Estimate) -> Estimate:
    return Estimate(*(one / _MIB for one in size))


COSTS: tuple[Goal, ...] = (
    _most("figures: processor of the server", "cores", 0.01,
          lambda costs, _: costs.more_processor(_STEADY, "figures", "off")),
    Goal("figures: rate at full speed", "times", 0.99, True,
         lambda costs, _: costs.ratio(_FULL, "figures", "off", "per_s")),
    _most("figures: processor of a message at full speed", "times", 1.01,
          lambda costs, _: costs.ratio(_FULL, "figures", "off", "server_message_us")),
    Goal("traces: rate at full speed", "times", 0.99, True,
         lambda costs, _: costs.ratio(_FULL, "traces", "figures", "per_s")),
    _most("traces: processor of a message at full speed", "times", 1.01,
          lambda costs, _: costs.ratio(_FULL, "traces", "figures", "server_message_us")),
    _most("figures: memory of the server", "MiB", 2,
          lambda costs, _: _in_mib(costs.difference(_STEADY, "figures", "off", "rss_bytes"))),
    _most("1 browser: processor of the server", "cores", 0.01,
          lambda costs, _: costs.more_processor(_STEADY, "1 browser", "console")),
    _most("1 browser: processor of the console", "cores", 0.1,
          lambda costs, _: costs.median(_STEADY, "1 browser", "console_busy")),
    _most("5 browsers: p99 of acknowledgements", "times", 1.03,
          lambda costs, _: costs.ratio(_STEADY, "5 browsers", "console again", "ack_p99_us")),
)  # fmt: skip
ANSWERS: tuple[Goal, ...] = (
    _most("slowest call, p95", "ms", 200, lambda _, answers: max(one.p95_ms for one in answers.calls)),
    _most("largest page", "KB", 150, lambda _, answers: max(answers.page_bytes.values()) / 1e3),
    _most("first visit, which starts the process", "s", 2.5, lambda _, answers: answers.first_visit_s),
    _most("age of a live figure", "s", 1.5, lambda _, answers: answers.live_s),
    _most("memory of the console", "MiB", 150, lambda _, answers: answers.rss_bytes / _MIB),
    _most("wake-ups without a browser", "a second", 0, lambda _, answers: answers.idle_wake_ups_per_s),
)
PARTS: Mapping[str, tuple[Goal, ...]] = {"costs": COSTS, "answers": ANSWERS}
_FULL_SIZE = Size(clients=10_000, topics=100_000, samples=259_200, calls=40, idle_s=60)
_QUICK_SIZE = Size(clients=200, topics=2000, samples=2000, calls=8, idle_s=3)


@click.command(cls=Command, epilog=EXAMPLES)
@click.option(
    "--clients",
    metavar="N",
    type=POSITIVE,
    help=f"Connected clients.  [default: {_FULL_SIZE.clients}; with --quick: {_QUICK_SIZE.clients}]",
)
@click.option(
    "--topics",
    metavar="N",
    type=POSITIVE,
    help=f"Topics.  [default: {_FULL_SIZE.topics}; with --quick: {_QUICK_SIZE.topics}]",
)
@click.option(
    "--seconds",
    metavar="N",
    type=POSITIVE,
    help="Length of a run of the steady load.  [default: 10; with --quick: 2]",
)
@repeat_option(5, "Turns.", quick=1)
@quick_option
@click.option("--only", type=click.Choice(list(PARTS)), help="Only this part.")
@directory_option("The stores go under DIR.")
@json_option
def command(
    clients: int | None,
    topics: int | None,
    seconds: int | None,
    repeat: int | None,
    quick: bool,
    only: str | None,
    directory: Path,
    as_json: bool,
) -> None:
    """Cost of figures and console for a server, and how fast the console answers."""
    parts = [part for part in PARTS if only in (None, part)]
    base = _QUICK_SIZE if quick else _FULL_SIZE
    size = base._replace(clients=clients or base.clients, topics=topics or base.topics)
    seconds, repeat = seconds or (2 if quick else 10), repeat or (1 if quick else 5)
    loads = scenarios(size.clients, seconds, 20_000 if quick else 500_000)
    progress = progress_line()
    allow_connections(size.clients)
    costs, answers = Costs({}), Answers.none()
    with working_directory(directory) as work:
        environment = probe_environment(work)
        if "costs" in parts:
            costs = measure_costs(work.absolute(), loads, repeat, progress, quick=quick)
        if "answers" in parts:
            answers = measure_answers(work.absolute(), size, progress)
    progress("")
    goals = [_row(goal, costs, answers) for part in parts for goal in PARTS[part]]
    if as_json:
        result = {"size": size._asdict(), "repeat": repeat, "goals": goals, "costs": costs.to_json()}
        print_report("console", result | {"answers": asdict(answers)}, environment, [], as_json=True)
        return
    head = f"{size.clients:,} clients, {size.topics:,} topics, {size.samples:,} samples, medians of {repeat} turns"
    print_report("console", {}, environment, [head], as_json=False)
    if "costs" in parts:
        print_costs(costs)
    if "answers" in parts:
        print_answers(answers)
    _print_goals(goals)


def _row(goal: Goal, costs: Costs, answers: Answers) -> dict[str, str | float | bool | None]:
    found = goal.of(costs, answers)
    value, low, high = found if isinstance(found, Estimate) else (found, None, None)
    return {
        "figure": goal.figure,
        "value": value,
        "low": low,
        "high": high,
        "unit": goal.unit,
        "goal": goal.limit,
        "goal_is_least": goal.is_least,
        "is_met": value >= goal.limit if goal.is_least else value <= goal.limit,
    }


def _print(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    table = simple_table()
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    print()
    print_tables(lambda console: print_split(console, table))


def print_costs(costs: Costs) -> None:
    """Print a table for each load, with a row for each mode."""
    headings = ("publishes/s", "server", "us a message", "console", "ack p50 us", "p99 us", "server MiB")
    for load, groups in PLAN.items():
        rows = [
            (
                mode,
                f"{costs.median(load, mode, 'per_s'):,.0f}",
                f"{costs.median(load, mode, 'server_busy'):.3f}",
                f"{costs.median(load, mode, 'server_message_us'):,.1f}",
                f"{costs.median(load, mode, 'console_busy'):.3f}",
                f"{costs.median(load, mode, 'ack_p50_us'):,.0f}",
                f"{costs.median(load, mode, 'ack_p99_us'):,.0f}",
                f"{costs.median(load, mode, 'rss_bytes') / _MIB:,.1f}",
            )
            for group in groups
            for mode in group
        ]
        _print((load, *headings), rows)


def print_answers(answers: Answers) -> None:
    """Print the calls, and the sizes of the pages."""
    rows = [
        (
            f"{one.page}: {_call(one.path)}",
            f"{one.p50_ms:,.0f}",
            f"{one.p95_ms:,.0f}",
            f"{one.size_bytes / 1e3:,.1f}",
        )
        for one in answers.calls
    ]
    _print((f"call, {AT_ONCE} at a time", "p50 ms", "p95 ms", "KB"), rows)
    _print(
        ("page, first visit", "KB"),
        [(page, f"{size / 1e3:,.1f}") for page, size in answers.page_bytes.items()],
    )


def _call(path: str) -> str:
    return path.removeprefix("/api/v1/").partition("?")[0]


def _print_goals(goals: list[dict[str, str | float | bool | None]]) -> None:
    rows = [
        (
            str(one["figure"]),
            f"{one['value']:,.3f} {one['unit']}",
            "" if one["low"] is None else f"{one['low']:,.3f} to {one['high']:,.3f}",
            f"{'at least' if one['goal_is_least'] else 'at most'} {one['goal']:g}",
            "yes" if one["is_met"] else "no",
        )
        for one in goals
    ]
    _print(("figure", "measured", "95 % interval", "goal", "met"), rows)
