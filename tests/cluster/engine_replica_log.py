"""A replicated log in the files of the engine, and what the protocol says of it in its own terms."""

import numpy as np

from timestone.config import Ack
from timestone.kernel.entries import ENTRY
from timestone.record import FLAG_REMOVED
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.shard.repair import opened

SHIP_BYTES = 200
"""Little, so that frames of several sizes are shipped."""


class EngineReplicaLog:
    """One log of one replica. Offsets are the engine's."""

    def __init__(self, store: Store, name: str) -> None:
        log = store.log(name)
        assert isinstance(log, ReplicatedLog)
        self.engine = log

    @property
    def start(self) -> int:
        return self.engine.local_start_offset

    @property
    def end(self) -> int:
        return self.engine.written_offset

    def state(self) -> ReplicaLog:
        """Return what the protocol has to know of the log after a start: all that was read is flushed first."""
        state = opened(self.engine, is_damaged=False)
        assert not state.damaged, "a crash looks like damage"
        return state

    def append(self, topics: list[str], payloads: list[bytes]) -> None:
        """Write records of a client, without a flush."""
        batch = WriteBatch(payloads, [self.engine.topic_id(topic) for topic in topics])
        # Not `submit`, which leaves flushes to a thread: a seed would not repeat a run.
        super(ReplicatedLog, self.engine)._append(batch, Ack.WRITTEN)

    def expire(self, start: int) -> None:
        """Delete whole segments below an offset, now."""
        self.engine.roll()
        self.engine.seal_rolled()
        self.engine.expire(start)
        self.engine.apply_retention()

    def compact(self, stable: int) -> int:
        """Remove what later records replace, now, and tombstones below an offset. Return below which offset no record
        has an older one of its topic."""
        self.engine.roll()
        self.engine.seal_rolled()
        self.engine.drop_tombstones(stable)
        self.engine.apply_compaction()
        return self.engine.clean_offset

    def held(self, end: int) -> dict[int, tuple[str, bytes]]:
        """Return topics and payloads by offset, of the records from the start to an offset, shown or not."""
        found: dict[int, tuple[str, bytes]] = {}
        offset = self.start
        while offset < end:
            stored = self.engine.read_stored(offset, end, max_bytes=SHIP_BYTES)
            at = 0
            for entry in np.frombuffer(stored.entries, dtype=ENTRY):
                size = int(entry["length"])
                if not int(entry["flags"]) & FLAG_REMOVED:
                    found[offset] = (
                        self.engine.topic_name(int(entry["topic"])) or "",
                        stored.data[at : at + size],
                    )
                at, offset = at + size, offset + 1
        return found

    def read(self, first: int, end: int) -> dict[int, tuple[str, bytes]]:
        """Return topics and payloads by offset, from the files or the tail, as readers get them; only what is shown."""
        found: dict[int, tuple[str, bytes]] = {}
        while first < end:
            batch = self.engine.read(first, max_records=end - first)
            assert batch.next_offset > first
            found |= {record.offset: (record.topic or "", bytes(record.payload)) for record in batch}
            first = batch.next_offset
        return found
