"""Finds the fronts that are installed. Nothing here knows any of them: they announce themselves as entry points."""

from importlib.metadata import EntryPoint, entry_points

from timestone.fronts import ENTRY_POINT_GROUP, Front

from ..errors import CommandError


def installed_fronts() -> dict[str, type[Front]]:
    """The front classes by name, in the order of their names; empty when none is installed.

    Raises CommandError naming the front when one is installed but cannot be imported.
    """
    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return {entry.name: _load(entry) for entry in found}


def _load(entry: EntryPoint) -> type[Front]:
    try:
        front: type[Front] = entry.load()
    except (ImportError, AttributeError) as error:
        raise CommandError(f"the front {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error
    return front
