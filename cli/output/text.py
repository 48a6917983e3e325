"""Sentences for a person, in lines as wide as the terminal: 80 columns in a file or a pipe, unless COLUMNS is set."""

import shutil
import textwrap
from typing import TextIO

from ..units import format_bytes, format_count

_WIDTH = 80
_INDENT = "  "


def width() -> int:
    """Return how many columns the output has."""
    return shutil.get_terminal_size((_WIDTH, 24)).columns


def wrapped(text: str) -> str:
    """Return a sentence in lines that fit; all but the first are indented. A word that is too long stays whole."""
    return textwrap.fill(
        text, width(), subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )


def fitted(line: str, stream: TextIO) -> str:
    """Return a line for `stream`: in lines that fit if it is a terminal, else as it is, as `grep` wants it."""
    return wrapped(line) if stream.isatty() else line


def print_text(text: str) -> None:
    """Print a sentence in lines that fit."""
    print(wrapped(text), flush=True)


def not_uploaded(segment_count: int, size_bytes: int, growing_records: int) -> str:
    """Return what a bucket lacks of a log: sealed segments, and the records of the one that grows."""
    parts = [f"{format_count(segment_count, 'segment')}, {format_bytes(size_bytes)}"] if segment_count else []
    if growing_records:
        parts.append(format_count(growing_records, "newest record"))
    return ", ".join(parts) or "nothing"
