"""Medians and ratios of the cases, and what was to be reached. Ratios are of figures in the same turn, so that other
work on the machine affects both sides."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ..measurement import Spread
from .cases import CASES, Figures

Taken = Mapping[str, Sequence[Figures]]
"""Figures of each case, turn by turn."""
FIGURES = {
    "per_s": "messages/s",
    "cpu_us": "processor µs",
    "own_cpu_us": "… of the server",
    "ack_p50_us": "p50 µs",
    "ack_p99_us": "p99 µs",
    "records_per_s": "records/s",
    "mb_per_s": "MB/s",
    "pause_s": "pause s",
    "served_s": "served after s",
    "sessions_per_s": "sessions made/s",
    "node_cores": "cores of a node",
    "etcd_per_s": "etcd requests/s",
    "node_mib": "MiB of a node",
}
"""Headings by name."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one case."""

    case: str
    figure: str
    value: Spread
    peer: str
    ratio: Spread | None
    """Of the peer's figure in the same turn; None for a case that has no peer."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "value": self.value.to_json(),
            "ratio": None if self.ratio is None else self.ratio.to_json(),
        }


def rows(taken: Taken) -> list[Row]:
    """Return the figures of all cases, in their order."""
    found = []
    for case, turns in taken.items():
        peer = CASES[case].peer
        for figure in turns[0]:
            value = Spread.of([turn[figure] for turn in turns])
            others = taken.get(peer, ())
            ratio = None
            if peer != case and others and all(other.get(figure) for other in others):
                pairs = zip(turns, others, strict=True)
                ratio = Spread.of([own[figure] / other[figure] for own, other in pairs])
            found.append(Row(case, figure, value, peer, ratio))
    return found


class Goal(NamedTuple):
    """A figure of a case, or its ratio to the best of some others, that is to be reached."""

    name: str
    what: str
    case: str
    figure: str
    bound: float
    is_least: bool
    others: Sequence[str] = ()
    other_figure: str = ""
    """Of the others, if it is not the same."""
    is_worst: bool = False
    """Whether the worst of the turns counts, in place of their median."""

    def value(self, taken: Taken) -> float | None:
        """Return what was measured; None if a case was not."""
        others = [taken[name] for name in self.others if name in taken]
        if self.case not in taken or bool(others) != bool(self.others):
            return None
        best = max if self.is_least else min
        figure = self.other_figure or self.figure
        values = [
            turn[self.figure] / (best(other[number][figure] for other in others) if others else 1.0)
            for number, turn in enumerate(taken[self.case])
        ]
        if self.is_worst:
            return min(values) if self.is_least else max(values)
        return statistics.median(values)

    def is_met(self, value: float) -> bool:
        """Return whether a value reaches the bound."""
        return value >= self.bound if self.is_least else value <= self.bound

    def to_json(self, taken: Taken) -> dict[str, Any]:
        value = self.value(taken)
        met = None if value is None else self.is_met(value)
        return {
            "goal": self.name,
            "what": self.what,
            "value": value,
            "bound": self.bound,
            "is_least": self.is_least,
            "is_met": met,
        }


GOALS = (
    Goal(
        "C1", "QoS 1 ÷ the better of NATS and RabbitMQ", "qos1 cluster", "per_s", 5, True,
        ("qos1 nats", "qos1 rabbitmq"),
    ),
    Goal(
        "C1", "appends ÷ Kafka, flushed", "append cluster", "records_per_s", 1, True, ("append kafka, flushed",)
    ),
    Goal(
        "C1",
        "appends at written ÷ Kafka as it comes",
        "append cluster, written",
        "records_per_s",
        0.5,
        True,
        ("append kafka",),
    ),
    Goal("C2", "QoS 1 ÷ single node", "qos1 cluster", "per_s", 0.25, True, ("qos1 single",)),
    Goal("C3", "PUBACK, p50 ÷ single node", "puback cluster", "ack_p50_us", 2, False, ("puback single",)),
    Goal("C3", "PUBACK, p50 ÷ NATS", "puback cluster", "ack_p50_us", 1, False, ("puback nats",)),
    Goal(
        "C3", "PUBACK, p99 ÷ own p50", "puback cluster", "ack_p99_us", 5, False, ("puback cluster",), "ack_p50_us"
    ),
    Goal("C5", "kill of the leader, median, s", "kill", "pause_s", 4, False),
    Goal("C5", "kill of the leader, longest, s", "kill", "pause_s", 6, False, is_worst=True),
    Goal("C5", "hand-over, s", "hand-over", "pause_s", 0.3, False),
    Goal("C6", "catch-up ÷ raw copy", "catch-up", "mb_per_s", 0.5, True, ("raw copy",)),
    Goal("C7", "relayed ÷ direct, QoS 1", "qos1 relayed", "per_s", 0.6, True, ("qos1 cluster",)),
    Goal("C9", "election to serving with sessions, s", "sessions", "served_s", 1, False),
    Goal("C10", "idle, cores of a node", "idle", "node_cores", 0.01, False),
    Goal("C10", "idle, requests to etcd/s", "idle", "etcd_per_s", 5, False),
)  # fmt: skip


class Sheet(NamedTuple):
    """Headings and lines, for any form of table; the first column is text."""

    headings: Sequence[str]
    lines: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return it as a table of Markdown."""
        parts = [self.headings, ["---", *["---:"] * (len(self.headings) - 1)], *self.lines]
        return "\n".join(f"| {' | '.join(line)} |" for line in parts)


def sheets(taken: Taken) -> list[Sheet]:
    """Return the figures, and the goals that were measured."""
    lines, before = [], ""
    for row in rows(taken):
        compared = ["", "", ""]
        if row.ratio is not None:
            spread = f"{row.ratio.low:.2f}–{row.ratio.high:.2f}"
            compared = [f"{row.ratio.median:.2f}", spread, row.peer]
        name = row.case if row.case != before else ""
        lines.append([name, FIGURES[row.figure], number(row.value.median), *compared])
        before = row.case
    found = [Sheet(("row", "figure", "median", "times", "range", "of"), lines)]
    reached = [(goal, value) for goal in GOALS if (value := goal.value(taken)) is not None]
    if reached:
        goals = [
            [
                f"{goal.name}: {goal.what}",
                f"{'≥' if goal.is_least else '≤'} {goal.bound:g}",
                number(value),
                "yes" if goal.is_met(value) else "no",
            ]
            for goal, value in reached
        ]
        found.append(Sheet(("goal", "bound", "measured", "met"), goals))
    return found


def number(value: float) -> str:
    """Return a number with three digits or more."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"
