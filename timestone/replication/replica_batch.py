"""Records that another replica has written: a batch whose timestamps and checksums are given."""

from typing import Self

import numpy as np

from timestone.kernel import loops
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, NO_TOPIC, Entries
from timestone.kernel.entry_checksum import EntrySeal
from timestone.reading.stored_bytes import StoredBytes
from timestone.record import FLAG_REMOVED
from timestone.writing.write_batch import WriteBatch


class ReplicaBatch(WriteBatch):
    """Consecutive records of a leader. Positions and entry checksums are those of the own segment."""

    __slots__ = ("has_removed", "source")
    source: Entries
    """The leader's entries, of which time, topic, flags and the checksum of the bytes are kept."""
    has_removed: bool
    """Whether compaction has removed some of them from the leader's log."""

    @classmethod
    def received(cls, entries: bytes, data: bytes, topic_count: int) -> Self:
        """Build a batch of entries as the leader has them and the stored bytes of all records. topic_count: number of
        topics that the records may use. Raises ValueError for anything that no leader can have written."""
        if not entries or len(entries) % ENTRY_BYTES:
            raise ValueError(
                f"invalid entries: expected a multiple of {ENTRY_BYTES} bytes, got {len(entries)}"
            )
        source = np.frombuffer(bytearray(entries), dtype=ENTRY)  # numpy would copy it field by field
        lengths, times, topics = source["length"], source["timestamp_us"], source["topic"]
        ends = lengths.cumsum(dtype=np.int64)
        source["position"] = ends - lengths
        if ends[-1] != len(data) or loops.proven_count(source, data, 0) != len(source):
            raise ValueError("invalid records: their bytes do not match their checksums")
        if times[0] <= 0 or np.count_nonzero(times[1:] < times[:-1]):
            raise ValueError("invalid records: expected times that never decrease")
        if np.count_nonzero((topics >= topic_count) & (topics != NO_TOPIC)):
            raise ValueError(f"invalid records: expected topic ids below {topic_count}")
        if np.count_nonzero(source["header_length"] > lengths):
            raise ValueError("invalid records: a header block is longer than its record")
        removed = (source["flags"] & FLAG_REMOVED) != 0
        has_removed = bool(np.count_nonzero(removed))
        if has_removed and (removed & ((lengths > 0) | (topics != NO_TOPIC))).any():
            raise ValueError("invalid records: a removed one has bytes or a topic")
        batch = cls.__new__(cls)
        batch.source, batch.has_removed = source, has_removed
        batch.count, batch.size_bytes = len(source), len(data)
        batch.stored, batch.topic_ids = StoredBytes((data,), len(data)), topics
        return batch

    def entries(self, seal: EntrySeal, *, ordinal: int, position: int, timestamp_us: int) -> bytes:
        """Return the index entries of the batch, with the leader's times."""
        made = bytearray(self.source)
        entries = np.frombuffer(made, dtype=ENTRY)
        entries["position"] += np.uint32(position)
        seal.close(entries, ordinal)
        return bytes(made)

    @property
    def first_timestamp_us(self) -> int:
        """Return the time of the first record."""
        return int(self.source["timestamp_us"][0])

    @property
    def last_timestamp_us(self) -> int:
        """Return the time of the last record."""
        return int(self.source["timestamp_us"][-1])
