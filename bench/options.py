"""Options of several benchmarks, and their progress line."""

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from timestone_cli.errors import UsageError
from timestone_cli.input.parameters import COUNT, DIRECTORY, FILE, Parsed, count_from
from timestone_cli.output.progress import ProgressLine

from .errors import BenchmarkError

Progress = Callable[[str], None]
"""Shows the progress of a benchmark; an empty text clears the line for other output."""
POSITIVE = count_from(1)


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"expected a number from 0, got {text!r}")
    return value


AMOUNT = Parsed("number", _amount)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
plot_option: Decorator = click.option("--plot", metavar="FILE.png", type=FILE, help="Draw the rows as bars.")
quick_option: Decorator = click.option("--quick", is_flag=True, help="Give a rough answer in seconds.")
only_option: Decorator = click.option(
    "--only", metavar="WORD", default="", help="Only rows whose names have WORD, and their peers."
)


def directory_option(help: str = "Measure the disk that holds DIR.") -> Decorator:
    """Return `--dir`, for `working_directory`."""
    return click.option("--dir", "directory", metavar="DIR", type=DIRECTORY, default=".", help=help)


def repeat_option(default: int, help: str = "Runs of each row.", *, quick: int | None = None) -> Decorator:
    """Return `--repeat`; with another default for `--quick`, its value is None when it was not given."""
    if quick is None:
        return click.option("--repeat", metavar="N", type=POSITIVE, default=default, help=help)
    return click.option(
        "--repeat", metavar="N", type=POSITIVE, help=f"{help}  [default: {default}; with --quick: {quick}]"
    )


def warm_up_option(default: int, help: str) -> Decorator:
    """Return `--warm-up`, the turns in which Java compiles."""
    return click.option("--warm-up", metavar="N", type=COUNT, default=default, help=help)


def chosen_rows(word: str, names: Iterable[str], peer_of: Callable[[str], str]) -> list[str]:
    """Return the names that have `word`, for `--only`, and those of the rows that they are compared with, in order.
    Raises UsageError if there is none."""
    names = list(names)
    wanted = {name for name in names if word in name}
    if not wanted:
        raise UsageError(
            f"invalid --only: expected a part of a row's name ({'; '.join(names)}), got {word!r}"
        )
    while missing := {peer_of(name) for name in wanted} - wanted:
        wanted |= missing
    return [name for name in names if name in wanted]


def progress_line() -> Progress:
    """Return a function that shows the progress of the running command until it ends."""
    return click.get_current_context().with_resource(ProgressLine()).show


def plot_writer(path: Path | None, module: str) -> Callable[..., None] | None:
    """Return `write_plot` of a module, for `--plot`; it is imported before the measurement, not after. None without a
    file. Raises BenchmarkError."""
    if path is None:
        return None
    if importlib.util.find_spec("matplotlib") is None:
        raise BenchmarkError("--plot needs matplotlib: pip install '.[plot]' in a clone")
    if not path.absolute().parent.is_dir():
        raise BenchmarkError(f"{path.parent} is not a directory")
    draw: Callable[..., None] = importlib.import_module(module).write_plot
    return draw
