"""Names of the files that are opened, counted by the interpreter itself, below all code of the engine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_listening: list[list[str]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _listening:
        for names in _listening:
            names.append(str(arguments[0]))


sys.addaudithook(_hook)  # permanently: Python cannot remove an audit hook


@contextmanager
def opened_files(suffix: str) -> Iterator[list[str]]:
    """Return the names of files with this suffix that are opened inside the block, as often as they are."""
    names: list[str] = []
    _listening.append(names)
    try:
        yield names
    finally:
        _listening[:] = [one for one in _listening if one is not names]
        names[:] = [name.rpartition("/")[2] for name in names if name.endswith(suffix)]
