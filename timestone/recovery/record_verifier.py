"""What can be proved from the files of one segment, whatever is left of them: for `salvage`.

A record is proved when its index entry holds (the crc is salted with log, segment and ordinal) and the bytes it
points to hold. Neither needs a header, a trailer or a neighbour. So every index file and every cut-off piece
of one is a source of entries, every segment file and piece a source of bytes, and the checksums say what belongs
together. Bytes that the disk refuses to read are taken for zeros, which prove nothing.

Reads only, and guesses nothing."""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timestone.compressed.framed_bytes import FramedBytes
from timestone.disk.files import Files
from timestone.errors import CorruptLog
from timestone.kernel import loops
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, NO_TOPIC, Entries
from timestone.kernel.entry_checksum import EntrySeal
from timestone.recovery.record_check import Mask, ends, holding, pieces

CHUNK_ENTRIES = 1 << 16
_PAGE_BYTES = 4096
_UNREADABLE = (errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA)
"""What a kernel says of a bad sector, a failed checksum or a damaged file system."""
_CHANGED = "it changes while it is read: salvage from a copy"


class RawFile:
    """A file that is read as far as the disk lets it; opened when it is read, until `close`."""

    def __init__(self, files: Files, path: Path, on_read: Callable[[int], None]) -> None:
        """on_read: told of the bytes of each read. Raises OSError when there is no such file."""
        self.path = path
        self.size_bytes = files.stat(path).st_size
        self.unreadable: set[int] = set()
        """Positions of pages that the disk would not read."""
        self._files = files
        self._on_read = on_read
        self._fd: int | None = None

    def close(self) -> None:
        """Release the descriptor; the next read opens the file again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._files.close(fd)

    def read(self, position: int, length_bytes: int) -> bytes:
        """The bytes from a position on, short at the end of the file, with zeros for pages that cannot be
        read."""
        length_bytes = max(0, min(length_bytes, self.size_bytes - position))
        self._on_read(length_bytes)
        try:
            return self._pread(position, length_bytes)
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
        # From here on page by page: a disk takes seconds over a sector before it gives up.
        pieces, at, end = [], position, position + length_bytes
        while at < end:
            page_end = min(end, at - at % _PAGE_BYTES + _PAGE_BYTES)
            pieces.append(self._read_page(at, page_end - at))
            at = page_end
        return b"".join(pieces)

    def _read_page(self, position: int, length_bytes: int) -> bytes:
        """A page or a part of one; zeros when it is bad."""
        page = position // _PAGE_BYTES * _PAGE_BYTES
        if page not in self.unreadable:
            try:
                return self._pread(position, length_bytes).ljust(length_bytes, b"\0")
            except OSError as error:
                if error.errno not in _UNREADABLE:
                    raise
                self.unreadable.add(page)
        return bytes(length_bytes)

    def _pread(self, position: int, length_bytes: int) -> bytes:
        if self._fd is None:
            self._fd = self._files.open(self.path)
        return self._files.read_all(self._fd, length_bytes, position)


@dataclass(frozen=True, slots=True)
class ByteSource:
    """A file with bytes of a segment: those from `shift` on, 0 for a whole one."""

    file: RawFile
    shift: int
    framed: FramedBytes | None = None
    """How the file is read if it is compressed."""

    @property
    def size_bytes(self) -> int:
        """Of the segment's bytes in the file."""
        return self.file.size_bytes if self.framed is None else self.framed.size_bytes

    def holds(self, entries: Entries) -> Mask:
        """For each valid entry: are the bytes it points to here, and right?"""
        holds = np.zeros(len(entries), dtype=np.bool_)
        here = (entries["position"] >= self.shift) & (ends(entries) <= self.shift + self.size_bytes)
        holds[here] = holding(entries[here], self.read)
        return holds

    def read(self, position: int, length_bytes: int) -> bytes:
        """Bytes by their position in the segment."""
        read = self.file.read if self.framed is None else self.framed.read
        return read(position - self.shift, length_bytes)


@dataclass(frozen=True, slots=True)
class EntrySource:
    """A file with index entries of a segment: `first_ordinal` is that of the entry at `position`."""

    file: RawFile
    seal: EntrySeal
    base_offset: int
    epoch: int
    position: int
    first_ordinal: int
    count: int
    """Entries to look at, whatever they hold."""
    aside: bool
    """The file was put aside by a recovery."""

    @property
    def name(self) -> str:
        return self.file.path.name

    def chunks(self, first: int, last: int) -> Iterator[tuple[int, Entries]]:
        """The entries of the ordinals [first, last) as they are, a chunk at a time, each with its first
        ordinal."""
        last = min(last, self.first_ordinal + self.count)
        while first < last:
            at = self.position + (first - self.first_ordinal) * ENTRY_BYTES
            raw = self.file.read(at, min(CHUNK_ENTRIES, last - first) * ENTRY_BYTES)
            whole = len(raw) // ENTRY_BYTES
            if whole == 0:
                return
            yield first, np.frombuffer(raw, dtype=ENTRY, count=whole)
            first += whole


@dataclass(frozen=True, slots=True)
class ProvenRange:
    """Offsets [first, end), each proved by this entry source and this byte source."""

    first: int
    end: int
    entry_source: EntrySource
    byte_source: ByteSource

    def records(self) -> Iterator[tuple[int, Entries, bytes, int]]:
        """First offset, entries, their bytes and where those begin in the segment: a few megabytes at a time.

        Raises CorruptLog when something does not hold that did."""
        base = self.entry_source.base_offset
        for ordinal, entries in self.entry_source.chunks(self.first - base, self.end - base):
            if not self.entry_source.seal.valid(entries, ordinal).all():
                raise CorruptLog(self.entry_source.file.path, _CHANGED)
            for start, count in pieces(entries):
                piece = np.ascontiguousarray(entries[start : start + count])
                position = int(piece["position"][0])
                data = self.byte_source.read(position, int(ends(piece).max()) - position)
                if loops.proven_count(piece, data, position) < count:
                    raise CorruptLog(self.byte_source.file.path, _CHANGED)
                yield base + ordinal + start, piece, data, position


@dataclass(frozen=True, slots=True)
class UnprovenRange:
    """Offsets [first, end) of which there is no proof, and why."""

    first: int
    end: int
    reason: str


NO_ENTRY, NO_BYTES, PROVEN = range(3)
"""How far the proof of a record gets; from PROVEN on, the number of the byte source is added."""
REASONS = {NO_ENTRY: "the index entry does not hold", NO_BYTES: "the bytes do not hold"}


class Proofs:
    """All that one entry source can prove, and what it cannot, in order."""

    def __init__(self, source: EntrySource, byte_sources: Sequence[ByteSource]) -> None:
        """Checks every record."""
        self.proven: list[ProvenRange] = []
        self.unproven: list[UnprovenRange] = []
        self.end_offset = source.base_offset
        """One more than the highest offset with a valid entry."""
        self.topic_count = 0
        """One more than the highest topic id of a proven record."""
        self.source = source
        self._byte_sources = byte_sources
        for ordinal, entries in source.chunks(source.first_ordinal, source.first_ordinal + source.count):
            self._hear(ordinal, entries)

    def _hear(self, ordinal: int, entries: Entries) -> None:
        first = self.source.base_offset + ordinal
        found = self.source.seal.valid(entries, ordinal).astype(np.int16)
        for number, byte_source in enumerate(self._byte_sources):
            missing = np.flatnonzero(found == NO_BYTES)
            if len(missing):
                found[missing[byte_source.holds(entries[missing])]] = PROVEN + number
        valid = np.flatnonzero(found)
        if len(valid):
            self.end_offset = first + int(valid[-1]) + 1
        topics = entries["topic"][(found >= PROVEN) & (entries["topic"] != NO_TOPIC)]
        if len(topics):
            self.topic_count = max(self.topic_count, int(topics.max()) + 1)
        for start, end in _runs(found):
            self._note(first + start, first + end, int(found[start]))

    def _note(self, first: int, end: int, found: int) -> None:
        if found < PROVEN:
            last = self.unproven[-1] if self.unproven else None
            if last is not None and (last.end, last.reason) == (first, REASONS[found]):
                first = self.unproven.pop().first
            self.unproven.append(UnprovenRange(first, end, REASONS[found]))
            return
        byte_source = self._byte_sources[found - PROVEN]
        before = self.proven[-1] if self.proven else None
        if before is not None and before.end == first and before.byte_source is byte_source:
            first = self.proven.pop().first
        self.proven.append(ProvenRange(first, end, self.source, byte_source))


def _runs(found: npt.NDArray[np.int16]) -> Iterator[tuple[int, int]]:
    """The places [start, end) of neighbours with the same value."""
    edges = np.flatnonzero(np.diff(found)) + 1
    starts = [0, *edges.tolist()]
    return zip(starts, [*edges.tolist(), len(found)], strict=True)
