"""MQTT throughput, latency and cost: the usual scenarios against Timestone and against other servers.

Each server gets the same load from the same processes in turn. A server that does nothing is measured with them; its
figures are the maximum of the load generator. docs/benchmarks.md explains the result.
"""

import contextlib
import functools
import resource
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from timestone.config import Ack
from timestone_cli.errors import UsageError
from timestone_cli.group import Command, Option
from timestone_cli.input.parameters import Parsed
from timestone_cli.output.json_object import print_json

from ..environment import Environment, probe_environment
from ..errors import BenchmarkError
from ..options import (
    AMOUNT,
    POSITIVE,
    Decorator,
    Progress,
    directory_option,
    json_option,
    plot_option,
    plot_writer,
    progress_line,
    quick_option,
    repeat_option,
)
from ..working_directory import working_directory
from .comparison import Comparison, build_comparison, take_turns
from .presets import PRESETS
from .scenario import PAIRED, Outcome, Scenario
from .servers import null_servers, timestone_server
from .table import print_comparison, print_environment
from .target import Target

Servers = Callable[[Path], contextlib.AbstractContextManager[Sequence[Target]]]
"""Starts the servers under test in an empty directory; the others are compared with the first."""
_REPEAT, _QUICK_REPEAT = 5, 1
_MIN_PAYLOAD_BYTES = 16
_SPARE_FILES = 500

EXAMPLES = """\
Scenarios:
{scenarios}

Examples:
  timestone bench mqtt
  timestone bench mqtt fan-in --qos 0 --clients 100 --payload-bytes 1000
  timestone bench mqtt fan-in --clients 1000 --messages 20000 --rate 5000
  timestone bench mqtt point-to-point --against mosquitto=127.0.0.1:1884,4711
  timestone bench mqtt fan-out --against nats=nats://127.0.0.1:4222

Without --server it starts `timestone serve` on an empty directory under --dir
and removes it afterwards. A server is given as
[NAME=][mqtt://|nats://]HOST:PORT[,PID]; with the pid of a process of this
machine, its processor time and memory are measured, too.
""".format(
    scenarios="\n".join(
        textwrap.fill(
            f"  {name:<15} {preset.summary}", 78, subsequent_indent=" " * 18, break_on_hyphens=False
        )
        for name, preset in PRESETS.items()
    )
)
_TARGET = Parsed("server", Target.parse)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """Number of runs of each server, and the form of the report."""

    directory: Path
    repeat: int | None
    quick: bool
    as_json: bool
    plot: Path | None


def reporting_options(function: Callable[..., None]) -> Callable[..., None]:
    """Declare the options of `Reporting`; the function gets them as `reporting`."""

    @functools.wraps(function)
    def with_reporting(
        directory: Path, repeat: int | None, quick: bool, as_json: bool, plot: Path | None, **others: Any
    ) -> None:
        reporting = Reporting(directory=directory, repeat=repeat, quick=quick, as_json=as_json, plot=plot)
        function(reporting=reporting, **others)

    declared: Callable[..., None] = with_reporting
    for option in (
        plot_option,
        json_option,
        directory_option("The data of servers goes under DIR."),
        quick_option,
        repeat_option(_REPEAT, "Runs on each server.", quick=_QUICK_REPEAT),
    ):
        declared = option(declared)
    return declared


def _load(*names: str, **attributes: Any) -> Decorator:
    return click.option(
        *names, cls=Option, heading="Load (the defaults depend on the scenario)", **attributes
    )


def _servers_option(*names: str, **attributes: Any) -> Decorator:
    return click.option(*names, cls=Option, heading="Servers", **attributes)


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument(
    "scenarios", nargs=-1, metavar="[SCENARIO]...", type=click.Choice(list(PRESETS)), help="All without any."
)
@reporting_options
@_load("--qos", type=click.Choice(["0", "1"]), help="Quality of service.")
@_load("--payload-bytes", metavar="N", type=POSITIVE, help="At least 16.  [default: 100]")
@_load("--clients", metavar="N", type=POSITIVE, help="Publishers, pairs, or connections.")
@_load("--subscribers", metavar="N", type=POSITIVE, help="Subscribers of each message.")
@_load("--messages", metavar="N", type=POSITIVE, help="Messages of all clients together.")
@_load("--window", metavar="N", type=POSITIVE, help="Unacknowledged messages of each client.")
@_load("--rate", metavar="N", type=AMOUNT, help="Messages, or connections, a second; 0: as fast as possible.")
@_load("--topics", metavar="N", type=POSITIVE, help="Topics of each client.  [default: 1]")
@_load("--idle", "idle_s", metavar="SECONDS", type=AMOUNT, help="How long connections are watched idling.")
@_load("--processes", metavar="N", type=POSITIVE, help="Processes that generate the load.  [default: 1]")
@_servers_option("--server", metavar="SERVER", type=_TARGET, help="A Timestone that runs already.")
@_servers_option(
    "--pid", metavar="PID", type=POSITIVE, help="The process of --server, if it is on this machine."
)
@_servers_option(
    "--against", metavar="SERVER", type=_TARGET, multiple=True, help="Another server; repeatable."
)
@_servers_option(
    "--ack",
    "acks",
    type=click.Choice([level.value for level in Ack]),
    multiple=True,
    help="Ack level of the server that is started; given twice, two are started.  [default: synced]",
)
def command(
    scenarios: Sequence[str],
    server: Target | None,
    pid: int | None,
    against: Sequence[Target],
    acks: Sequence[str],
    reporting: Reporting,
    **load: Any,
) -> None:
    """The scenarios of the field on Timestone and, side by side, on other servers."""
    if pid and not server:
        raise UsageError("--pid needs --server: it is the process of that server")
    own = None if server is None else replace(server, pid=pid or server.pid)
    start = _servers(own, against, acks or [Ack.SYNCED.value])
    given = _given(load)
    report(
        [(_scenario(name, given, quick=reporting.quick), start) for name in scenarios or PRESETS], reporting
    )


def report(plan: Sequence[tuple[Scenario, Servers]], how: Reporting) -> None:
    """Run each scenario on its servers, freshly started for it, and print its table as soon as it is measured; JSON is
    one document at the end. Raises BenchmarkError when it cannot run here."""
    progress = progress_line()
    draw = plot_writer(how.plot, f"{__package__}.plot")
    if not how.directory.is_dir():
        raise BenchmarkError(f"{how.directory} is not a directory")
    repeat = how.repeat or (_QUICK_REPEAT if how.quick else _REPEAT)
    environment = probe_environment(how.directory)
    allow_connections(max(scenario.publishers + scenario.subscribers for scenario, _ in plan))
    comparisons: list[Comparison] = []
    if not how.as_json:
        print_environment(environment)
    try:
        for scenario, servers in plan:
            comparisons.append(_compare(scenario, servers, how.directory, repeat, progress))
            progress("")
            if not how.as_json:
                print_comparison(comparisons[-1])
    finally:  # also those of a run that is interrupted
        if how.as_json and comparisons:
            print_json(_to_json(environment, comparisons))
    if draw is not None:
        draw(environment, comparisons, how.plot)


def _compare(
    scenario: Scenario, servers: Servers, parent: Path, repeat: int, progress: Progress
) -> Comparison:
    runs: dict[str, list[Outcome]] = {}
    # A server keeps the memory of closed connections, so only a new one shows the memory of the next.
    fresh = repeat if scenario.name == "connection" else 1
    for _ in range(fresh):
        for name, outcomes in _measure(scenario, servers, parent, repeat // fresh, progress).items():
            runs.setdefault(name, []).extend(outcomes)
    return build_comparison(scenario, runs)


def allow_connections(count: int) -> None:
    """Raise the limit of open files. A connection is a descriptor on both sides; the servers started here inherit the
    limit."""
    needed, (soft, hard) = count + _SPARE_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise BenchmarkError(f"{count:,} connections need {needed:,} open files; this system allows {hard:,}")
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _measure(
    scenario: Scenario, servers: Servers, parent: Path, repeat: int, progress: Progress
) -> dict[str, list[Outcome]]:
    """Measure the scenario on servers started for it."""
    try:
        with (
            working_directory(parent) as directory,
            servers(directory) as targets,
            null_servers(directory) as bounds,
        ):
            return take_turns(scenario, [*targets, *bounds], repeat, progress)
    except (ConnectionError, TimeoutError) as error:
        raise BenchmarkError(str(error)) from error


def _given(load: dict[str, Any]) -> dict[str, Any]:
    """Return the given options, by the names of a scenario's fields."""
    given = {name: value for name, value in load.items() if value is not None}
    if "qos" in given:
        given["qos"] = int(given["qos"])
    if "clients" in given:
        given["publishers"] = given.pop("clients")
    return given


def _scenario(name: str, given: dict[str, Any], *, quick: bool) -> Scenario:
    preset = PRESETS[name]
    scenario = replace(preset.scenario, **(preset.quick if quick else {}) | given)
    if scenario.rate == 0:
        scenario = replace(scenario, rate=None)
    if name == "ping-pong":
        scenario = replace(scenario, publishers=1, subscribers=1)
    if name in PAIRED:
        scenario = replace(scenario, subscribers=scenario.publishers)
    _check(scenario)
    return scenario


def _check(scenario: Scenario) -> None:
    if scenario.name == "back-pressure" and scenario.rate is None:
        raise UsageError(
            "invalid --rate for back-pressure: expected a number above 0, because latencies are compared"
        )
    if scenario.payload_bytes < _MIN_PAYLOAD_BYTES:
        raise UsageError(
            f"invalid --payload-bytes: expected {_MIN_PAYLOAD_BYTES} or more for counter and time, "
            f"got {scenario.payload_bytes}"
        )
    if scenario.name != "connection" and scenario.messages < scenario.publishers:
        raise UsageError(
            f"invalid --messages: expected {scenario.publishers} or more, one for each publisher, "
            f"got {scenario.messages}"
        )
    if scenario.name == "session-unload" and not scenario.qos:
        raise UsageError(
            "invalid --qos for session-unload: expected 1, because a session gets no missed messages at QoS 0"
        )


def _servers(own: Target | None, against: Sequence[Target], acks: Sequence[str]) -> Servers:
    @contextlib.contextmanager
    def start(directory: Path) -> Iterator[Sequence[Target]]:
        with contextlib.ExitStack() as stack:
            ours = start_timestone(stack, directory, acks) if own is None else [own]
            yield [*ours, *against]

    return start


def start_timestone(stack: contextlib.ExitStack, directory: Path, acks: Sequence[str]) -> list[Target]:
    """Start a Timestone server for each level, in a separate directory each, until `stack` is closed."""
    targets = []
    for ack in acks:
        own = directory / f"timestone-{ack}"
        own.mkdir()
        targets.append(stack.enter_context(timestone_server(own.absolute(), f"timestone {ack}", ack)))
    return targets


def _to_json(environment: Environment, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    return {
        "benchmark": "mqtt",
        "environment": asdict(environment),
        "comparisons": [comparison.to_json() for comparison in comparisons],
    }
