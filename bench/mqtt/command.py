"""How fast is MQTT here, and what does it cost? The scenarios of the field against Timestone, and against others.

Each server gets the same load from the same processes in turn; a server that does nothing is measured with them and
says what the load itself can do. docs/benchmarks.md says how to read the result.
"""

import argparse
import contextlib
import json
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from timestone.config import Ack

from ..environment import Environment, probe_environment
from ..errors import BenchmarkError
from ..options import amount, plot_writer, positive
from ..working_directory import working_directory
from .comparison import Comparison, build_comparison, take_turns
from .presets import PRESETS
from .scenario import PAIRED, Outcome, Scenario
from .servers import null_server, timestone_server
from .table import print_comparisons
from .target import Target

__all__ = ["BenchmarkError", "add_arguments", "report", "run"]

Progress = Callable[[str], None]
Servers = Callable[[Path], contextlib.AbstractContextManager[Sequence[Target]]]
"""Starts the servers under test in an empty directory; the first is the one the others are compared with."""
_REPEAT, _QUICK_REPEAT = 5, 1
_MIN_PAYLOAD_BYTES = 16
_SPARE_FILES = 500

EXAMPLES = """\
scenarios:
{scenarios}

examples:
  timestone bench mqtt
  timestone bench mqtt fan-in --qos 0 --clients 100 --payload-bytes 1000 --ack written
  timestone bench mqtt fan-in --clients 1000 --messages 20000 --rate 5000
  timestone bench mqtt point-to-point --against mosquitto=127.0.0.1:1884,4711
  timestone bench mqtt fan-out --server 127.0.0.1:1883 --against nats=nats://127.0.0.1:4222

Without --server it starts `timestone serve` on an empty directory under --dir and removes it
afterwards. A server is given as [NAME=][mqtt://|nats://]HOST:PORT[,PID]; with the pid of a process
of this machine, its processor time and memory are measured too.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.description = "The scenarios of the field against Timestone and, side by side, other servers."
    parser.epilog = EXAMPLES.format(
        scenarios="\n".join(f"  {name:<15} {preset.summary}" for name, preset in PRESETS.items())
    )
    parser.add_argument(
        "scenario", nargs="*", metavar="SCENARIO", help=f"{', '.join(PRESETS)} (default: all of them)"
    )
    load = parser.add_argument_group("load (the defaults depend on the scenario)")
    load.add_argument("--qos", type=int, choices=[0, 1])
    load.add_argument("--payload-bytes", type=positive, metavar="N", help="default: 100; at least 16")
    load.add_argument("--clients", type=positive, metavar="N", help="publishers, pairs, or connections")
    load.add_argument("--subscribers", type=positive, metavar="N", help="of each message")
    load.add_argument("--messages", type=positive, metavar="N", help="of all clients together")
    load.add_argument("--window", type=positive, metavar="N", help="unacknowledged messages of each client")
    load.add_argument(
        "--rate", type=amount, metavar="N", help="messages, or connections, a second; 0: flat out"
    )
    load.add_argument("--topics", type=positive, metavar="N", help="topics of each client (default: 1)")
    load.add_argument(
        "--idle", type=amount, metavar="SECONDS", help="how long connections are watched idling"
    )
    load.add_argument("--processes", type=positive, metavar="N", help="that generate the load (default: 1)")
    servers = parser.add_argument_group("servers")
    servers.add_argument("--server", type=_target, metavar="SERVER", help="Timestone, when it runs already")
    servers.add_argument("--pid", type=positive, metavar="PID", help="of --server, if it is on this machine")
    servers.add_argument(
        "--against",
        type=_target,
        action="append",
        default=[],
        metavar="SERVER",
        help="another server, also twice",
    )
    servers.add_argument(
        "--ack", choices=[level.value for level in Ack], action="append",
        help="of the server it starts (default: synced); given twice, it starts two",
    )  # fmt: skip
    servers.add_argument(
        "--dir", type=Path, default=Path(), metavar="DIR", help="its data goes under DIR (default: .)"
    )
    add_report_arguments(parser)


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """How often, and in which form."""
    parser.add_argument(
        "--repeat",
        type=positive,
        metavar="N",
        help=f"runs on each server (default: {_REPEAT}; quick: {_QUICK_REPEAT})",
    )
    parser.add_argument("--quick", action="store_true", help="a rough answer in seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the servers as bars")


def run(arguments: argparse.Namespace, progress: Progress) -> int:
    """Measure and report. Raises BenchmarkError when it cannot run here."""
    unknown = [name for name in arguments.scenario if name not in PRESETS]
    if unknown:
        raise BenchmarkError(f"there is no scenario {unknown[0]!r}; there are {', '.join(PRESETS)}")
    if arguments.pid and not arguments.server:
        raise BenchmarkError("--pid is the process of --server, which was not given")
    given = _given(arguments)
    names = arguments.scenario or list(PRESETS)
    scenarios = [_scenario(name, given, quick=arguments.quick) for name in names]
    return report([(scenario, _servers(arguments)) for scenario in scenarios], arguments, progress)


def report(
    plan: Sequence[tuple[Scenario, Servers]], arguments: argparse.Namespace, progress: Progress
) -> int:
    """Run each scenario on its servers, freshly started for it, and show all results together.

    Uses what `add_report_arguments` declares, and `dir`. Raises BenchmarkError when it cannot run here.
    """
    draw = plot_writer(arguments.plot, f"{__package__}.plot")
    if not arguments.dir.is_dir():
        raise BenchmarkError(f"{arguments.dir} is not a directory")
    repeat = arguments.repeat or (_QUICK_REPEAT if arguments.quick else _REPEAT)
    environment = probe_environment(arguments.dir)
    _allow_connections(max(scenario.publishers + scenario.subscribers for scenario, _ in plan))
    comparisons = []
    for scenario, servers in plan:
        runs: dict[str, list[Outcome]] = {}
        # Memory that connections gave back is still the server's, so only a new one shows what they need.
        fresh = repeat if scenario.name == "connection" else 1
        for _ in range(fresh):
            for name, outcomes in _measure(
                scenario, servers, arguments.dir, repeat // fresh, progress
            ).items():
                runs.setdefault(name, []).extend(outcomes)
        comparisons.append(build_comparison(scenario, runs))
    progress("")
    if draw is not None:
        draw(environment, comparisons, arguments.plot)
    if arguments.json:
        print(json.dumps(_to_json(environment, comparisons), indent=2))
    else:
        print_comparisons(environment, comparisons)
    return 0


def _allow_connections(count: int) -> None:
    """Each is a file descriptor on both sides; what is started from here inherits the limit."""
    needed, (soft, hard) = count + _SPARE_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise BenchmarkError(f"{count:,} connections need {needed:,} open files; this system allows {hard:,}")
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _measure(
    scenario: Scenario, servers: Servers, parent: Path, repeat: int, progress: Progress
) -> dict[str, list[Outcome]]:
    """On servers started for it."""
    try:
        with working_directory(parent) as directory, servers(directory) as targets, null_server() as null:
            return take_turns(scenario, [*targets, null], repeat, progress)
    except (ConnectionError, TimeoutError) as error:
        raise BenchmarkError(str(error)) from error


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the user asked for, by the names of a scenario's fields."""
    names = {
        "qos": "qos", "payload_bytes": "payload_bytes", "clients": "publishers", "subscribers": "subscribers",
        "messages": "messages", "window": "window", "rate": "rate", "topics": "topics", "idle": "idle_s",
        "processes": "processes",
    }  # fmt: skip
    return {field: value for name, field in names.items() if (value := getattr(arguments, name)) is not None}


def _scenario(name: str, given: dict[str, Any], *, quick: bool) -> Scenario:
    preset = PRESETS[name]
    scenario = replace(preset.scenario, **(preset.quick if quick else {}) | given)
    if scenario.rate == 0:
        scenario = replace(scenario, rate=None)
    if name in PAIRED:
        scenario = replace(scenario, subscribers=scenario.publishers)
    _check(scenario)
    return scenario


def _check(scenario: Scenario) -> None:
    if scenario.name == "back-pressure" and scenario.rate is None:
        raise BenchmarkError("back-pressure: flat out there is no latency to compare")
    if scenario.payload_bytes < _MIN_PAYLOAD_BYTES:
        raise BenchmarkError(
            f"--payload-bytes {scenario.payload_bytes}: counter and time take {_MIN_PAYLOAD_BYTES}"
        )
    if scenario.name != "connection" and scenario.messages < scenario.publishers:
        raise BenchmarkError(
            f"--messages {scenario.messages} is less than one for each of {scenario.publishers}"
        )
    if scenario.name == "session-unload" and not scenario.qos:
        raise BenchmarkError("session-unload: at QoS 0 a session misses what it is not there for")


def _servers(arguments: argparse.Namespace) -> Servers:
    @contextlib.contextmanager
    def start(directory: Path) -> Iterator[Sequence[Target]]:
        with contextlib.ExitStack() as stack:
            if arguments.server is not None:
                own = [replace(arguments.server, pid=arguments.pid or arguments.server.pid)]
            else:
                own = start_timestone(stack, directory, arguments.ack or [Ack.SYNCED.value])
            yield [*own, *arguments.against]

    return start


def start_timestone(stack: contextlib.ExitStack, directory: Path, acks: Sequence[str]) -> list[Target]:
    """A server of our own for each level, in a directory each, until `stack` is closed."""
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


def _target(text: str) -> Target:
    try:
        return Target.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
