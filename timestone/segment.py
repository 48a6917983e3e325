"""Reading side of one segment: records by ordinal from a pair of files, sealed or growing.

Maps the index, opens the segment file, and checks what comes from the disk. Knows no log and no offset except its base,
and never writes; `writing/segment_writer.py` does.

The bytes of a record are checked against their checksum when this process first reads them from this segment in a
run of reads; a single record is checked at every read from a file. So a consumer that reads a segment twice pays for
the checks once."""

import bisect
import errno
import threading
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from timestone.compressed.frame_cache import DecodedFrames
from timestone.compressed.frame_table import Read
from timestone.compressed.framed_bytes import FramedBytes, FramedFile, open_framed
from timestone.disk.files import Files
from timestone.errors import CorruptRecord, OffsetsLost
from timestone.format import names
from timestone.index import (
    INDEX_HEADER_BYTES,
    SUMMARY,
    TRAILER_BYTES,
    DamagedIndex,
    IndexHeader,
    Summary,
    Trailer,
)
from timestone.kernel import loops
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES, Entries, entry_position
from timestone.kernel.entry_checksum import EntrySeal
from timestone.kernel.loops import crc32c
from timestone.record import FLAG_REMOVED

Ordinals = npt.NDArray[np.int64]
Created = tuple[int, int | None]
"""Time and epoch of the header page of a segment: no two segments of one name have the same."""


class OpenPair:
    """Open files of a segment. Closed when the last reference is dropped, so that a running read keeps its files when
    the segment is evicted, sealed or deleted in between."""

    __slots__ = ("_files", "entry_room", "framed", "index_map", "segment_fd")

    def __init__(
        self,
        files: Files,
        index_path: Path,
        segment_path: Path,
        trailer: Trailer | None,
        frames: DecodedFrames,
        created: Created | None = None,
    ) -> None:
        """frames: cache of decoded frames of compressed segments. created: of the header page, None if unknown. Raises
        FileNotFoundError also if the segment was replaced by another generation (writing/segment_swap.py), or by
        another segment of that name, of a replica that was copied again: files of two do not belong together."""
        self._files = files
        segment_fd = files.open(segment_path)
        try:
            with files.opened(index_path) as index_fd:
                self.index_map: mmap = _mapped(files, index_fd)
                size = len(self.index_map)
                found = generation_of_index(files, index_fd, size, index_path)
                made = created and _created_of_index(files, index_fd, index_path)
                if found not in (None, trailer.generation if trailer else 0) or made not in (None, created):
                    raise FileNotFoundError(errno.ENOENT, "the segment was replaced", str(segment_path))
        except BaseException:
            files.close(segment_fd)
            raise
        # Not before: `__del__` would close the number a second time, by then another file.
        self.segment_fd = segment_fd
        room = max(0, size - HEADER_BYTES) // ENTRY_BYTES
        self.entry_room = min(room, trailer.entry_count) if trailer else room
        self.framed: FramedBytes | None = None
        """Of a compressed file: `read` is the only way to its bytes."""
        if trailer is not None and trailer.frames is not None:
            read = _reader_of(files, segment_fd)
            file = FramedFile(read, files.size(segment_fd), trailer.log_id, trailer.base_offset)
            self.framed, _ = open_framed(
                files, segment_path.parent, file, frames, trailer.frames, trailer.segment_bytes
            )

    def read(self, position: int, length_bytes: int) -> bytes:
        """Return bytes of the records as appended; fewer if the file is too short."""
        return (
            self._files.read_all(self.segment_fd, length_bytes, position)
            if self.framed is None
            else self.framed.read(position, length_bytes)
        )

    def damage_in(self, position: int, length_bytes: int) -> str:
        """Return the known damage of the part of a compressed file that holds these bytes; empty if none is known."""
        return "" if self.framed is None else self.framed.damage_in(position, length_bytes)

    def __del__(self) -> None:
        # The mapping is closed when the last array over it is dropped.
        if hasattr(self, "segment_fd"):
            self._files.close(self.segment_fd)


def _reader_of(files: Files, fd: int) -> Read:
    """Return a read function. Not a method: a pair referenced by its own compressed file would keep its descriptors
    until garbage collection."""
    return lambda position, length_bytes: files.read_all(fd, length_bytes, position)


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records of one segment: entries, and bytes from `position` of the segment on."""

    base_ordinal: int
    entries: Entries
    data: bytes
    position: int


class SegmentCache(Protocol):
    """Keeps the files of recently read segments open. Implemented by `SegmentCache`."""

    frames: DecodedFrames

    def used(self, segment: "Segment") -> None: ...


class Segment(loops.ShownSegment):
    """Records [base, base + count) of a log. Thread-safe for readers; one writer may raise `count`."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        base_offset: int,
        log_id: int,
        open_segments: SegmentCache,
        *,
        count: int = 0,
        trailer: Trailer | None = None,
        epoch: int | None = None,
        created_us: int | None = None,
    ) -> None:
        """epoch, created_us: of the header page; None if unknown."""
        self.base_offset = base_offset
        self.epoch, self.created_us = epoch, created_us
        self.index_path = names.index_path(folder, base_offset)
        self.segment_path = names.segment_path(folder, base_offset, trailer.generation if trailer else 0)
        self.count = trailer.entry_count if trailer else count
        self.trailer = trailer
        self.seal = EntrySeal(log_id, base_offset)
        self._files = files
        self._open_segments = open_segments
        self._pair: OpenPair | None = None
        self._records: loops.SegmentRecords | None = None
        self._lock = threading.Lock()
        self._verified = (0, 0)
        self._topics: Summary | None = None

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    def size_bytes(self) -> int:
        """Return the uncompressed size of the records. Raises OSError."""
        if self.trailer is not None:
            return self.trailer.segment_bytes
        return self._files.stat(self.segment_path).st_size

    def bytes_between(self, first: int, end: int) -> int:
        """Return the uncompressed size of the records of the offsets [first, end) here, by their positions in the
        index. Opens the segment only for a part of it; a damaged entry counts as empty. Raises OSError."""
        if first <= self.base_offset and end >= self.end_offset:
            return self.size_bytes()
        return self._bytes_before(min(end, self.end_offset)) - self._bytes_before(first)

    def _bytes_before(self, offset: int) -> int:
        entry = self._entry_at_or_before(offset - self.base_offset - 1)
        return 0 if entry is None else int(entry["position"][0]) + int(entry["length"][0])

    def read(self, ordinal: int, *, max_records: int, max_bytes: int) -> Run:
        """Return records from `ordinal` on: at least one, and no further ones beyond `max_bytes`.

        Stops before a damaged record. Raises CorruptRecord if `ordinal` itself is damaged, OffsetsLost if the index
        file ends before it, OSError."""
        pair = self._pair_for(ordinal)
        end = min(self.count, pair.entry_room)
        place, most = entry_position(ordinal), min(end - ordinal, max_records, RUN_RECORDS)
        # A damaged entry may mislead the search to any number in range; `_checked` then cuts the run there.
        count, position, length_bytes = loops.fitting(
            pair.index_map, place, most, min(max_bytes, _SEGMENT_BYTES_MOST)
        )
        # Copied as bytes: numpy would copy a record array field by field.
        entries = np.frombuffer(pair.index_map[place : place + count * ENTRY_BYTES], dtype=ENTRY)
        if count > 1 and self._is_verified(ordinal, ordinal + count):
            data = pair.read(position, length_bytes)
            if len(data) == length_bytes:  # else the file was cut since
                return Run(ordinal, entries, data, position)
        return self._checked(pair, ordinal, entries)

    def records(self, end_offset: int) -> loops.SegmentRecords | None:
        """Return access to single published records below an offset, until the files are released or this is called
        again; None if they are closed or compressed."""
        pair = self._pair
        if pair is None or pair.framed is not None:
            return None
        records = loops.SegmentRecords(
            self.base_offset,
            max(self.base_offset, min(end_offset, self.end_offset, self.base_offset + pair.entry_room)),
            pair.index_map,
            self.seal.salt_crc,
            None if type(self._files) is Files else self._files.pread,
            pair.segment_fd,
            pair,
        )
        with self._lock:
            earlier, self._records = self._records, records
        if earlier is not None:
            earlier.close()  # only one is closed when the files are released
        if self._pair is not pair:  # released in between by a thread that may not have seen ours
            records.close()
        return records

    def read_entries(self, first: int, last: int) -> Entries:
        """Return the valid index entries of the ordinals [first, last), as a view of the mapping.

        Stops before a damaged one. Raises CorruptRecord if the first is damaged, OffsetsLost if the index file ends
        before it."""
        pair = self._pair_for(first)
        entries = self.mapped_entries(pair, first, min(last, pair.entry_room))
        return entries[: self._valid_count(first, entries)]

    def read_some(self, ordinals: Ordinals, entries: Entries) -> list[Run]:
        """Return the records of increasing `ordinals` with the valid `entries`, with one pread for each group that
        lies close together. Stops before a damaged record; raises CorruptRecord if the first is damaged."""
        pair = self._opened()
        starts = entries["position"].astype(np.int64)
        breaks = np.flatnonzero(starts[1:] - starts[:-1] - entries["length"][:-1] > _CLOSE_BYTES) + 1
        runs: list[Run] = []
        for some, chosen in zip(np.split(ordinals, breaks), np.split(entries, breaks), strict=True):
            run = self._fetched_range(pair, int(some[0]), np.array(chosen))
            proven = self._proven_count(pair, run, strict=not runs)
            if proven:
                runs.append(Run(run.base_ordinal, run.entries[:proven], run.data, run.position))
            if proven < len(chosen):
                break
        return runs

    @property
    def may_have_removed(self) -> bool:
        """Return whether compaction may have removed records: unknown without a trailer."""
        return self.trailer is None or self.trailer.removed_count > 0

    def shown_count(self, end: int) -> int:
        """Return the number of records below an offset that compaction has not removed. Of a segment that grows, or
        that a replica shows in part, it is not known how many it has."""
        removed = 0 if self.trailer is None or self.end_offset > end else self.trailer.removed_count
        return min(self.end_offset, end) - self.base_offset - removed

    def first_shown(self, ordinal: int) -> int:
        """Return the first ordinal from this one on that compaction has not removed; `count` if there is none. A
        damaged entry counts as present: reading it reports the damage."""
        pair = self._opened()
        count = min(self.count, pair.entry_room)
        size = 1  # mostly it is this one
        while ordinal < count:
            last, size = min(ordinal + size, count), RUN_RECORDS
            entries = self.mapped_entries(pair, ordinal, last)
            removed = (entries["flags"] & FLAG_REMOVED) != 0
            passed = len(entries) if removed.all() else int(removed.argmin())
            # Skipped entries must prove that they were removed: a single flipped bit could claim it.
            proven = self.seal.valid_count(entries[:passed], ordinal) if passed else 0
            ordinal += proven
            if proven < len(entries):
                return ordinal
        return ordinal

    def timestamp_at(self, ordinal: int) -> int:
        """Return the append time of a record; that of the nearest earlier valid entry if its own is damaged."""
        entry = self._entry_at_or_before(ordinal)
        return 0 if entry is None else int(entry["timestamp_us"][0])

    def _entry_at_or_before(self, ordinal: int) -> Entries | None:
        """Return the nearest valid entry up to this one; None if there is none."""
        pair = self._opened()
        ordinal = min(ordinal, pair.entry_room - 1)
        while ordinal >= 0:
            entry = self.mapped_entries(pair, ordinal, ordinal + 1)
            if self.seal.valid(entry, ordinal)[0]:
                return entry
            ordinal -= 1
        return None

    def first_at_or_after(self, timestamp_us: int) -> int:
        """Return the first ordinal with a timestamp at or after the given one; `count` if there is none."""
        return bisect.bisect_left(range(self.count), timestamp_us, key=self.timestamp_at)

    def topic_summary(self) -> Summary | None:
        """Return the topics of a sealed segment, sorted; None for a growing one."""
        if self.trailer is None:
            return None
        if self._topics is None:
            start = entry_position(self.trailer.entry_count)
            size = self.trailer.summary_count * SUMMARY.itemsize
            raw = self._index_bytes(start, size)
            if crc32c(raw) != self.trailer.summary_crc:
                return None  # a damaged summary only costs its speed-up
            self._topics = np.frombuffer(raw, dtype=SUMMARY)
        return self._topics

    def _index_bytes(self, position: int, length_bytes: int) -> bytes:
        """Read a part of the index without opening the segment: many segments are asked for topics, few are read."""
        pair = self._pair
        if pair is not None:
            return bytes(pair.index_map[position : position + length_bytes])
        return self._files.read_part(self.index_path, length_bytes, position)

    def mapped_entries(self, pair: OpenPair, first: int, last: int) -> Entries:
        """Return unchecked entries as a view of the mapping."""
        return np.frombuffer(pair.index_map, dtype=ENTRY, count=last - first, offset=entry_position(first))

    def release(self) -> None:
        """Release the open files; they are opened again on demand."""
        self._pair = None
        records, self._records = self._records, None
        if records is not None:
            records.close()

    def pair(self) -> OpenPair:
        """Return the open files, with an entry for each published record. Raises OffsetsLost when the index file is too
        short for that."""
        return self._pair_for(self.count - 1)

    def _pair_for(self, ordinal: int) -> OpenPair:
        """Return the open files, with the entry of a published record. Raises OffsetsLost when the index file ends
        before it."""
        pair = self._opened()
        if pair.entry_room <= ordinal:
            why = "the index file ends before them"
            raise OffsetsLost(self.index_path, self.base_offset + ordinal, self.end_offset, why)
        return pair

    def _opened(self) -> OpenPair:
        """Return the open files, with room for the published records unless the index file is shorter than it was."""
        pair, room = self._pair, self.count
        if pair is None or pair.entry_room < room:
            with self._lock:
                pair = self._pair
                if pair is None or pair.entry_room < room:
                    pair = self._pair = self._open_pair()
        self._open_segments.used(self)
        return pair

    def _open_pair(self) -> OpenPair:
        """Open the files."""
        created = None if self.created_us is None else (self.created_us, self.epoch)
        frames = self._open_segments.frames
        return OpenPair(self._files, self.index_path, self.segment_path, self.trailer, frames, created)

    def _checked(self, pair: OpenPair, ordinal: int, entries: Entries) -> Run:
        """Read the bytes of `entries` and keep the records up to the first that fails its check."""
        entries = entries[: self._valid_count(ordinal, entries)]
        run = self._fetched_range(pair, ordinal, entries)
        good = self._proven_count(pair, run)
        self._note_verified(ordinal, ordinal + good)  # no further: what lies behind was cut off for a reason
        return run if good == len(entries) else Run(ordinal, entries[:good], run.data, run.position)

    def _fetched_range(self, pair: OpenPair, ordinal: int, entries: Entries) -> Run:
        first, last = entries[0], entries[-1]
        position = int(first["position"])
        end = int(last["position"]) + int(last["length"])
        return Run(ordinal, entries, pair.read(position, end - position), position)

    def _valid_count(self, ordinal: int, entries: Entries) -> int:
        """Return the number of valid entries at the front. Raises CorruptRecord for none."""
        if self._is_verified(ordinal, ordinal + len(entries)):
            return len(entries)
        good = self.seal.valid_count(entries, ordinal)
        if good == 0 and len(entries):
            raise CorruptRecord(
                self.index_path, self.base_offset + ordinal, "its index entry does not match its crc"
            )
        return good

    def _proven_count(self, pair: OpenPair, run: Run, *, strict: bool = True) -> int:
        """Return the number of records at the front whose bytes match their entries. Raises CorruptRecord for none,
        if strict."""
        good = loops.proven_count(run.entries, run.data, run.position)
        if good == 0 and strict and len(run.entries):
            position, length = int(run.entries["position"][0]), int(run.entries["length"][0])
            cut = position - run.position + length > len(run.data)
            why = "the segment file ends inside it" if cut else "its bytes do not match their crc"
            why = pair.damage_in(position, length) or why
            raise CorruptRecord(self.segment_path, self.base_offset + run.base_ordinal, why)
        return good

    def _is_verified(self, first: int, last: int) -> bool:
        lo, hi = self._verified  # read once: another thread may replace them
        return lo <= first and last <= hi

    def _note_verified(self, first: int, last: int) -> None:
        lo, hi = self._verified
        self._verified = (min(lo, first), max(hi, last)) if first <= hi and lo <= last else (first, last)


def _mapped(files: Files, index_fd: int) -> mmap:
    """Map the whole index. Access beyond the end of the file raises SIGBUS, which ends the process, and sealing cuts
    a growing index behind its entries: only published entries may be accessed in the mapping."""
    try:
        return files.map(index_fd, files.size(index_fd))
    except ValueError:  # sealed in between, which happens once
        return files.map(index_fd, files.size(index_fd))


def generation_of_index(files: Files, index_fd: int, size_bytes: int, path: Path) -> int | None:
    """Return the generation of the segment file that an index refers to; None if it is unsealed or damaged."""
    try:
        raw = files.pread(index_fd, TRAILER_BYTES, max(size_bytes - TRAILER_BYTES, 0))
        return Trailer.decode(raw, path).generation
    except DamagedIndex:
        return None


def _created_of_index(files: Files, index_fd: int, path: Path) -> Created | None:
    """Return what the header page says; None if it is damaged."""
    try:
        header = IndexHeader.decode(files.pread(index_fd, INDEX_HEADER_BYTES, 0), path)
    except DamagedIndex:
        return None
    return header.created_us, header.known_epoch


_SEGMENT_BYTES_MOST = 1 << 32
RUN_RECORDS = 65_536
"""Maximum records of one run: bounds the columns built by a read of many tiny records."""
_CLOSE_BYTES = 16 * 1024
"""Maximum gap between wanted records that one pread fetches: copying it costs less than a system call."""
