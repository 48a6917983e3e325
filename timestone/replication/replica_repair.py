"""Repair of a replica: committed records of another one in the place of damaged ones, its names in that of lost ones.

A segment is written again as a whole. Of its damaged files only the name and the number of records are used; the new
pair replaces the old one whole or not at all (`segment_swap.py`), once it was read back. Who has the records, and how
they arrive, is up to the caller."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

import numpy as np

from timestone.errors import CorruptLog, CorruptRecord, TimestoneError
from timestone.filters import validate_topics
from timestone.format.damage_report import SPACE, Damage, damage_key, encode_damage, known_damage
from timestone.index import (
    COMMITTED_POSITIONS,
    IndexHeader,
    Trailer,
    committed_slot,
)
from timestone.kernel.entries import ENTRY, HEADER_BYTES, Entries
from timestone.replication.replica_batch import ReplicaBatch
from timestone.replication.replicated_segments import GENERATION_SHIFT
from timestone.replication.upkept_replica import UpkeptReplica
from timestone.segment import Segment
from timestone.upkeep.compaction import SPACE as COMPACTION_SPACE
from timestone.upkeep.host import UpkeptStore
from timestone.upkeep.segment_check import NotProven, check_rewritten
from timestone.upkeep.segment_rewrites import Rewrites
from timestone.writing.active_segment import LogPlace
from timestone.writing.sealing import SegmentFacts, write_index
from timestone.writing.segment_swap import SegmentSwap

_COMPACTED = "records of a compacted log are damaged"


class BeyondRepair(ValueError):
    """Records of another replica cannot be put in the place of the damaged ones: copy the replica as a whole."""


class SegmentRepair:
    """New files for one sealed segment. Add its records in order, then `prepare`, and commit `swap`; always `close`."""

    def __init__(
        self, place: LogPlace, rewrites: Rewrites, segment: Segment, generation: int, topic_count: int
    ) -> None:
        """generation: of its records. topic_count: number of topics that they may use. Raises ValueError for another
        generation than that of the files, or while others rewrite the segment; OSError."""
        assert segment.trailer is not None
        epoch = generation << GENERATION_SHIFT if segment.epoch is None else segment.epoch
        if epoch >> GENERATION_SHIFT != generation:
            raise ValueError(
                f"invalid records: expected those of generation {epoch >> GENERATION_SHIFT}, got {generation}"
            )
        self.segment = segment
        self._place, self._trailer, self._topic_count = place, segment.trailer, topic_count
        self._generation, self._epoch = generation, epoch
        self._entries: list[Entries] = []
        self._count = self._size_bytes = self._last_us = 0
        with ExitStack() as claim:
            if not claim.enter_context(rewrites.claim(segment)):
                raise ValueError(f"segment {segment.base_offset} is being rewritten")
            self.swap = SegmentSwap(place.files, place.folder, segment.trailer)
            self._claim = claim.pop_all()

    @property
    def next_offset(self) -> int:
        """Return the offset of the record to add next; the end of the segment after the last one."""
        return self.segment.base_offset + self._count

    def add(self, generation: int, first: int, entries: bytes, data: bytes) -> None:
        """Add records as `ReplicatedLog.read_stored` returns them. Raises ValueError for any that are not those of this
        place, OSError."""
        batch = ReplicaBatch.received(entries, data, self._topic_count)
        is_in_place = (generation, first) == (self._generation, self.next_offset)
        if not is_in_place or first + batch.count > self.segment.end_offset:
            raise ValueError(
                f"invalid records: expected some of generation {self._generation} in [{self.next_offset}, "
                f"{self.segment.end_offset}), got {batch.count} of generation {generation} from {first} on"
            )
        if batch.has_removed:
            raise BeyondRepair(_COMPACTED)
        if batch.first_timestamp_us < self._last_us:
            raise ValueError("invalid records: expected times that never decrease")
        made = batch.entries(
            self.segment.seal, ordinal=self._count, position=self._size_bytes, timestamp_us=0
        )
        self._place.files.write_all(self.swap.segment_fd, data, self._size_bytes)
        self._entries.append(np.frombuffer(made, dtype=ENTRY))
        self._count += batch.count
        self._size_bytes += len(data)
        self._last_us = batch.last_timestamp_us

    def prepare(self, committed: int) -> Trailer:
        """Flush the new files and read them back. Return the new trailer. Raises OSError, CorruptLog."""
        trailer = self.swap.prepare(lambda fd: self._write_index(fd, committed))
        try:
            for _ in check_rewritten(self._place.files, self.segment, trailer, self.swap):
                pass
        except NotProven as error:
            path = self.segment.segment_path
            raise CorruptLog(path, f"written again, it is damaged: {error}") from None
        return trailer

    def _write_index(self, fd: int, committed: int) -> Trailer:
        place, base = self._place, self.segment.base_offset
        now_us = place.now_us()
        header = IndexHeader(place.log_id, base, now_us, self._epoch, place.boot_id, is_replicated=True)
        old = place.files.read_part(self.segment.index_path, COMMITTED_POSITIONS[0])
        page = (old + committed_slot(committed, place.log_id, base)).ljust(HEADER_BYTES, b"\0")
        facts = SegmentFacts(self._count, self._size_bytes, self.swap.generation)
        return write_index(place.files, fd, header, self._entries, facts, page, now_us)

    def close(self) -> None:
        """Remove the new files, unless they were committed."""
        self.swap.discard()
        self._claim.close()


class ReplicaRepair:
    """What is damaged in a replica, and its repair. One thread at a time."""

    def __init__(
        self, log: UpkeptReplica, store: UpkeptStore, place: LogPlace, note_committed: Callable[[], None]
    ) -> None:
        """note_committed: writes the committed offset into the newest segment. Raises OSError."""
        self._log, self._store, self._place = log, store, place
        self._note_committed = note_committed
        self._found: Segment | None = None

    def found(self, error: CorruptRecord) -> None:
        """Have the segment repaired in which a reader has found damage; noted once while that is so."""
        segment = self._log.segment_list.locate(error.offset)
        if segment is not None and segment is not self._found and segment.base_offset <= error.offset:
            self._found = segment
            with suppress(TimestoneError, OSError):
                self.note(segment.base_offset, error.reason)

    def bases(self) -> list[int]:
        """Return the base offsets of segments to repair. Raises OSError, CorruptLog."""
        log = self._log
        noted = known_damage(self._store.documents)
        found = {one.base_offset for one in noted if (one.log, one.partition) == (log.name, log.partition)}
        return sorted(found.union(one.base_offset for one in log.segment_list.segments if one.epoch is None))

    def note(self, base: int, reason: str) -> None:
        """Have a segment repaired, also by a later process. Raises OSError."""
        log = self._log
        damage = Damage(log.name, log.partition, base, base, base, reason, self._store.now_us())
        self._put(base, encode_damage([damage]))

    def note_at(self, offset: int, reason: str) -> None:
        """Have the segment of a record repaired. Raises OSError."""
        segment = self._log.segment_list.locate(offset)
        if segment is not None:
            self.note(segment.base_offset, reason)

    def _put(self, base: int, document: bytes | None) -> None:
        self._store.documents.put_many(
            SPACE, {damage_key(self._log.name, self._log.partition, base): document}
        )

    def wanted(self, base: int) -> Segment | None:
        """Return a segment to `begin` with; None if it is gone. Raises ValueError as long as it is not sealed, or has
        records that are not committed, BeyondRepair for a log that was ever compacted; OSError, CorruptLog."""
        found = [one for one in self._log.segment_list.segments if one.base_offset == base]
        if not found:
            self._put(base, None)
            return None
        # What compaction has removed here may still be at the leader. It must not be back: this replica has said that
        # it is gone, and tombstones go by that.
        progress = self._store.documents.get(COMPACTION_SPACE, self._log.folder.name)
        if self._log.config.compact or progress is not None:
            raise BeyondRepair(_COMPACTED)
        if found[0].trailer is None:
            self._log.roll()
            raise ValueError(f"segment {base} is not sealed yet")
        if found[0].end_offset > self._log.end_offset:
            raise ValueError(f"segment {base} has records that are not committed")
        return found[0]

    def begin(self, segment: Segment, generation: int) -> SegmentRepair:
        """Begin new files for a segment. generation: of its records at the leader. Raises as `SegmentRepair`."""
        return SegmentRepair(self._place, self._log.rewrites, segment, generation, self._log.names_count)

    def finish(self, repair: SegmentRepair) -> None:
        """Replace the files of a segment. Raises OSError, CorruptLog: the old ones stay in use."""
        trailer = repair.prepare(self._log.end_offset)
        self._log.rewrites.replace(repair.segment, repair.swap, trailer)
        self._note_committed()  # it may have risen in the old files in between
        self._put(repair.segment.base_offset, None)
        self._log.compression.expect()

    @property
    def lost_name(self) -> int | None:
        """Return the first topic id whose name is lost; None without one."""
        names = self._log.topics.by_id
        return names.index(None) if None in names else None

    def restore_names(self, first: int, names: Sequence[str]) -> None:
        """Take the names of the leader from an id on; durable on return. In the thread of `append_replica`. Raises
        ValueError for any that contradict those that are left, OSError."""
        topics = self._log.topics
        own = topics.names()[first : self._log.names_count]
        known = set(topics.names()[:first])
        if len(names) != len(own) or len({*names} - known) != len(names):
            raise ValueError(f"invalid topic names: expected {len(own)} other ones, got {len(names)}")
        if any(mine not in (None, name) for mine, name in zip(own, names, strict=True)):
            raise ValueError("invalid topic names: they are not those of this log")
        validate_topics(names)
        topics.keep(first)
        topics.add_all(names)
        topics.write_added()
        topics.sync()
