"""Settings of the logs of a store that no process has open, read and changed in the catalogue alone.

No log is opened: that would recover it and delete what its old settings let expire, which the change may be meant to
prevent."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from timestone.config import LogConfig, with_settings
from timestone.disk.catalog import Catalog
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.disk.lock import StoreLock
from timestone.errors import NotAStore, UnknownLog
from timestone.format import names


class Configured(NamedTuple):
    """Settings of a log before and after a change."""

    before: LogConfig
    after: LogConfig


def settings_of_logs(store: Path) -> dict[tuple[str, int], LogConfig]:
    """Return the settings of each log in the catalogue by name and partition, also while a process owns the store.
    Empty without a catalogue. Raises CorruptLog, UnsupportedFormat, OSError."""
    path = store / names.CATALOG_NAME
    if not path.exists():
        return {}
    with closing(Catalog(path, read_only=True)) as catalog:
        return {log: row.config for log, row in catalog.logs().items()}


def configure_logs(
    store: Path, logs: Iterable[tuple[str, int]], settings: Mapping[str, Any]
) -> dict[tuple[str, int], Configured]:
    """Change settings of logs, fields of LogConfig, for all of the logs or none; durable on return. They apply from the
    next open of the store. For an open store, use `Log.configure`.

    Raises StoreLocked if a process owns the store, NotAStore without a catalogue, UnknownLog, ValueError or
    TypeError for an invalid setting, CorruptLog, UnsupportedFormat, OSError; nothing has changed then."""
    path = store / names.CATALOG_NAME
    if not path.exists():
        raise NotAStore(store, f"it has no {names.CATALOG_NAME}" if store.exists() else "it does not exist")
    # An owner has its own copy of the settings and writes that one back.
    lock = StoreLock(Files(), store / names.LOCK_NAME, Clock().boot_id())
    try:
        with closing(Catalog(path)) as catalog:
            return _changed(catalog, logs, settings)
    finally:
        lock.release()


def _changed(
    catalog: Catalog, logs: Iterable[tuple[str, int]], settings: Mapping[str, Any]
) -> dict[tuple[str, int], Configured]:
    rows = catalog.logs()
    changed = {}
    for log in logs:
        if log not in rows:
            known = tuple(names.log_folder(*one) for one in sorted(rows))
            raise UnknownLog(names.log_folder(*log), known)
        before = rows[log].config
        changed[log] = Configured(before, with_settings(before, settings))
    catalog.put_logs({log: rows[log]._replace(config=one.after) for log, one in changed.items()})
    return changed
