"""Modules of ours that need a library which is installed only on demand."""

import importlib
from types import ModuleType


class MissingExtra(ValueError):
    """A setting asks for something whose library is not installed. The text says how to install it."""


def load(module: str, *, extra: str, what: str) -> ModuleType:
    """Import `module`, which serves `what` and needs the libraries of the extra `extra`. Raises MissingExtra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == __name__.partition(".")[0]:
            raise
        raise MissingExtra(f"{what} needs the library {error.name!r}: install timestone[{extra}]") from None
