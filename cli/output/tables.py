"""Tables for a person, as wide as `text.width`."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from rich import box
from rich.console import Console
from rich.table import Column, Table

from .text import width

_UNLIMITED = 10_000


def simple_table() -> Table:
    """Return an empty table in the style of all of them: a line under the headings, two blanks between columns."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


def fits(console: Console, table: Table, *, indent: int = 0) -> bool:
    """Return whether a table fits the console without wrapping or cutting a cell."""
    natural = console.measure(table, options=console.options.update(max_width=_UNLIMITED)).maximum
    return natural + indent <= console.width


def print_split(console: Console, table: Table, *, attached: Collection[str] = ()) -> None:
    """Print a table in pieces below each other that fit, each with the first column.

    A column whose heading is in `attached` stays with the one before it.
    """
    first, *others = table.columns
    groups: list[list[Column]] = []
    for column in others:
        if column.header in attached and groups:
            groups[-1].append(column)
        else:
            groups.append([column])
    piece = [first]
    for group in groups:
        if len(piece) > 1 and not fits(console, _piece(table, piece + group)):
            console.print(_piece(table, piece))
            console.print()
            piece = [first]
        piece += group
    console.print(_piece(table, piece))


def _piece(table: Table, columns: Sequence[Column]) -> Table:
    """Return a table of these columns, with the rows of `table`."""
    piece = simple_table()
    piece.columns = [replace(column, _index=index) for index, column in enumerate(columns)]
    piece.rows = table.rows
    return piece


def print_tables(fill: Callable[[Console], None]) -> None:
    """Print what `fill` gives a console, on standard output."""
    console = Console(width=width(), highlight=False, emoji=False, markup=False)
    if console.is_terminal:
        fill(console)
        return
    with console.capture() as captured:
        fill(console)
    for line in captured.get().splitlines():
        print(line.rstrip())  # tables fill up their lines with blanks, which no file needs
