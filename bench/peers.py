"""Timestone beside other servers of this machine: mosquitto, nats-server and rumqttd, where they are installed.

Each is started on a free port over a temporary directory and ended by its pid; `mqtt/peer_servers.py` has their
settings. Also `python -m timestone_bench.peers`.
"""

import contextlib
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from timestone_cli.group import Command

from .errors import BenchmarkError
from .mqtt.command import Reporting, Servers, report, reporting_options, start_timestone
from .mqtt.peer_servers import (
    find_program,
    installed_version,
    mosquitto_server,
    nats_server,
    rumqttd_server,
)
from .mqtt.scenario import Scenario
from .mqtt.target import Target

_PROGRAMS = ("mosquitto", "nats-server", "rumqttd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One question, and the levels of acknowledgement at which Timestone is measured; the others are compared with the
    first."""

    scenario: Scenario
    acks: Sequence[str]
    quick: int
    """Number of messages, or connections, for a rough answer."""


MATCHES = {
    "qos1": Match(
        scenario=Scenario(name="fan-in", publishers=10, messages=300_000),
        acks=("synced", "written"),
        quick=30_000,
    ),
    "qos0": Match(
        scenario=Scenario(name="fan-in", qos=0, publishers=10, messages=2_000_000),
        acks=("written",),
        quick=100_000,
    ),
    "fan-out": Match(
        scenario=Scenario(name="fan-out", qos=0, subscribers=10, messages=200_000, window=5000),
        acks=("written",),
        quick=20_000,
    ),
    "fan-out-100": Match(
        scenario=Scenario(name="fan-out", qos=0, subscribers=100, messages=20_000, window=500),
        acks=("written",),
        quick=2000,
    ),
    "fan-out-1000": Match(
        scenario=Scenario(name="fan-out", qos=0, subscribers=1000, messages=2000, window=50),
        acks=("written",),
        quick=200,
    ),
    "ping-pong": Match(
        scenario=Scenario(name="ping-pong", qos=0, subscribers=1, messages=10_000),
        acks=("written",),
        quick=500,
    ),
    "ping-pong-qos1": Match(
        scenario=Scenario(name="ping-pong", subscribers=1, messages=5000),
        acks=("written", "synced"),
        quick=500,
    ),
    "ping-pong-1000": Match(
        scenario=Scenario(name="ping-pong", qos=0, subscribers=1, messages=3000, rate=1000),
        acks=("written",),
        quick=500,
    ),
    "one-each": Match(
        # Two processes: a single message costs the load generator more than any of the servers.
        scenario=Scenario(name="fan-in", publishers=1000, messages=50_000, window=1, processes=2),
        acks=("written", "synced"),
        quick=5000,
    ),
    "in-turn": Match(
        scenario=Scenario(name="fan-in", publishers=1000, messages=10_000, rate=3000),
        acks=("written", "synced"),
        quick=2000,
    ),
    "latency": Match(
        scenario=Scenario(name="point-to-point", publishers=10, subscribers=10, messages=4000, rate=1000),
        acks=("written", "synced"),
        quick=500,
    ),
    "connections": Match(
        scenario=Scenario(name="connection", qos=0, publishers=10_000), acks=("written",), quick=500
    ),
    "unload": Match(
        scenario=Scenario(name="session-unload", messages=1_000_000), acks=("written",), quick=20_000
    ),
}
"""The matches by name."""


@click.command(cls=Command, epilog=textwrap.fill(f"Matches: {', '.join(MATCHES)}.", 80) + "\n")
@click.argument(
    "names", nargs=-1, metavar="[MATCH]...", type=click.Choice(list(MATCHES)), help="All without any."
)
@reporting_options
def command(names: Sequence[str], reporting: Reporting) -> None:
    """Timestone beside mosquitto, nats-server and rumqttd, where they are installed. mosquitto and rumqttd keep
    everything in memory; mosquitto runs with its defaults and with set_tcp_nodelay. nats-server runs with JetStream
    without sync behind its MQTT gateway, and with its own protocol without storing."""
    versions = [version for program in _PROGRAMS if (version := installed_version(program))]
    if not versions:
        raise BenchmarkError("no peer is installed: expected mosquitto, nats-server or rumqttd on PATH")
    if not reporting.as_json:
        print("; ".join(versions))
    matches = [MATCHES[name] for name in names or MATCHES]
    report([(_scenario(match, quick=reporting.quick), _servers(match.acks)) for match in matches], reporting)


def _scenario(match: Match, *, quick: bool) -> Scenario:
    if not quick:
        return match.scenario
    if match.scenario.name == "connection":
        return replace(match.scenario, publishers=match.quick, idle_s=1.0)
    return replace(match.scenario, messages=match.quick)


def _servers(acks: Sequence[str]) -> Servers:
    @contextlib.contextmanager
    def start(directory: Path) -> Iterator[Sequence[Target]]:
        with contextlib.ExitStack() as stack:
            targets = start_timestone(stack, directory, acks)
            if find_program("mosquitto"):
                for nodelay in (False, True):
                    own = _made(directory / f"mosquitto-{nodelay}")
                    targets.append(stack.enter_context(mosquitto_server(own, nodelay=nodelay)))
            if find_program("nats-server"):
                for native in (False, True):
                    own = _made(directory / f"nats-{native}")
                    targets.append(stack.enter_context(nats_server(own, native=native)))
            if find_program("rumqttd"):
                targets.append(stack.enter_context(rumqttd_server(_made(directory / "rumqttd"))))
            yield targets

    return start


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory.absolute()


if __name__ == "__main__":
    command()
