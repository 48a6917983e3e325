"""Segment as seen by a process that does not own it: how many records are published, and how many of those are durable.
Reads only and takes no lock; the owner may change the files at any moment."""

import errno
from pathlib import Path
from typing import NamedTuple

import numpy as np

from timestone.disk.files import Files
from timestone.format import names
from timestone.format.folder_listing import listed_bases
from timestone.index import Checkpoint, DamagedIndex, IndexHeader, Trailer, committed_offset
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES, entry_position
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.segment_list import LostRange
from timestone.recovery.segment_scan import examine, foreign_index, read_trailer
from timestone.segment import Segment

_CHUNK_ENTRIES = 1 << 14


class Look(NamedTuple):
    """Segment as of one look."""

    segment: Segment
    epoch: int | None
    """None if the header is damaged."""
    durable_offset: int
    """The records below it were flushed."""
    lacks_records: bool = False
    """True if it is not sealed and has fewer records than were flushed, or none."""
    committed: int | None = None
    """Of a replicated log, the committed offset in this segment, 0 without one; None for any other log."""


class SegmentLooks:
    """Reader of the state of the segments in one log folder. Thread-safe."""

    def __init__(self, files: Files, folder: Path, log_id: int, opened: SegmentCache) -> None:
        self._files = files
        self._folder = folder
        self._log_id = log_id
        self._opened = opened

    def look(self, base: int, known: Segment | None = None, *, both: bool = False) -> Look:
        """Return a segment as it is now. known: the result of an earlier call. both: check that the segment file
        exists, too. Raises OSError; FileNotFoundError, with the reason in `strerror`, if a file is missing or the
        index belongs to another log or base offset."""
        path = names.index_path(self._folder, base)
        try:
            fd = self._files.open(path)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "the index is missing", str(path)) from None
        try:
            page = self._files.pread(fd, HEADER_BYTES, 0)
            epoch: int | None = None
            try:
                header = IndexHeader.decode(page, path)
            except DamagedIndex:
                header = IndexHeader(self._log_id, base, 0, 0, bytes(16))
            else:
                epoch = header.epoch
            if foreign := foreign_index(header, self._log_id, base):
                raise FileNotFoundError(errno.ENOENT, foreign, str(path))
            trailer = read_trailer(self._files.reader(fd), self._files.size(fd), path, self._log_id, base)
            if trailer is None:
                trailer = self._trailer_of_rewritten(base)
            if both:
                self._check_segment_file(base, trailer.generation if trailer else 0)
            shown = None
            if header.is_replicated:
                shown = committed_offset(page, self._log_id, base) or 0
            if known is not None and (known.created_us, known.epoch) != (
                header.created_us,
                header.known_epoch,
            ):
                known = None  # another segment has the name by now: of a replica that was cut there, or copied again
            if trailer is not None:
                if known is None or trailer != known.trailer:
                    known = self._segment(base, trailer, header)
                return Look(known, epoch, base + trailer.entry_count, committed=shown)
            segment = known or self._segment(base, None, header)
            checkpoint = Checkpoint.latest(page, self._log_id, base)
            durable = checkpoint.entry_count if checkpoint else 0
            segment.count = self._count(fd, segment, max(segment.count, durable))
            if epoch is None and self._files.pread(fd, HEADER_BYTES, 0) != page:
                return self.look(base, both=both)  # it was being created; only the header tells a replica
            lacks = segment.count < durable or not segment.count
            return Look(segment, epoch, base + min(durable, segment.count), lacks, shown)
        finally:
            self._files.close(fd)

    def lost(self, base: int, following: int) -> LostRange | None:
        """Return the offsets that a segment has lost as a whole, by the rules of recovery, or None. following: where
        the next segment begins. Raises OSError, UnsupportedFormat."""
        try:
            scan = examine(self._files, self._folder, base, self._log_id)
        except FileNotFoundError:
            return None  # it is being deleted
        lost = scan.lost_range(following)
        # Retention and a reset rename the index first: for a moment the segment file is alone.
        if lost is None or base not in listed_bases(self._files.names(self._folder))[0]:
            return None
        return LostRange(*lost, f"{names.index_path(self._folder, base).name}: {scan.reason}")

    def _check_segment_file(self, base: int, generation: int) -> None:
        path = names.segment_path(self._folder, base, generation)
        try:
            self._files.stat(path)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "the segment file is missing", str(path)) from None

    def is_served(self, base: int) -> bool:
        """Return whether this segment has an index. Raises OSError."""
        try:
            self.look(base)
        except FileNotFoundError:
            return False
        return True

    def _trailer_of_rewritten(self, base: int) -> Trailer | None:
        """Return the trailer to use for a rewritten segment whose own trailer does not verify; None for any other."""
        try:
            self._files.stat(names.segment_path(self._folder, base))
            return None
        except FileNotFoundError:
            pass
        try:
            scan = examine(self._files, self._folder, base, self._log_id)
        except FileNotFoundError:
            return None  # it is being deleted
        return scan.trailer_for_readers(self._log_id) if scan.serves else None

    def _segment(self, base: int, trailer: Trailer | None, header: IndexHeader) -> Segment:
        return Segment(
            self._files,
            self._folder,
            base,
            self._log_id,
            self._opened,
            trailer=trailer,
            epoch=header.known_epoch,
            created_us=header.created_us,
        )

    def _count(self, fd: int, segment: Segment, count: int) -> int:
        """Return how many entries are published: from `count` on, up to the first that does not verify.

        Entries are read with pread, which cannot touch a page after the end of the file.
        """
        # A new index may lack even its header page.
        room = max(0, self._files.size(fd) - HEADER_BYTES) // ENTRY_BYTES
        count = min(count, room)
        while count < room:
            raw = self._files.pread(
                fd, min(_CHUNK_ENTRIES, room - count) * ENTRY_BYTES, entry_position(count)
            )
            entries = np.frombuffer(raw, dtype=ENTRY, count=len(raw) // ENTRY_BYTES)
            empty = np.flatnonzero(entries["timestamp_us"] == 0)
            entries = entries[: int(empty[0])] if len(empty) else entries
            valid = segment.seal.valid(entries, count)
            good = int(valid.argmin()) if not valid.all() else len(valid)
            count += good
            if good < _CHUNK_ENTRIES:
                break
        return count
