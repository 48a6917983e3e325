"""The tables as folders of plain Parquet files, for every reader that can read a folder.

Hard links to the data files of the newest commit and to no others. Compared in full each time, so that it does not
matter where the last publisher was killed.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from .ledger import State
from .tables import Table


class Folders:
    """Publishes each table as `<root>/<table>/[<partition>/]<file>`."""

    def __init__(self, root: Path, tables: Sequence[Table], *, keep_replaced: bool = False) -> None:
        """With `keep_replaced`, replaced files stay for as long as the ledger remembers them: for readers who know
        which files to read from elsewhere."""
        self._keep_replaced = keep_replaced
        self._root = root
        self._tables = tables

    def publish(self, state: State) -> None:
        """Replaced files go before new ones come: a reader of the folder may miss rows for a moment, which the next
        look brings back, but never counts one twice."""
        for table in self._tables:
            folder = self._root / table.name
            folder.mkdir(parents=True, exist_ok=True)
            wanted = {one.path for one in state.of(table.name)}
            there = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
            there = {path for path in there if not path.startswith("_")}  # a Delta log has such files too
            replaced = {path for name, path in state.replaced if name == table.name}
            for path in there - wanted - (replaced if self._keep_replaced else set()):
                (folder / path).unlink(missing_ok=True)
            for path in sorted(wanted - there):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                os.link(self._root / "_files" / table.name / path, folder / path)
