"""Lookup of the installed fronts, which are found by their entry points."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from timestone.fronts import ENTRY_POINT_GROUP, Front

from ..errors import CommandError


@cache  # reading the entry points of all installed packages takes milliseconds
def installed_fronts() -> dict[str, type[Front]]:
    """Return the front classes by name, sorted by name; empty if none is installed. Raises CommandError that names the
    front if one cannot be imported."""
    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return {entry.name: _load(entry) for entry in found}


def _load(entry: EntryPoint) -> type[Front]:
    try:
        front: type[Front] = entry.load()
    except (ImportError, AttributeError) as error:
        raise CommandError(f"the front {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error
    return front
