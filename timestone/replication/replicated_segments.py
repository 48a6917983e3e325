"""Segments of a replicated log: one generation each, a committed offset in the header page, and a cut of the newest
records."""

from contextlib import suppress

import numpy as np

from timestone.errors import CorruptLog
from timestone.format import names
from timestone.index import (
    COMMITTED_POSITIONS,
    DamagedIndex,
    IndexHeader,
    Trailer,
    committed_offset,
    committed_slot,
)
from timestone.kernel.entries import ENTRY, HEADER_BYTES, NO_TOPIC
from timestone.reading.segment_list import SegmentList
from timestone.reading.tail_cache import TailRun
from timestone.record import FLAG_REMOVED
from timestone.replication.replica_batch import ReplicaBatch
from timestone.segment import Segment
from timestone.writing.active_segment import ActiveSegment, LogPlace
from timestone.writing.sealing import SegmentFacts, seal_index
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import WriteBatch

GENERATION_SHIFT = 32
"""A generation is the high half of an epoch."""


def generation_of(segment: Segment) -> int:
    """Return the generation of the records of a segment; 0 if its epoch is lost."""
    return (segment.epoch or 0) >> GENERATION_SHIFT


class ReplicatedSegments(ActiveSegment):
    """Writes at the end of a replicated log. The caller holds the locks of `ActiveSegment`."""

    _slot = 0

    def write(self, write_batch: WriteBatch) -> TailRun:
        """Write a batch. Records of a leader keep their times. Errors as `ActiveSegment.write`, and ValueError for a
        time before that of the last record."""
        if not isinstance(write_batch, ReplicaBatch):
            return super().write(write_batch)
        if write_batch.first_timestamp_us < self._last_timestamp_us:
            raise ValueError(
                f"invalid records: expected times from {self._last_timestamp_us} on, "
                f"got {write_batch.first_timestamp_us}"
            )
        return self._write(
            write_batch,
            SegmentWriter._write_with_entries,
            self._place.now_us(),
            write_batch.last_timestamp_us,
        )

    def holes(self, count: int) -> ReplicaBatch:
        """Return entries without records, for offsets that no record gets."""
        entries = np.zeros(count, dtype=ENTRY)
        entries["timestamp_us"] = max(self._last_timestamp_us, self._place.now_us())
        entries["topic"], entries["flags"] = NO_TOPIC, FLAG_REMOVED
        return ReplicaBatch.received(entries.tobytes(), b"", 0)

    @property
    def place(self) -> LogPlace:
        """Return the folder and what identifies its segments."""
        return self._place

    def replace(self, segment: Segment, trailer: Trailer) -> None:
        """See `ActiveSegment`. A segment that is repaired may have had no epoch."""
        if segment.epoch is None:
            segment.epoch = IndexHeader.decode(self._page(segment), segment.index_path).known_epoch
        super().replace(segment, trailer)

    # The committed offset.

    def committed(self) -> int:
        """Return the committed offset that the files have; 0 if none does. Raises OSError."""
        for segment in reversed(self.segment_list.segments):
            found = committed_offset(self._page(segment), self._place.log_id, segment.base_offset)
            if found is not None:
                return min(found, segment.end_offset)  # the rest was given up
        return 0

    def note_committed(self, offset: int) -> None:
        """Write the committed offset into the newest segment; it is flushed with the next records. Raises OSError."""
        if not self.segment_list.segments:
            return
        base, place = self.segment_list.segments[-1].base_offset, self._place
        slot = committed_slot(offset, place.log_id, base)
        self._slot = 1 - self._slot
        position = COMMITTED_POSITIONS[self._slot]
        for writer in reversed(self._writers()):
            if writer.base_offset == base and writer.write_slot(slot, position):
                return
        with place.files.opened(names.index_path(place.folder, base), write=True) as fd:
            place.files.write_all(fd, slot, position)

    # Cutting.

    def cut(self, offset: int) -> list[SegmentWriter]:
        """Remove the records from an offset on, durably, and return writers to close. All is flushed, and nothing was
        shown from the offset on. Raises OSError, CorruptLog: perhaps after a part of the records, the newest first."""
        place = self._place
        kept = [one for one in self.segment_list.segments if one.end_offset <= offset and one.count]
        gone = [one for one in self.segment_list.segments if one not in kept]
        for segment in reversed(gone):
            base = segment.base_offset
            if base >= offset or not segment.count:
                for path in (segment.index_path, segment.segment_path):
                    place.files.discard(path)
                    # Each: else a power loss could leave a gap, or an index without its records.
                    place.files.sync_directory(place.folder)
            else:
                kept.append(self._shortened(segment, offset))
        for segment in gone:
            place.open_segments.forget(segment)
        bases = {one.base_offset for one in gone}
        closed = [writer for writer in self._writers() if writer.base_offset in bases]
        self._rolled = [writer for writer in self._rolled if writer not in closed]
        if self._writer in closed:
            self._writer = None
        self.segment_list = SegmentList(kept, self.segment_list.missing)
        self.continue_at(offset)
        if kept:
            last = kept[-1]
            self._last_timestamp_us = last.timestamp_at(last.count - 1)
        return closed

    def clear(self, start: int) -> list[SegmentWriter]:
        """Remove all records and begin again at an offset. One renamed index proves all segments deleted, to other
        processes and after a crash (format/deleted_files.py). Errors and result as of `cut`."""
        files, folder = self._place.files, self._place.folder
        index_paths = [one.index_path for one in self.segment_list.segments[-1:]]
        for path in index_paths:
            with suppress(FileNotFoundError):  # of an earlier try
                files.rename(path, names.deleted_path(path))
            files.sync_directory(folder)
        closed = self.cut(0)
        for path in index_paths:
            files.discard(names.deleted_path(path))
            files.sync_directory(folder)  # else it could come back, and prove new segments deleted
        self.continue_at(start)
        return closed

    def continue_at(self, offset: int) -> None:
        """Take an offset as the end of the log, of which everything is durable."""
        self.next_offset = self.synced_offset = offset
        self._unsynced_runs.clear()
        self.unsynced_bytes = self._last_timestamp_us = 0
        self.change_count += 1

    def _shortened(self, segment: Segment, offset: int) -> Segment:
        """Seal a segment in front of an offset; a crash leaves all of it, or the part in front."""
        place, base, count = self._place, segment.base_offset, offset - segment.base_offset
        path = names.index_path(place.folder, base)
        if segment.trailer is not None and segment.trailer.generation:  # was shown, and given up by command
            raise CorruptLog(path, "the segment cannot be cut: it was compressed or compacted")
        try:
            header = IndexHeader.decode(self._page(segment), path)
        except DamagedIndex as error:
            raise CorruptLog(path, f"the segment cannot be cut: {error}") from None
        last = segment.read_entries(count - 1, count)[0]
        size_bytes = int(last["position"]) + int(last["length"])
        facts = SegmentFacts(count, size_bytes, segment.trailer.generation if segment.trailer else 0)
        trailer = seal_index(place.files, header, place.folder, facts, place.now_us())
        with place.files.opened(segment.segment_path, write=True) as fd:
            place.files.truncate(fd, size_bytes)
            place.files.fdatasync(fd)
        return place.segment(base, segment.epoch, trailer=trailer)

    def _page(self, segment: Segment) -> bytes:
        return self._place.files.read_part(segment.index_path, HEADER_BYTES)
