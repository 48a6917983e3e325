"""A replicated log in the files of the engine, and what the protocol says of it in its own terms."""

from dataclasses import dataclass

import numpy as np

from timestone.config import Ack
from timestone.kernel.entries import ENTRY
from timestone.record import FLAG_REMOVED
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch
from timestone_cluster.frames import Records
from timestone_cluster.replica_log import ReplicaLog

_SHIP_BYTES = 200
"""Little, so that frames of several sizes are shipped."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Records as frames carry them."""

    entries: bytes
    data: bytes
    begins_segment: bool


class EngineReplicaLog:
    """One log of one replica. Offsets are the engine's."""

    def __init__(self, store: Store, name: str) -> None:
        log = store.log(name)
        assert isinstance(log, ReplicatedLog)
        self._log = log
        self._log.sync()

    @property
    def start(self) -> int:
        return self._log.local_start_offset

    @property
    def end(self) -> int:
        return self._log.written_offset

    @property
    def count(self) -> int:
        return len(self._log)

    @property
    def names_count(self) -> int:
        return self._log.names_count

    def state(self) -> ReplicaLog:
        """Return what the protocol has to know of the log after a start: all that was read is flushed first."""
        assert self._log.is_whole, "a crash looks like damage"
        return ReplicaLog.opened(
            start=self._log.start_offset,
            end=self._log.synced_offset,
            names=self._log.names_count,
            committed=self._log.end_offset,
            runs=self._log.generations(),
        )

    @property
    def flushed(self) -> int:
        return self._log.synced_offset

    @property
    def ceiling(self) -> int:
        return self._log.ceiling

    def lead(self, generation: int, least_offset: int = 0) -> None:
        self._log.lead(generation, least_offset)

    def follow(self) -> None:
        self._log.follow()

    def append(self, topics: list[str], payloads: list[bytes]) -> None:
        """Write records of a client, without a flush."""
        batch = WriteBatch(payloads, [self._log.topic_id(topic) for topic in topics])
        # Not `submit`, which leaves flushes to a thread: a seed would not repeat a run.
        super(ReplicatedLog, self._log)._append(batch, Ack.WRITTEN)

    def append_records(self, frame: Records) -> None:
        """Write records of the leader, without a flush."""
        assert isinstance(frame.data, Stored)
        self._log.append_replica(
            frame.last_generation,
            frame.first,
            frame.data.entries,
            frame.data.data,
            frame.names_first,
            frame.names,
            begins_segment=frame.data.begins_segment,
        )

    def stored(self, first: int, end: int) -> tuple[int, Stored, int]:
        """Return the end of some records from an offset on, what frames carry of them, and the count of topic names
        that they and those in front of them use, if that is more than those in front use."""
        found = self._log.read_stored(first, end, max_bytes=_SHIP_BYTES)
        return found.end, Stored(found.entries, found.data, found.begins_segment), found.names

    def name(self, number: int) -> str:
        return self._log.topic_name(number) or ""

    def flush(self) -> int:
        """Make everything durable that was written, and return its end."""
        return self._log.sync()

    def cut(self, offset: int, names: int, *, is_given_up: bool = False) -> None:
        """Remove the records from an offset on, durably."""
        self._log.cut(offset, names, is_given_up=is_given_up)

    def reset(self, start: int) -> None:
        self._log.reset(start)

    def show(self, committed: int) -> None:
        self._log.show(committed)

    def expire(self, start: int) -> None:
        """Delete whole segments below an offset, now."""
        self._log.roll()
        self._log.seal_rolled()
        self._log.expire(start)
        self._log.apply_retention()

    def compact(self, stable: int) -> int:
        """Remove what later records replace, now, and tombstones below an offset. Return below which offset no record
        has an older one of its topic."""
        self._log.roll()
        self._log.seal_rolled()
        self._log.drop_tombstones(stable)
        self._log.apply_compaction()
        return self._log.clean_offset

    def held(self, end: int) -> dict[int, tuple[str, bytes]]:
        """Return topics and payloads by offset, of the records from the start to an offset, shown or not."""
        found: dict[int, tuple[str, bytes]] = {}
        offset = self.start
        while offset < end:
            stored = self._log.read_stored(offset, end, max_bytes=_SHIP_BYTES)
            at = 0
            for entry in np.frombuffer(stored.entries, dtype=ENTRY):
                size = int(entry["length"])
                if not int(entry["flags"]) & FLAG_REMOVED:
                    found[offset] = self.name(int(entry["topic"])), stored.data[at : at + size]
                at, offset = at + size, offset + 1
        return found

    def read(self, first: int, end: int) -> dict[int, tuple[str, bytes]]:
        """Return topics and payloads by offset, from the files or the tail, as readers get them; only what is shown."""
        found: dict[int, tuple[str, bytes]] = {}
        while first < end:
            batch = self._log.read(first, max_records=end - first)
            assert batch.next_offset > first
            found |= {record.offset: (record.topic or "", bytes(record.payload)) for record in batch}
            first = batch.next_offset
        return found
