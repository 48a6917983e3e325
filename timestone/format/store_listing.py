"""Logs in the directory of a store by folder names. Foreign folders are ignored, also those named like a log:
`release-2`."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from timestone.disk.files import Files
from timestone.errors import NotAStore
from timestone.format import names
from timestone.format.folder_listing import is_begun, is_of_a_log

_OF_A_FILE_SYSTEM = "lost+found"

LogKey = tuple[str, int]
"""Name and partition of a log."""


def listed_logs(
    files: Files, store: Path, is_made: Callable[[LogKey], bool] = lambda log: True
) -> list[LogKey]:
    """Return name and partition of each log that has a folder, sorted. is_made: decides about a folder without any
    file of a log, which is being created or has lost all files. Raises OSError."""
    parsed = ((names.parse_log_folder(name), name) for name in files.names(store))
    return sorted(
        log for log, name in parsed if log is not None and _is_log(files, store, name, partial(is_made, log))
    )


def is_listed(
    files: Files, store: Path, log: LogKey, is_made: Callable[[LogKey], bool] = lambda log: True
) -> bool:
    """Return whether `listed_logs` has a log, without a look at the others. Raises OSError."""
    folder = names.log_folder(*log)
    return names.parse_log_folder(folder) == log and _is_log(files, store, folder, partial(is_made, log))


def _is_log(files: Files, store: Path, name: str, is_made: Callable[[], bool]) -> bool:
    try:
        # Nearly all have one; this avoids listing ten thousand folders. As text: paths would take most of the time.
        if os.path.isfile(f"{store}/{name}/{names.TOPICS_NAME}"):  # noqa: PTH113
            return True
        folder = store / name
        if not folder.is_dir() or not is_of_a_log(present := files.names(folder)):
            return False
        return not is_begun(present) or is_made()
    except FileNotFoundError:
        return False  # deleted in between
    except PermissionError:
        return True  # opening it reports the reason


def logs_of_store(files: Files, store: Path) -> list[tuple[str, int]]:
    """Return the same for a directory that must be a store. Raises NotAStore, OSError."""
    if not store.is_dir():
        raise NotAStore(store, "it is not a directory" if store.exists() else "it does not exist")
    logs = listed_logs(files, store)
    if not logs and not (store / names.CATALOG_NAME).exists():
        raise NotAStore(store, f"it has neither logs nor a {names.CATALOG_NAME}")
    return logs


def foreign_name(files: Files, store: Path) -> str | None:
    """Return a name in a directory that shows that it holds something else than a store. None if it is empty, has a
    log, or has a file that every start makes first. Raises OSError."""
    present = files.names(store)
    if any(name.startswith((names.LOCK_NAME, names.CATALOG_NAME)) for name in present):
        return None
    foreign = next((name for name in present if not name.startswith(".") and name != _OF_A_FILE_SYSTEM), None)
    return foreign if foreign and not listed_logs(files, store) else None
