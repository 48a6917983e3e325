"""Two checkouts beside each other: processor time of core rows, in turns, and the ratio of their medians."""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from timestone_cli.group import Command
from timestone_cli.input.parameters import DIRECTORY
from timestone_cli.output.tables import print_tables, simple_table

from .compare_rows import SIZES
from .environment import probe_environment
from .errors import BenchmarkError
from .options import POSITIVE, json_option, progress_line, repeat_option
from .report import print_report

_ROWS = Path(__file__).with_name("compare_rows.py")

EXAMPLES = """\
Examples:
  git worktree add ../old v0.1.0 && make -C ../old install
  timestone bench compare ../old .

Each checkout has its own .venv with compiled kernels. The figures are processor
time, which other work on the machine changes less than elapsed time; on a busy
machine, more repeats help. A ratio below 1 means that NEW does more work.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("old", type=DIRECTORY, help="The checkout to compare with.")
@click.argument("new", type=DIRECTORY, help="The checkout that changed.")
@repeat_option(9, "Runs of each checkout, in turns.")
@click.option(
    "--count",
    metavar="N",
    type=POSITIVE,
    default=64,
    show_default=True,
    help=f"Thousands (of {SIZES[-1]}) of records or messages of each row.",
)
@json_option
def command(old: Path, new: Path, repeat: int, count: int, as_json: bool) -> None:
    """Compare the speed of two checkouts of Timestone."""
    progress = progress_line()
    sides = {"old": old, "new": new}
    taken: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for number in range(repeat):
        for side, checkout in sides.items():
            progress(f"round {number + 1} of {repeat}: {checkout}")
            for row, microseconds in _measured(checkout.resolve(), count * SIZES[-1]):
                taken[side].setdefault(row, []).append(microseconds)
    progress("")
    result = {row: _compared(olds, taken["new"][row]) for row, olds in taken["old"].items()}
    environment = probe_environment(Path(tempfile.gettempdir()))
    print_report("compare", result, environment, [], as_json=as_json)
    if not as_json:
        _print_table(result)


def _measured(checkout: Path, count: int) -> Iterator[tuple[str, float]]:
    """Yield the rows of one run: the name, and microseconds of processor time for each record or message."""
    python = checkout / ".venv" / "bin" / "python"
    yield from _json_of([python, "-P", _ROWS, count]).items()
    for qos in (0, 1):
        load = ["fan-in", "--qos", qos, "--ack", "written", "--repeat", 1, "--messages", count]
        found = _json_of([python, "-P", "-m", "timestone_cli", "bench", "mqtt", *load, "--json"])
        yield f"publish QoS {qos}", found["comparisons"][0]["servers"][0]["figures"]["cpu_us"]["median"]


def _json_of(words: list[object]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [os.fspath(word) if isinstance(word, Path) else str(word) for word in words],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise BenchmarkError(f"{words[0]} {words[2]}: {last or f'exit code {done.returncode}'}")
    return json.loads(done.stdout)


def _compared(olds: list[float], news: list[float]) -> dict[str, float]:
    old, new = statistics.median(olds), statistics.median(news)
    return {"old_us": old, "new_us": new, "ratio": old / new}


def _print_table(result: dict[str, dict[str, float]]) -> None:
    table = simple_table()
    table.add_column("row", no_wrap=True)
    for heading in ("old cpu us", "new cpu us", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row, figures in result.items():
        table.add_row(row, f"{figures['old_us']:.3f}", f"{figures['new_us']:.3f}", f"{figures['ratio']:.3f}")
    print_tables(lambda console: console.print(table))
