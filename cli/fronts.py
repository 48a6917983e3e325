"""Finds the fronts that are installed. Nothing here knows any of them: they announce themselves as entry points."""

import logging
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Protocol

from timestone.store import Store

from .errors import CommandError

GROUP = "timestone.fronts"


class Front(Protocol):
    """What `serve` needs of a front; the contract that every class under the entry point group fulfils."""

    name: ClassVar[str]

    @classmethod
    def settings(cls) -> type: ...
    def __init__(self, store: Store, settings: Any, *, log: logging.Logger) -> None: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def describe(self) -> list[str]: ...
    def status(self) -> dict[str, Any]: ...


def installed_fronts() -> dict[str, type[Front]]:
    """The front classes by name, in the order of their names; empty when none is installed.

    Raises CommandError naming the front when one is installed but cannot be imported.
    """
    return {
        entry.name: _load(entry) for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    }


def _load(entry: EntryPoint) -> type[Front]:
    try:
        front: type[Front] = entry.load()
    except (ImportError, AttributeError) as error:
        raise CommandError(f"the front {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error
    return front
