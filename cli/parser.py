"""The parser of the command line: complaints of one line, and arguments that are declared when they are needed."""

import argparse
import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from .errors import EXIT_USAGE
from .units import parse_count


def given_path(text: str) -> Path:
    """The type of an argument that is a path. None at all is refused: it comes from a variable of the shell that nobody
    has set, and would mean the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def given_count(text: str) -> int:
    """The type of an argument that is a whole number from 0 on."""
    try:
        value = parse_count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """As argparse has it, with room for the longest command: it counts without the indent, and has its help below."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        for each in self._iter_indented_subactions(action):
            longest = self._current_indent + len(str(each.metavar))
            self._action_max_length = max(self._action_max_length, longest)


class CommandParser(argparse.ArgumentParser):
    """A parser of a command; parsers of inner commands are of this class as well."""

    def __init__(self, **options: Any) -> None:
        # Abbreviated options would change their meaning whenever an option is added.
        super().__init__(**options, allow_abbrev=False, formatter_class=_HelpFormatter)
        self.fill: Callable[[argparse.ArgumentParser], None] | None = None
        """Declares the arguments. Called when this parser is the one that is used, so that a command which is only
        listed does not have to be imported."""
        self.scattered: str | None = None
        """An argument that is a list of words, and has also those that stand behind an option: argparse gives it only
        what stands together."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse has it, except that an argument nobody knows is an error, with the nearest that is known."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        found, unknown = super().parse_known_args(args, namespace)
        if self.scattered is not None:
            getattr(found, self.scattered).extend(word for word in unknown if not word.startswith("-"))
            unknown = [word for word in unknown if word.startswith("-")]
        if unknown:
            self.error(f"unknown argument {unknown[0]!r}{self._nearest(unknown[0])}")
        return found, unknown

    def print_help(self, file: Any = None) -> None:
        """As argparse has it, except that what cannot be written raises OSError."""
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line and exit with EXIT_USAGE."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see `{self.prog} --help`)\n")

    def _nearest(self, word: str) -> str:
        known = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", self.format_help())
        near = difflib.get_close_matches(word.partition("=")[0], known, n=1)
        return f"; did you mean {near[0]}?" if near else ""
