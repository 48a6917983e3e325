"""Which logs the directory of a store has, told from names alone. Folders of strangers are left alone, also those that
are called like one: `release-2`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from timestone.disk.files import Files
from timestone.errors import NotAStore
from timestone.format import names
from timestone.format.folder_listing import is_begun, is_of_a_log

LogKey = tuple[str, int]
"""The name of a log, and its partition."""


def listed_logs(
    files: Files, store: Path, is_made: Callable[[LogKey], bool] = lambda log: True
) -> list[LogKey]:
    """Name and partition of each log that has a folder, sorted. `is_made` decides about a folder without anything in
    it that tells of a log: one that is being made, or one that has lost all its files. Raises OSError."""
    parsed = ((names.parse_log_folder(name), store / name) for name in files.names(store))
    return sorted(
        log for log, folder in parsed if log is not None and _is_log(files, folder, partial(is_made, log))
    )


def _is_log(files: Files, folder: Path, is_made: Callable[[], bool]) -> bool:
    try:
        # Nearly all have one, and of ten thousand logs nobody wants to list each.
        if (folder / names.TOPICS_NAME).is_file():
            return True
        if not folder.is_dir() or not is_of_a_log(present := files.names(folder)):
            return False
        return not is_begun(present) or is_made()
    except FileNotFoundError:
        return False  # deleted in between
    except PermissionError:
        return True  # whoever opens it is told why that cannot be


def logs_of_store(files: Files, store: Path) -> list[tuple[str, int]]:
    """The same of a directory that has to be a store. Raises NotAStore, OSError."""
    if not store.is_dir():
        raise NotAStore(store, "it is not a directory" if store.exists() else "it does not exist")
    logs = listed_logs(files, store)
    if not logs and not (store / names.CATALOG_NAME).exists():
        raise NotAStore(store, f"it has neither logs nor a {names.CATALOG_NAME}")
    return logs
