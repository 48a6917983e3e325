"""Last known state of each device, merged into its table. The one table of which both the stream and maintenance
replace every row, so it is merged again when the other has replaced it in between."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from ..config import MessageConfig
from ..delta.snapshot import Snapshot
from ..delta.warehouse import Warehouse, Work
from ..errors import Conflict
from .frames import Frames
from .newest import newest

_TRIES = 20


class LastState:
    """Merges new messages into the states of their devices."""

    def __init__(self, warehouse: Warehouse, message: MessageConfig) -> None:
        self._warehouse = warehouse
        self._table = warehouse.tables.last
        self._message = message

    def write(self, frames: Frames, snapshot: Snapshot, fresh: DataFrame, work: Work) -> None:
        """Write the states of `snapshot` after the messages `fresh`."""
        files = snapshot.files()
        both = frames.read(self._table, files)
        fresh = fresh.select(*both.columns)
        merged = newest(both.unionByName(fresh) if files else fresh, self._message)
        frames.write(self._table, merged.coalesce(1), work)

    def commit(
        self, frames: Frames, snapshot: Snapshot, fresh: DataFrame, work: Work, marks: Mapping[str, int]
    ) -> None:
        """Commit what `write` has written; written again if the table was replaced since. Raises Conflict if another
        process has committed the batch of `marks`."""
        for _ in range(_TRIES):
            try:
                # One more mark: two processes that find the table empty have no file in common.
                work.commit(snapshot, {**marks, "last": (snapshot.mark("last") or 0) + 1}, snapshot.files())
                return
            except Conflict:
                work.discard(work.of(self._table))
                snapshot = Snapshot(self._table, snapshot.location)
                if snapshot.number >= marks.get("", snapshot.number + 1):
                    raise
                self.write(frames, snapshot, fresh, work)
        raise Conflict(f"{snapshot.location.uri}: replaced by others {_TRIES} times in a row")
