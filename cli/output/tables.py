"""Tables for a person: as wide as the terminal; in a file or a pipe as wide as they need."""

import os
import sys
from collections.abc import Callable

from rich.console import Console

_FILE_WIDTH = 160


def print_tables(fill: Callable[[Console], None]) -> None:
    """Print what `fill` gives a console, on standard output."""
    known_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if known_width else _FILE_WIDTH, highlight=False, emoji=False, markup=False)
    if console.is_terminal:
        fill(console)
        return
    with console.capture() as captured:
        fill(console)
    for line in captured.get().splitlines():
        print(line.rstrip())  # tables fill up their lines with blanks, which no file needs
