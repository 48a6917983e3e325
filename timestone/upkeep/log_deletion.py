"""Deletion of a whole log with its records and the stored state of its readers.

The order guarantees that a deleted log does not reappear, and that a later log of the same name has nothing of it:

1. one transaction of the catalogue removes the row of the log and notes that its folder is to be removed: from here on
  the log is deleted;
2. the folder is renamed to `.deleted` and the directory of the store is synced;
3. a second transaction removes the note and the stored state of the log, committed offsets above all;
4. the files are unlinked after a delay in which readers in other processes can open what they have listed.

The next open of the store completes an interrupted deletion. No log is created while the folder of a deleted one has
its name."""

import json
from collections.abc import Iterator
from pathlib import Path

from timestone.disk.catalog import Catalog
from timestone.disk.files import Files
from timestone.format import damage_report, names
from timestone.reading import named_readers
from timestone.upkeep import compaction, retention

SPACE = "deletions"
"""Namespace in the catalogue: `<log>-<partition>` of a folder to be removed."""
_KEPT_FOR_LOGS = (
    compaction.SPACE,
    damage_report.SPACE,
    names.INBOX_SPACE,
    named_readers.SPACE,
    retention.SPACE,
)
"""Namespaces whose keys are the folder of a log, or begin with it and a slash."""


class DeletedLogs:
    """Deleted logs whose folders still have their names. One caller at a time."""

    def __init__(self, files: Files, store: Path, catalog: Catalog) -> None:
        """Read the notes of earlier deletions. Raises OSError, CorruptLog."""
        self._files = files
        self._store = store
        self._catalog = catalog
        self._noted = set(catalog.items(SPACE))

    def __contains__(self, folder: str) -> bool:
        return folder in self._noted

    def note(self, name: str, partition: int, now_us: int) -> None:
        """Delete a log. Durable on return; `finish` does the rest. Raises OSError, and the log is not deleted."""
        folder = names.log_folder(name, partition)
        said = json.dumps({"deleted_us": now_us}).encode()
        self._catalog.remove_log(name, partition, SPACE, folder, said)
        self._noted.add(folder)

    def finish(self) -> Iterator[Path]:
        """Rename the folders of all deleted logs and yield those to remove. Raises OSError, and can be called again."""
        for name in sorted(self._noted):
            present = self._files.names(self._store)
            folder = None
            if name in present:
                folder = names.free_path(self._store / name, names.DELETED_SUFFIX, present)
                self._files.rename(self._store / name, folder)
            # Also if the last owner renamed it: it may have died before the rename was durable, and without the note
            # a folder that a power loss brings back would be a log.
            self._files.sync_directory(self._store)
            if folder is not None:
                yield folder
            self._catalog.remove_under(name, (SPACE, *_KEPT_FOR_LOGS))
            self._noted.remove(name)

    def left_over(self) -> list[Path]:
        """Return the folders that earlier owners have not removed. Raises OSError."""
        return [self._store / name for name in self._files.names(self._store) if names.is_deleted_log(name)]
