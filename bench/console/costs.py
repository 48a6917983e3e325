"""What figures and console cost a server: the same load on servers with and without them, in turn."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time_ns
from typing import NamedTuple

from ..measurement import Spread
from ..mqtt.scenario import Scenario, run_scenario
from ..mqtt.target import Target
from ..options import Progress
from .browsing import Browser, Visitors
from .pages import pages
from .processes import Served, console_process, served


class Mode(NamedTuple):
    """A server and the browsers on its console."""

    options: tuple[str, ...]
    browsers: int = 0
    """Each has the pages overview and clients open."""


_CONSOLE = ("--console", "127.0.0.1:0")
MODES: Mapping[str, Mode] = {
    "off": Mode(("--console", "none", "--metrics-interval-ms", "0")),
    "figures": Mode(("--console", "none")),
    "traces": Mode(("--console", "none", "--mqtt-traces-per-s", "1")),
    "console": Mode(_CONSOLE),
    "1 browser": Mode(_CONSOLE, 1),
    "10 browsers": Mode(_CONSOLE, 10),
}
"""The first is what the others are compared with. `console`: its process runs, no browser is open."""
LOADS = ("steady", "full speed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one load in one mode. Processor time is in cores."""

    per_s: float
    server_busy: float
    console_busy: float
    ack_p50_us: float
    ack_p99_us: float
    rss_bytes: float


@dataclass(frozen=True, slots=True)
class Costs:
    """The runs of each load and mode, in the order of the turns."""

    runs: Mapping[str, Mapping[str, Sequence[Run]]]

    def median(self, load: str, mode: str, figure: str) -> float:
        """Return the median of a figure."""
        return Spread.of([getattr(run, figure) for run in self.runs[load][mode]]).median

    def ratio(self, load: str, mode: str, other: str, figure: str) -> float:
        """Return the median of the ratios of the same turns."""
        pairs = zip(self.runs[load][mode], self.runs[load][other], strict=True)
        return Spread.of(
            [getattr(one, figure) / max(getattr(two, figure), 1e-9) for one, two in pairs]
        ).median

    def difference(self, load: str, mode: str, other: str, figure: str) -> float:
        """Return the median of the differences of the same turns."""
        pairs = zip(self.runs[load][mode], self.runs[load][other], strict=True)
        return Spread.of([getattr(one, figure) - getattr(two, figure) for one, two in pairs]).median

    def to_json(self) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
        """Return the spread of each figure, by load and mode."""
        return {
            load: {
                mode: {
                    name: Spread.of([getattr(run, name) for run in runs]).to_json()
                    for name in Run.__dataclass_fields__
                }
                for mode, runs in modes.items()
            }
            for load, modes in self.runs.items()
        }


def scenarios(clients: int, seconds: int, messages: int) -> dict[str, Scenario]:
    """Return the loads: `clients` that publish each ten seconds, or once in a shorter run, and ten at full speed."""
    rate = clients / min(10, seconds)
    steady = int(rate * seconds)
    return {
        LOADS[0]: Scenario(name="fan-in", publishers=clients, messages=steady, rate=rate),
        LOADS[1]: Scenario(name="fan-in", publishers=10, messages=messages),
    }


def measure_costs(directory: Path, loads: Mapping[str, Scenario], repeat: int, progress: Progress) -> Costs:
    """Run each load in each mode `repeat` times, in turn; each turn begins with another mode. Raises BenchmarkError."""
    runs: dict[str, dict[str, list[Run]]] = {load: {mode: [] for mode in MODES} for load in loads}
    names = list(MODES)
    with _servers(directory) as servers:
        for turn in range(repeat + 1):
            first = turn % len(names)
            for load, scenario in loads.items():
                for mode in (*names[first:], *names[:first]):
                    progress(f"{load}, {mode}: turn {turn} of {repeat}")
                    run = _run(scenario, servers[MODES[mode].options], MODES[mode].browsers)
                    if turn:  # the first one warms
                        runs[load][mode].append(run)
    return Costs(runs)


@contextmanager
def _servers(directory: Path) -> Iterator[dict[tuple[str, ...], Served]]:
    with ExitStack() as stack:
        yield {
            options: stack.enter_context(served(directory / f"server-{number}", f"server {number}", *options))
            for number, options in enumerate(dict.fromkeys(mode.options for mode in MODES.values()))
        }


def _run(scenario: Scenario, server: Served, browsers: int) -> Run:
    console: Target | None = None
    if server.console is not None:
        browser = Browser(server.console)
        browser.get("/")  # starts the process, if it does not run
        browser.close()
        console = console_process(server.target)
    found = pages(time_ns() // 1000)
    asks = [*found["overview"], *found["clients"]]
    visitors = Visitors(server.console or "", browsers, asks) if browsers else nullcontext()
    with visitors:
        began_s, used_s = monotonic(), 0.0 if console is None else console.cpu_s() or 0.0
        figures = run_scenario(scenario, server.target).figures
        passed_s = monotonic() - began_s
        used_s = 0.0 if console is None else (console.cpu_s() or 0.0) - used_s
    return Run(
        per_s=figures["per_s"],
        server_busy=figures["server_busy"],
        console_busy=used_s / passed_s,
        ack_p50_us=figures["ack_p50_us"],
        ack_p99_us=figures["ack_p99_us"],
        rss_bytes=server.target.rss_bytes() or 0,
    )
