"""Several servers under the same scenario: they run in turn, and the result is medians and ratios."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..measurement import Spread
from .scenario import Outcome, Scenario, run_scenario
from .target import NULL_SERVER, NULL_SERVERS, Target

_BUSY = 0.9
_NEAR_CEILING = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRow:
    """One server: medians of its runs."""

    name: str
    figures: dict[str, Spread]
    ratios: dict[str, Spread]
    """Each figure of the first server over this one's, in the same repeat."""
    faults: dict[str, int]
    """Faults with messages, in all runs together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One scenario on all servers. The others are compared with the first."""

    scenario: Scenario
    repeat: int
    rows: Sequence[ServerRow]
    warnings: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Scenario, servers with their figures, warnings."""
        return {
            "scenario": asdict(self.scenario),
            "repeat": self.repeat,
            "servers": [
                {
                    "name": row.name,
                    "figures": {name: spread.to_json() for name, spread in row.figures.items()},
                    "ratios": {name: spread.to_json() for name, spread in row.ratios.items()},
                    "faults": row.faults,
                }
                for row in self.rows
            ],
            "warnings": list(self.warnings),
        }


def take_turns(
    scenario: Scenario, targets: Sequence[Target], repeat: int, progress: Callable[[str], None]
) -> dict[str, list[Outcome]]:
    """Run the scenario `repeat` times on each server that supports it, by name. Raises BenchmarkError when a server
    refuses a client."""
    runs: dict[str, list[Outcome]] = {target.name: [] for target in targets if can_run(scenario, target)}
    for number in range(repeat):
        for target in targets:
            if target.name in runs:
                progress(f"{scenario.name}, {target.name}: run {number + 1} of {repeat}")
                runs[target.name].append(run_scenario(scenario, target))
    return runs


def can_run(scenario: Scenario, target: Target) -> bool:
    """Return whether the target supports the scenario. The native protocol of NATS has no QoS 1; the null server keeps
    no sessions and does not distinguish a flood from the measured messages."""
    if scenario.name in ("session-unload", "back-pressure"):
        return target.scheme == "mqtt" and target.name not in NULL_SERVERS
    return target.scheme == "mqtt" or not scenario.qos or scenario.name == "connection"


def build_comparison(scenario: Scenario, runs: dict[str, list[Outcome]]) -> Comparison:
    """Build the comparison from the runs, those of one server after the other, the same number of each."""
    base = next(iter(runs.values()))
    rows = [_row(name, outcomes, base) for name, outcomes in runs.items()]
    return Comparison(scenario=scenario, repeat=len(base), rows=rows, warnings=_warnings(rows))


def _row(name: str, outcomes: Sequence[Outcome], base: Sequence[Outcome]) -> ServerRow:
    figures = {key: Spread.of([one.figures[key] for one in outcomes]) for key in _keys(outcomes)}
    ratios = {}
    if outcomes is not base:
        for key in (key for key in _keys([*outcomes, *base]) if all(one.figures[key] for one in outcomes)):
            pairs = zip(base, outcomes, strict=True)
            ratios[key] = Spread.of([ours.figures[key] / its.figures[key] for ours, its in pairs])
    faults: dict[str, int] = {}
    for outcome in outcomes:
        for fault, count in outcome.faults.items():
            faults[fault] = faults.get(fault, 0) + count
    return ServerRow(name=name, figures=figures, ratios=ratios, faults=faults)


def _keys(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the figures that all runs have."""
    return [key for key in outcomes[0].figures if all(key in one.figures for one in outcomes)]


def _warnings(rows: Sequence[ServerRow]) -> list[str]:
    found = [
        f"{row.name}: {', '.join(f'{count:,} {fault}' for fault, count in row.faults.items())}"
        for row in rows
        if row.faults and row.name not in NULL_SERVERS
    ]
    ceiling = next((row.figures["per_s"].median for row in rows if row.name == NULL_SERVER), None)
    for row in rows:
        if row.name in NULL_SERVERS:
            continue
        busy, rate = row.figures["generator_busy"].median, row.figures["per_s"].median
        if busy > _BUSY and row.figures.get("server_busy", row.figures["per_s"]).median < _BUSY:
            found.append(
                f"{row.name}: the load generator was busy {busy:.0%}: it may be the bottleneck (--processes)"
            )
        elif ceiling is not None and busy > _BUSY / 2 and rate > _NEAR_CEILING * ceiling:
            found.append(
                f"{row.name} is near the maximum of the load generator, {ceiling:,.0f}/s (--processes)"
            )
    return found
