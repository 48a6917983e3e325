"""Options that several benchmarks have, and what is wrong with their values."""

import argparse
import importlib
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path

from .errors import BenchmarkError


def positive(text: str) -> int:
    """The type of an option that counts something. Raises ArgumentTypeError."""
    try:
        value = int(text.replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def amount(text: str) -> float:
    """The type of an option that measures something: a number from 0 on. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value


def add_directory(parser: argparse.ArgumentParser) -> None:
    """`--dir`, for `working_directory`."""
    parser.add_argument(
        "--dir", type=Path, default=Path(), metavar="DIR", help="measure the disk that holds DIR (default: .)"
    )


def plot_writer(path: Path | None, module: str) -> Callable[..., None] | None:
    """The function that draws into the file of `--plot`, `write_plot` of a module; found before an hour of measuring,
    not after. None without a file. Raises BenchmarkError."""
    if path is None:
        return None
    if importlib.util.find_spec("matplotlib") is None:
        raise BenchmarkError("--plot needs matplotlib: pip install 'timestone[plot]'")
    if not path.absolute().parent.is_dir():
        raise BenchmarkError(f"{path.parent} is not a directory")
    draw: Callable[..., None] = importlib.import_module(module).write_plot
    return draw
