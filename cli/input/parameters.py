"""Kinds of values on the command line: how they are read, and what a shell completes."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from timestone.settings_schema import COUNTED_MOST

from ..units import parse_bytes, parse_count, parse_duration

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Value = TypeVar("Value")


class Parsed(click.ParamType[Value]):
    """A value that a function reads from text. The function raises ValueError with the reason."""

    def __init__(self, name: str, parse: Callable[[str], Value], *, completes: str = "") -> None:
        self.name = name
        self._parse = parse
        self._completes = completes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value; a default may be one already."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Let the shell complete paths; nothing for other values."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell asks for this

        return [CompletionItem(incomplete, type=self._completes)] if self._completes else []


def _path(text: str) -> Path:
    if not text:  # from an unset variable; it would mean the working directory
        raise ValueError("expected a path, got an empty text")
    return Path(text)


DIRECTORY = Parsed("directory", _path, completes="dir")
STORE_OR_BUCKET: Parsed[Path | str] = Parsed(
    "directory", lambda text: text if "://" in text else _path(text), completes="dir"
)
"""The path of a store, or the URL of a bucket."""
FILE = Parsed("file", _path, completes="file")


def count_from(low: int, high: int | None = None) -> Parsed[int]:
    """Return the type of a whole number from `low`, up to `high` if given; underscores may group its digits."""
    expected = f"a whole number from {low}" + ("" if high is None else f" to {high}")

    def parse(text: str) -> int:
        try:
            value = parse_count(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise ValueError(f"expected {expected}, got {text!r}")
        return value

    return Parsed("count", parse)


COUNT = count_from(0)


def duration_ms(unit: str) -> Parsed[int]:
    """Return the type of a time that is read in milliseconds; a number without a unit counts `unit`."""
    return Parsed("duration", lambda text: _from_0(parse_duration(_with_unit(text, unit), "ms"), text))


def size_bytes(unit: str) -> Parsed[int]:
    """Return the type of a size that is read in bytes; a number without a unit counts `unit`."""
    return Parsed("size", lambda text: _from_0(parse_bytes(_with_unit(text, unit)), text))


def _with_unit(text: str, unit: str) -> str:
    return text if not text.strip() or text.strip()[-1:].isalpha() else text + unit


def _from_0(value: int, text: str) -> int:
    if value < 0:
        raise ValueError(f"expected a value from 0, got {text!r}")
    if value > COUNTED_MOST:
        raise ValueError(f"expected at most 2^63 - 1 in its unit, got {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"expected a number of seconds above 0, got {text!r}")
    return value


SECONDS = Parsed("float", _seconds)
"""How long a command waits."""
