"""Publication as folders of plain Parquet files, for every reader of folders. Hard links to exactly the data files of
the newest commit. Compared in full each time, so that it does not matter where the last publisher was killed."""

import os
from collections.abc import Sequence
from pathlib import Path

from timestone.disk import access

from .ledger import State
from .tables import Table


class Folders:
    """Publisher of each table as `<root>/<table>/[<partition>/]<file>`."""

    def __init__(self, root: Path, tables: Sequence[Table], *, keep_replaced: bool = False) -> None:
        """keep_replaced: keep replaced files as long as the ledger has them, for readers that get the list of files
        from elsewhere."""
        self._keep_replaced = keep_replaced
        self._root = root
        self._tables = tables

    def publish(self, state: State) -> None:
        """Publish a state. Replaced files are removed before new ones are added: a reader of the folder may miss rows
        for a moment, but never counts one twice."""
        for table in self._tables:
            folder = self._root / table.name
            access.make_folders(folder)
            wanted = {one.path for one in state.of(table.name)}
            there = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
            there = {path for path in there if not path.startswith("_")}  # a Delta log has such files too
            replaced = {path for name, path in state.replaced if name == table.name}
            for path in there - wanted - (replaced if self._keep_replaced else set()):
                (folder / path).unlink(missing_ok=True)
            for path in sorted(wanted - there):
                access.make_folders((folder / path).parent)
                os.link(self._root / "_files" / table.name / path, folder / path)
