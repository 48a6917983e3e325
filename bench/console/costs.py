"""What figures and console cost a server: the same load on servers with and without them, at the same moment or in
turn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time_ns
from typing import NamedTuple, Self

import numpy as np

from ..measurement import Spread
from ..mqtt.scenario import Scenario, run_at_once
from ..mqtt.target import Target
from ..options import Progress
from .browsing import Browser, Visit, Visitors
from .pages import BESIDE, STREAM, TAIL, pages
from .processes import Served, console_process, served

_RESAMPLES = 2000
_CONFIDENCE = (2.5, 97.5)
_WINDOW_S = 10.0
"""As long as it takes that each client publishes, and that there is a sample."""


class Mode(NamedTuple):
    """A server and the browsers on its console."""

    options: tuple[str, ...]
    browsers: tuple[tuple[str, ...], ...] = ()
    """The pages that each has open."""


_CONSOLE = ("--console", "127.0.0.1:0")
MODES: Mapping[str, Mode] = {
    "off": Mode(("--console", "none", "--metrics-interval-ms", "0")),
    "figures": Mode(("--console", "none")),
    "traces": Mode(("--console", "none", "--mqtt-traces-per-s", "1")),
    "console": Mode(_CONSOLE),
    "1 browser": Mode(_CONSOLE, (("overview", "clients"),)),
    "console again": Mode(_CONSOLE),
    "5 browsers": Mode(
        _CONSOLE, (("overview",), ("clients",), ("topics", "topics, searched"), ("live tail",), ("csv",))
    ),
}
"""Each has a server of its own. `console`: its process runs, no browser is open."""
PLAN: Mapping[str, Sequence[Sequence[str]]] = {
    "steady": (("off", "figures"), ("console", "1 browser"), ("console again", "5 browsers")),
    "full speed": (("off",), ("figures",), ("traces",)),
}
"""The modes of each load. Groups run in turn; the servers of a group have the load at the same moment, so that other
work on the machine, that of the browsers too, and its pace are the same for all: what is compared is little beside."""
LOADS = tuple(PLAN)
_TIMES = {"steady": 1, "full speed": 8}
"""Runs of a load in each turn: one at full speed is short."""


class Estimate(NamedTuple):
    """A figure, and the interval that has it with a confidence of 95 %."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], middle: Callable[..., float]) -> Self:
        """Return `middle` of at least one value, with the interval by resampling (bootstrap)."""
        chosen = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values)))
        low, high = np.percentile([middle(one) for one in chosen], _CONFIDENCE)
        return cls(float(middle(values)), float(low), float(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one load in one mode. Processor time is in cores."""

    per_s: float
    server_busy: float
    server_message_us: float
    """Processor time of the server for a message."""
    console_busy: float
    ack_p50_us: float
    ack_p99_us: float
    rss_bytes: float
    windows: tuple[float, ...] = ()
    """Processor of the server in each window of the run."""


FIGURES = tuple(name for name in Run.__dataclass_fields__ if name != "windows")


@dataclass(frozen=True, slots=True)
class Costs:
    """The runs of each load and mode, in the order of the turns."""

    runs: Mapping[str, Mapping[str, Sequence[Run]]]

    def median(self, load: str, mode: str, figure: str) -> float:
        """Return the median of a figure."""
        return Spread.of([getattr(run, figure) for run in self.runs[load][mode]]).median

    def ratio(self, load: str, mode: str, other: str, figure: str) -> Estimate:
        """Return the median of the ratios of the same turns."""
        return Estimate.of(
            [one / max(two, 1e-9) for one, two in self._pairs(load, mode, other, figure)], np.median
        )

    def difference(self, load: str, mode: str, other: str, figure: str) -> Estimate:
        """Return the median of the differences of the same turns."""
        return Estimate.of([one - two for one, two in self._pairs(load, mode, other, figure)], np.median)

    def more_processor(self, load: str, mode: str, other: str) -> Estimate:
        """Return the mean of the differences of processor time in the same windows: some of the cost comes once a
        minute."""
        turns = zip(self.runs[load][mode], self.runs[load][other], strict=True)
        pairs = [pair for one, two in turns for pair in zip(one.windows, two.windows, strict=True)]
        return Estimate.of([one - two for one, two in pairs], np.mean)

    def _pairs(self, load: str, mode: str, other: str, figure: str) -> list[tuple[float, float]]:
        pairs = zip(self.runs[load][mode], self.runs[load][other], strict=True)
        return [(getattr(one, figure), getattr(two, figure)) for one, two in pairs]

    def to_json(self) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
        """Return the spread of each figure, by load and mode."""
        return {
            load: {
                mode: {name: Spread.of([getattr(run, name) for run in runs]).to_json() for name in FIGURES}
                for mode, runs in modes.items()
            }
            for load, modes in self.runs.items()
        }


def scenarios(clients: int, seconds: int, messages: int) -> dict[str, Scenario]:
    """Return the loads: `clients` that publish each ten seconds, or once in a shorter run, and ten at full speed."""
    rate = clients / min(10, seconds)
    steady = Scenario(name="fan-in", publishers=clients, messages=int(rate * seconds), rate=rate)
    return {LOADS[0]: steady, LOADS[1]: Scenario(name="fan-in", publishers=10, messages=messages)}


def measure_costs(
    directory: Path, loads: Mapping[str, Scenario], repeat: int, progress: Progress, *, quick: bool = False
) -> Costs:
    """Run each load in its modes `repeat` times; each turn begins with another group. quick: no turn that warms, and
    one run of each load in a turn. Raises BenchmarkError."""
    runs: dict[str, dict[str, list[Run]]] = {
        load: {mode: [] for group in PLAN[load] for mode in group} for load in loads
    }
    with ExitStack() as stack:
        # Each load has servers of its own: the memory after one at full speed is not that of many clients.
        servers = {
            load: stack.enter_context(_servers(directory / f"load-{number}", set(runs[load])))
            for number, load in enumerate(loads)
        }
        for turn in range(int(quick), repeat + 1):
            for load, scenario in loads.items():
                for time in range(_TIMES[load] if turn and not quick else 1):
                    first = (turn + time) % len(PLAN[load])
                    for group in (*PLAN[load][first:], *PLAN[load][:first]):
                        progress(f"{load}, {' and '.join(group)}: turn {turn} of {repeat}")
                        found = _run(scenario, group, servers[load])
                        if turn:  # the first one warms
                            for mode, run in found.items():
                                runs[load][mode].append(run)
    return Costs(runs)


@contextmanager
def _servers(directory: Path, modes: set[str]) -> Iterator[dict[str, Served]]:
    directory.mkdir()
    with ExitStack() as stack:
        yield {
            mode: stack.enter_context(served(directory / f"server-{number}", mode, *MODES[mode].options))
            for number, mode in enumerate(MODES)
            if mode in modes
        }


def _run(scenario: Scenario, group: Sequence[str], servers: Mapping[str, Served]) -> dict[str, Run]:
    """Run a load on the servers of a group at once."""
    consoles: dict[str, Target] = {}
    with ExitStack() as stack:
        for mode in group:
            if (address := servers[mode].console) is not None:
                browser = Browser(address)
                browser.get("/")  # starts the process, if it does not run
                browser.close()
                consoles[mode] = console_process(servers[mode].target)
                found = pages(time_ns() // 1000) | BESIDE
                visits = [
                    Visit(
                        [ask for page in opened for ask in found[page]],
                        TAIL if "live tail" in opened else STREAM,
                    )
                    for opened in MODES[mode].browsers
                ]
                stack.enter_context(Visitors(address, visits))
        began_s, used_s = monotonic(), {mode: console.cpu_s() or 0.0 for mode, console in consoles.items()}
        outcomes = run_at_once(scenario, [servers[mode].target for mode in group], _WINDOW_S)
        passed_s = monotonic() - began_s
        used_s = {mode: (console.cpu_s() or 0.0) - used_s[mode] for mode, console in consoles.items()}
    return {
        mode: Run(
            per_s=outcome.figures["per_s"],
            server_busy=outcome.figures["server_busy"],
            server_message_us=outcome.figures["cpu_us"],
            console_busy=used_s.get(mode, 0.0) / passed_s,
            ack_p50_us=outcome.figures["ack_p50_us"],
            ack_p99_us=outcome.figures["ack_p99_us"],
            rss_bytes=servers[mode].target.rss_bytes() or 0,
            windows=tuple(windows),
        )
        for mode, (outcome, windows) in zip(group, outcomes, strict=True)
    }
