"""Records that another replica has written: a batch whose timestamps and checksums are given."""

import struct
from typing import Self

from timestone.kernel import loops
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, NO_TOPIC
from timestone.kernel.entry_checksum import EntrySeal
from timestone.reading.stored_bytes import StoredBytes
from timestone.record import FLAG_REMOVED
from timestone.writing.write_batch import WriteBatch

_TIME = struct.Struct("<q")
_TIME_AT = ENTRY.fields["timestamp_us"][1] if ENTRY.fields else 0


class ReplicaBatch(WriteBatch):
    """Consecutive records of a leader. Positions and entry checksums are those of the own segment."""

    __slots__ = ("has_removed",)
    made: bytes
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
        flags = loops.shipped_flags(entries, data, topic_count)
        batch = cls.__new__(cls)
        batch.made, batch.has_removed = entries, flags & FLAG_REMOVED != 0
        batch.count, batch.size_bytes = len(entries) // ENTRY_BYTES, len(data)
        batch.stored, batch.topic_ids = StoredBytes((data,), len(data)), NO_TOPIC
        return batch

    def entries(self, seal: EntrySeal, *, ordinal: int, position: int, timestamp_us: int) -> bytes:
        """Return the index entries of the batch, with the leader's times."""
        return seal.placed(self.made, ordinal=ordinal, position=position)

    @property
    def first_timestamp_us(self) -> int:
        """Return the time of the first record."""
        return int(_TIME.unpack_from(self.made, _TIME_AT)[0])

    @property
    def last_timestamp_us(self) -> int:
        """Return the time of the last record."""
        return int(_TIME.unpack_from(self.made, len(self.made) - ENTRY_BYTES + _TIME_AT)[0])
