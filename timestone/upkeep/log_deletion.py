"""How a whole log goes, with all its records and what is kept for its readers.

The order is the promise that a deleted log does not come back, and that the next one of its name has nothing of it:

1. one transaction of the catalogue removes the log's row and notes that its folder is to go: now the log is deleted,
   whatever happens;
2. the folder is renamed to `.deleted` and the store's directory is synced;
3. another transaction removes the note and what the engine has kept for the log, committed offsets above all;
4. its files are unlinked, after a delay in which readers of other processes can still open what they have listed.

The next open of the store finishes what was cut short. No log is made as long as the folder of a deleted one has its
name."""

import json
from collections.abc import Iterator
from pathlib import Path

from timestone.disk.catalog import Catalog
from timestone.disk.files import Files
from timestone.format import damage_report, names
from timestone.reading import named_readers
from timestone.upkeep import compaction, retention

SPACE = "deletions"
"""The space of the catalogue's documents: `<log>-<partition>` of a folder that is to go."""
_KEPT_FOR_LOGS = (
    compaction.SPACE,
    damage_report.SPACE,
    names.INBOX_SPACE,
    named_readers.SPACE,
    retention.SPACE,
)
"""Spaces whose keys are the folder of a log, or begin with that and a slash."""


class DeletedLogs:
    """The logs of a store that are deleted and whose folders still have their names. One caller at a time."""

    def __init__(self, files: Files, store: Path, catalog: Catalog) -> None:
        """Raises OSError, CorruptLog."""
        self._files = files
        self._store = store
        self._catalog = catalog
        self._noted = set(catalog.items(SPACE))

    def __contains__(self, folder: str) -> bool:
        return folder in self._noted

    def note(self, name: str, partition: int, now_us: int) -> None:
        """Delete a log: that is durable when this returns, and `finish` does the rest. Raises OSError: it was not
        deleted."""
        folder = names.log_folder(name, partition)
        said = json.dumps({"deleted_us": now_us}).encode()
        self._catalog.remove_log(name, partition, SPACE, folder, said)
        self._noted.add(folder)

    def finish(self) -> Iterator[Path]:
        """Free the names of all that are deleted; yields the folders that are to be removed. Raises OSError, and can
        be called again."""
        for name in sorted(self._noted):
            present = self._files.names(self._store)
            folder = None
            if name in present:
                folder = names.deleted_log_path(self._store / name, present)
                self._files.rename(self._store / name, folder)
            # Also when the last owner has renamed it: it may have died before that was durable, and without the note
            # a folder that a power loss brings back is a log.
            self._files.sync_directory(self._store)
            if folder is not None:
                yield folder
            self._catalog.remove_under(name, (SPACE, *_KEPT_FOR_LOGS))
            self._noted.remove(name)

    def left_over(self) -> list[Path]:
        """The folders that earlier owners have not removed. Raises OSError."""
        return [self._store / name for name in self._files.names(self._store) if names.is_deleted_log(name)]
