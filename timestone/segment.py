"""One segment, read: records by ordinal from a pair of files, sealed or still growing.

What belongs here: the mapping of the index, the descriptor of the segment, the checks of what comes from the
disk. It knows no log, no offsets but its base, and never writes. Writing is `segment_writer.py`.

A record's bytes are checked against its crc the first time this process reads them from this segment in a run
of reads; a single record is checked whenever it is read from a file. So a consumer that reads a segment twice
pays for crcs once."""

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
from timestone.errors import CorruptRecord
from timestone.format import names
from timestone.index import SUMMARY, TRAILER_BYTES, DamagedIndex, Summary, Trailer
from timestone.kernel import loops
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES, Entries, entry_position
from timestone.kernel.entry_checksum import EntrySeal
from timestone.record import FLAG_REMOVED

Ordinals = npt.NDArray[np.int64]


class OpenPair:
    """The open files of a segment. Closed when the last user drops it, so that a reader in the middle of a
    pread keeps what it reads from, whatever is evicted, sealed or deleted in between."""

    __slots__ = ("_files", "_framed", "entry_room", "index_map", "segment_fd")

    def __init__(
        self,
        files: Files,
        index_path: Path,
        segment_path: Path,
        trailer: Trailer | None,
        frames: DecodedFrames,
    ) -> None:
        """frames: where decoded frames of compressed segments are kept.

        Raises FileNotFoundError also when the segment was replaced by another generation (writing/segment_swap.py): the
        files of two do not belong together."""
        self._files = files
        segment_fd = files.open(segment_path)
        try:
            index_fd = files.open(index_path)
            try:
                self.index_map: mmap = _mapped(files, index_fd)
                size = len(self.index_map)
                if _generation(files, index_fd, size, index_path) not in (
                    None,
                    trailer.generation if trailer else 0,
                ):
                    raise FileNotFoundError(errno.ENOENT, "the segment was replaced", str(segment_path))
            finally:
                files.close(index_fd)
        except BaseException:
            files.close(segment_fd)
            raise
        # Not before: `__del__` would close it a second time, by then another file.
        self.segment_fd = segment_fd
        room = (size - HEADER_BYTES) // ENTRY_BYTES
        self.entry_room = min(room, trailer.entry_count) if trailer else room
        self._framed: FramedBytes | None = None
        if trailer is not None and trailer.frames is not None:
            read = _reader_of(files, segment_fd)
            file = FramedFile(read, files.size(segment_fd), trailer.log_id, trailer.base_offset)
            self._framed, _ = open_framed(
                files, segment_path.parent, file, frames, trailer.frames, trailer.segment_bytes
            )

    def read(self, position: int, length_bytes: int) -> bytes:
        """Bytes of the records, as appended; short when the file is."""
        return (
            self._files.read_all(self.segment_fd, length_bytes, position)
            if self._framed is None
            else self._framed.read(position, length_bytes)
        )

    @property
    def framed(self) -> bool:
        """Is the file compressed? Then its bytes come from `read` only."""
        return self._framed is not None

    def damage_in(self, position: int, length_bytes: int) -> str:
        """What is wrong with the part of a compressed file that holds these bytes, if that is known; else empty."""
        return "" if self._framed is None else self._framed.damage_in(position, length_bytes)

    def __del__(self) -> None:
        # The map closes itself when the last array over it goes.
        if hasattr(self, "segment_fd"):
            self._files.close(self.segment_fd)


def _reader_of(files: Files, fd: int) -> Read:
    """Not a method: a pair that its own compressed file refers to would keep its descriptors until the garbage
    collector comes by."""
    return lambda position, length_bytes: files.read_all(fd, length_bytes, position)


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring records of one segment: their entries, and their bytes from `position` of the segment
    on."""

    base_ordinal: int
    entries: Entries
    data: bytes
    position: int


class SegmentCache(Protocol):
    """Keeps the files of the segments open that were read last. Implemented by `OpenSegments`."""

    frames: DecodedFrames

    def used(self, segment: "Segment") -> None: ...


class Segment:
    """The records [base, base + count) of a log. Thread-safe for readers; one writer may raise `count`."""

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
    ) -> None:
        """epoch: of its header page; None when that is not known."""
        self.base_offset = base_offset
        self.epoch = epoch
        self.index_path = names.index_path(folder, base_offset)
        self.segment_path = names.segment_path(folder, base_offset, trailer.generation if trailer else 0)
        self.count = trailer.entry_count if trailer else count
        """Published records; only ever rises."""
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
        """What its records take, uncompressed. Raises OSError."""
        if self.trailer is not None:
            return self.trailer.segment_bytes
        return self._files.stat(self.segment_path).st_size

    def read(self, ordinal: int, *, max_records: int, max_bytes: int) -> Run:
        """The records from `ordinal` on, at least one, with at most `max_bytes` bytes if there are more.

        Stops in front of a damaged record. Raises CorruptRecord when `ordinal` itself is one, OSError from
        the disk."""
        pair = self._pair_with(self.count)
        place, most = entry_position(ordinal), min(self.count - ordinal, max_records, _RUN_RECORDS)
        # A damaged entry may mislead the search to any number in range; `_checked` then cuts the run there.
        count, position, length_bytes = loops.fitting(
            pair.index_map, place, most, min(max_bytes, _SEGMENT_BYTES_MOST)
        )
        # Copied as bytes: numpy would copy a record array field by field.
        entries = np.frombuffer(pair.index_map[place : place + count * ENTRY_BYTES], dtype=ENTRY)
        if count > 1 and self._is_verified(ordinal, ordinal + count):
            return Run(ordinal, entries, pair.read(position, length_bytes), position)
        return self._checked(pair, ordinal, entries)

    def records(self, end_offset: int) -> loops.SegmentRecords | None:
        """Its published records below an offset one by one, until it releases its files, or is asked again; None when
        they are not open, or compressed."""
        pair = self._pair
        if pair is None or pair.framed:
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
        if self._pair is not pair:  # release meanwhile, by somebody who may have come too early to see ours
            records.close()
        return records

    def read_entries(self, first: int, last: int) -> Entries:
        """The index entries of the ordinals [first, last), each valid; stops in front of a damaged one.

        A view of the mapping, for looking at columns. Raises CorruptRecord when the first of them is damaged.
        """
        pair = self._pair_with(self.count)
        entries = self.mapped_entries(pair, first, last)
        return entries[: self._valid_count(first, entries)]

    def read_some(self, ordinals: Ordinals, entries: Entries) -> list[Run]:
        """The records of rising `ordinals`, whose valid entries are `entries`: one pread for each run that
        lies close together. Stops in front of a damaged record; raises CorruptRecord when the first is
        one."""
        pair = self._pair_with(self.count)
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
        """Compaction may have removed records of it: without a trailer, nobody says that it has not."""
        return self.trailer is None or self.trailer.removed_count > 0

    def first_shown(self, ordinal: int) -> int:
        """The first ordinal from this one on that compaction has not removed; `count` when there is none. A damaged
        entry counts as shown: reading it says what is wrong with it."""
        count = self.count
        pair = self._pair_with(count)
        size = 1  # mostly it is this one
        while ordinal < count:
            last, size = min(ordinal + size, count), _RUN_RECORDS
            entries = self.mapped_entries(pair, ordinal, last)
            removed = (entries["flags"] & FLAG_REMOVED) != 0
            passed = len(entries) if removed.all() else int(removed.argmin())
            # What is passed over has to prove that it was removed: a single flipped bit says so, too.
            proven = self.seal.valid_count(entries[:passed], ordinal) if passed else 0
            ordinal += proven
            if proven < len(entries):
                return ordinal
        return ordinal

    def timestamp_at(self, ordinal: int) -> int:
        """The append time of a record; of its nearest earlier neighbour when its entry is damaged."""
        pair = self._pair_with(self.count)
        while ordinal >= 0:
            entry = self.mapped_entries(pair, ordinal, ordinal + 1)
            if self.seal.valid(entry, ordinal)[0]:
                return int(entry["timestamp_us"][0])
            ordinal -= 1
        return 0

    def first_at_or_after(self, timestamp_us: int) -> int:
        """The first ordinal whose timestamp is at or after the given one; `count` when there is none."""
        return bisect.bisect_left(range(self.count), timestamp_us, key=self.timestamp_at)

    def topic_summary(self) -> Summary | None:
        """The sealed segment's topics, sorted; None for a growing one."""
        if self.trailer is None:
            return None
        if self._topics is None:
            start = entry_position(self.trailer.entry_count)
            size = self.trailer.summary_count * SUMMARY.itemsize
            raw = self._index_bytes(start, size)
            if crc32c(raw) != self.trailer.summary_crc:
                return None  # a damaged summary costs its speed-up, nothing else
            self._topics = np.frombuffer(raw, dtype=SUMMARY)
        return self._topics

    def _index_bytes(self, position: int, length_bytes: int) -> bytes:
        """A piece of the index, without opening the segment: many are asked for their topics and few then read."""
        pair = self._pair
        if pair is not None:
            return bytes(pair.index_map[position : position + length_bytes])
        fd = self._files.open(self.index_path)
        try:
            return self._files.pread(fd, length_bytes, position)
        finally:
            self._files.close(fd)

    def mapped_entries(self, pair: OpenPair, first: int, last: int) -> Entries:
        """A view of entries as they are on the disk, unchecked."""
        return np.frombuffer(pair.index_map, dtype=ENTRY, count=last - first, offset=entry_position(first))

    def release(self) -> None:
        """Release the open files; they are opened again when needed."""
        self._pair = None
        records, self._records = self._records, None
        if records is not None:
            records.close()

    def pair(self) -> OpenPair:
        """The open files, with room for at least the published records."""
        return self._pair_with(self.count)

    def _pair_with(self, room: int) -> OpenPair:
        pair = self._pair
        if pair is None or pair.entry_room < room:
            with self._lock:
                pair = self._pair
                if pair is None or pair.entry_room < room:
                    pair = OpenPair(
                        self._files,
                        self.index_path,
                        self.segment_path,
                        self.trailer,
                        self._open_segments.frames,
                    )
                    self._pair = pair
            if pair.entry_room < room:
                raise CorruptRecord(
                    self.index_path, self.base_offset + pair.entry_room, "the index file ends before it"
                )
        self._open_segments.used(self)
        return pair

    def _checked(self, pair: OpenPair, ordinal: int, entries: Entries) -> Run:
        """Read the bytes of `entries` and keep those that prove themselves, up to the first that does not."""
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
        """How many entries at the front hold. Raises CorruptRecord for none."""
        if self._is_verified(ordinal, ordinal + len(entries)):
            return len(entries)
        good = self.seal.valid_count(entries, ordinal)
        if good == 0 and len(entries):
            raise CorruptRecord(
                self.index_path, self.base_offset + ordinal, "its index entry does not match its crc"
            )
        return good

    def _proven_count(self, pair: OpenPair, run: Run, *, strict: bool = True) -> int:
        """How many records at the front have the bytes their entries promise. Raises CorruptRecord for none,
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
        lo, hi = self._verified  # looked at once: another thread may put others in their place
        return lo <= first and last <= hi

    def _note_verified(self, first: int, last: int) -> None:
        lo, hi = self._verified
        self._verified = (min(lo, first), max(hi, last)) if first <= hi and lo <= last else (first, last)


def _mapped(files: Files, index_fd: int) -> mmap:
    """All of an index. Touching a page behind the end of its file is SIGBUS, which no program survives, and a growing
    index is cut behind its entries when it is sealed: nothing but entries that were published is looked at in here."""
    try:
        return files.map(index_fd, files.size(index_fd))
    except ValueError:  # it was sealed in between, which happens once
        return files.map(index_fd, files.size(index_fd))


def _generation(files: Files, index_fd: int, size_bytes: int, path: Path) -> int | None:
    """Which generation of the segment file an index means; None for one that is not sealed, or damaged."""
    try:
        raw = files.pread(index_fd, TRAILER_BYTES, max(size_bytes - TRAILER_BYTES, 0))
        return Trailer.decode(raw, path).generation
    except DamagedIndex:
        return None


_SEGMENT_BYTES_MOST = 1 << 32
_RUN_RECORDS = 65_536
"""The most records of one run: bounds the columns that a read of many tiny records builds."""
_CLOSE_BYTES = 16 * 1024
"""Two wanted records with at most this between them are fetched by one pread: copying it costs less than a
system call."""
