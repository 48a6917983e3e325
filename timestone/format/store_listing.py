"""Which logs the directory of a store has, told from names alone. Folders of strangers are left alone, also those that
are called like one: `release-2`."""

from pathlib import Path

from timestone.disk.files import Files
from timestone.errors import NotAStore
from timestone.format import names
from timestone.format.folder_listing import is_of_a_log


def listed_logs(files: Files, store: Path) -> list[tuple[str, int]]:
    """Name and partition of each log that has a folder, sorted. Raises OSError."""
    parsed = ((names.parse_log_folder(name), store / name) for name in files.names(store))
    return sorted(log for log, folder in parsed if log is not None and _is_log(files, folder))


def _is_log(files: Files, folder: Path) -> bool:
    try:
        # Nearly all have one, and of ten thousand logs nobody wants to list each.
        if (folder / names.TOPICS_NAME).is_file():
            return True
        return folder.is_dir() and is_of_a_log(files.names(folder))
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
