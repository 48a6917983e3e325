"""Last known state of each device, merged into its table as part of a commit. The one table that both the stream and
maintenance replace, so it is merged while no other process can commit; the rest of the work is done before."""

from collections.abc import Sequence

from .config import MessageConfig
from .data_file import DataFile
from .frames import Frames
from .ledger import Commit, FileKey
from .newest import newest
from .tables import Tables
from .warehouse import Advance, Warehouse, Work


class LastState:
    """Commits new messages together with the resulting states of their devices."""

    def __init__(self, warehouse: Warehouse, tables: Tables, message: MessageConfig, role: str) -> None:
        self._warehouse = warehouse
        self._tables = tables
        self._message = message
        self._role = role

    def commit(
        self,
        frames: Frames,
        action: str,
        work: Work,
        clean: Sequence[DataFile],
        *,
        removed: Sequence[FileKey] = (),
        progress: Advance | None = None,
    ) -> Commit:
        """Commit `work`, in which `clean` are the files of new messages."""
        last = self._tables.last
        if not clean:
            return self._warehouse.commit(action, [work], removed=removed, progress=progress)
        with self._warehouse.ledger.writing() as state, self._warehouse.work(self._role) as merged:
            files = state.of(last.name)
            known = frames.read(last, files)
            fresh = frames.read(self._tables.clean, clean, work).select(*known.columns)
            both = known.unionByName(fresh) if files else fresh
            frames.write(last, newest(both, self._message).coalesce(1), merged)
            gone = [*removed, *((one.table, one.path) for one in files)]
            return self._warehouse.commit_locked(
                state, action, [work, merged], removed=gone, progress=progress
            )
