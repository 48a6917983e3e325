"""Finds the log that a command line names, and says what there is when it names none."""

import difflib

from timestone.view import LogView, StoreView

from ..errors import CommandError


def open_log(view: StoreView, name: str, partition: int) -> LogView:
    """The log of that name and partition; CommandError with the nearest name when there is none."""
    known_partitions(view, name, partition)
    return view.log(name, partition)


def known_partitions(view: StoreView, name: str, partition: int | None = None) -> list[int]:
    """The partitions of a log, or the one that was asked for; CommandError with the nearest name when there is none.
    Opens no log."""
    known = view.log_names()
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
        raise CommandError(f"no log {name!r} in {view.path}; did you mean {near[0]!r}?")
    raise CommandError(
        f"no log {name!r} in {view.path}; " + (f"it has {_listed(names)}" if names else "it has no logs")
    )


def _listed(values: list[str] | list[int]) -> str:
    shown = ", ".join(str(value) for value in values[:10])
    return shown + (f" and {len(values) - 10} more" if len(values) > 10 else "")
