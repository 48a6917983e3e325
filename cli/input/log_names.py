"""Lookup of the store and the log named on a command line, with suggestions if there is none."""

import difflib
from pathlib import Path

from timestone.disk.files import Files
from timestone.format.names import CATALOG_NAME
from timestone.format.store_listing import foreign_name
from timestone.view import LogView, StoreView

from ..errors import CommandError, UsageError


def check_new_store(directory: Path) -> None:
    """Raise UsageError if a store would be created among other files: the path is mistyped, most likely."""
    if directory.is_dir() and (foreign := foreign_name(Files(), directory)):
        raise UsageError(
            f"invalid store {directory}: it has other files, such as {foreign}, and no {CATALOG_NAME}"
        )


def open_log(view: StoreView, name: str, partition: int) -> LogView:
    """Return the log of that name and partition. Raises CommandError with the nearest name if there is none."""
    known_partitions(view, name, partition)
    return view.log(name, partition)


def known_partitions(view: StoreView, name: str, partition: int | None = None) -> list[int]:
    """Return the partitions of a log, or the requested one. Raises CommandError with the nearest name if there is none.
    Opens no log."""
    known = view.log_names(server=True)
    partitions = [number for log, number in known if log == name]
    if partitions and partition is None:
        return partitions
    if partition in partitions:
        return [partition]
    if partitions:
        raise CommandError(f"log {name!r} has no partition {partition}; it has {_listed(partitions)}")
    folders = {f"{log}-{number}": (log, number) for log, number in known}
    if name in folders:
        log, number = folders[name]
        raise CommandError(
            f"no log {name!r}; for the folder of that name say {log!r} and --partition {number}"
        )
    names = sorted({log for log, _ in known})
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        raise CommandError(f"no log {name!r} in {view.location}; did you mean {near[0]!r}?")
    raise CommandError(
        f"no log {name!r} in {view.location}; " + (f"it has {_listed(names)}" if names else "it has no logs")
    )


def _listed(values: list[str] | list[int]) -> str:
    shown = ", ".join(str(value) for value in values[:10])
    return shown + (f" and {len(values) - 10} more" if len(values) > 10 else "")
