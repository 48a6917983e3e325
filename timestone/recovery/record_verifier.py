"""Verification of the records in damaged or incomplete files of one segment, for `salvage`.

A record is proven when its index entry matches its checksum (salted with log, segment and ordinal) and the bytes it
points to match theirs. Neither needs a header, a trailer or a neighbour. Every index file or fragment of one is
therefore a source of entries, every segment file or fragment a source of bytes, and the checksums decide which belong
together. Pages that the disk fails to read are treated as zeros, which prove no record.

Reads only."""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timestone.compressed.framed_bytes import FramedBytes
from timestone.disk.files import Files
from timestone.errors import CorruptLog
from timestone.index import topics_used
from timestone.kernel import loops
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, Entries
from timestone.kernel.entry_checksum import EntrySeal
from timestone.recovery.record_check import Mask, ends, holding, pieces

CHUNK_ENTRIES = 1 << 16
_PAGE_BYTES = 4096
_UNREADABLE = (errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA)
"""Errors of a bad sector, a failed checksum or a damaged file system."""
_CHANGED = "the file changed during salvage: run it on a copy"


class RawFile:
    """File of which unreadable pages are read as zeros. Opened by the first read, until `close`."""

    def __init__(self, files: Files, path: Path, on_read: Callable[[int], None]) -> None:
        """on_read: called with the size of each read. Raises OSError if the file does not exist."""
        self.path = path
        self.size_bytes = files.stat(path).st_size
        self.unreadable: set[int] = set()
        """Positions of pages that could not be read."""
        self._files = files
        self._on_read = on_read
        self._fd: int | None = None

    def close(self) -> None:
        """Close the descriptor; the next read opens the file again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._files.close(fd)

    def read(self, position: int, length_bytes: int) -> bytes:
        """Return bytes from a position, fewer at the end of the file, with zeros for pages that cannot be read."""
        length_bytes = max(0, min(length_bytes, self.size_bytes - position))
        self._on_read(length_bytes)
        try:
            return self._pread(position, length_bytes)
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
        # From here on page by page: a disk retries a bad sector for seconds.
        pieces, at, end = [], position, position + length_bytes
        while at < end:
            page_end = min(end, at - at % _PAGE_BYTES + _PAGE_BYTES)
            pieces.append(self._read_page(at, page_end - at))
            at = page_end
        return b"".join(pieces)

    def _read_page(self, position: int, length_bytes: int) -> bytes:
        """Return a page or a part of one; zeros if it cannot be read."""
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
    """File with the bytes of a segment from position `shift` on; 0 for a whole segment file."""

    file: RawFile
    shift: int
    framed: FramedBytes | None = None
    """Reader of the frames of a compressed file."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes of the segment in the file."""
        return self.file.size_bytes if self.framed is None else self.framed.size_bytes

    def holds(self, entries: Entries) -> Mask:
        """Return, for each valid entry, whether the file holds the bytes it points to and they match the checksum."""
        holds = np.zeros(len(entries), dtype=np.bool_)
        here = (entries["position"] >= self.shift) & (ends(entries) <= self.shift + self.size_bytes)
        holds[here] = holding(entries[here], self.read)
        return holds

    def read(self, position: int, length_bytes: int) -> bytes:
        """Return bytes by their position in the segment."""
        read = self.file.read if self.framed is None else self.framed.read
        return read(position - self.shift, length_bytes)


@dataclass(frozen=True, slots=True)
class EntrySource:
    """File with index entries of a segment; `first_ordinal` is the ordinal of the entry at `position`."""

    file: RawFile
    seal: EntrySeal
    base_offset: int
    epoch: int
    position: int
    first_ordinal: int
    count: int
    """Number of entries to check, valid or not."""
    aside: bool
    """Set when recovery renamed the file to `.lost`."""

    @property
    def name(self) -> str:
        return self.file.path.name

    def chunks(self, first: int, last: int) -> Iterator[tuple[int, Entries]]:
        """Yield the unchecked entries of the ordinals [first, last) in chunks, each with its first ordinal."""
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
    """Offsets [first, end) whose records are proven by one entry source and one byte source."""

    first: int
    end: int
    entry_source: EntrySource
    byte_source: ByteSource

    def records(self) -> Iterator[tuple[int, Entries, bytes, int]]:
        """Yield first offset, entries, their bytes and the position of those in the segment, a few megabytes at a time.

        Raises CorruptLog when a record that was proven fails its checksum now."""
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
    """Offsets [first, end) whose records are not proven, and the reason."""

    first: int
    end: int
    reason: str


NO_ENTRY, NO_BYTES, PROVEN = range(3)
"""Result of verifying a record; to PROVEN the number of the byte source is added."""
REASONS = {
    NO_ENTRY: "the index entry does not match its checksum",
    NO_BYTES: "the bytes do not match their checksum",
}


class Proofs:
    """Proven and unproven ranges of one entry source, in offset order."""

    def __init__(self, source: EntrySource, byte_sources: Sequence[ByteSource]) -> None:
        """Verify every record of the source."""
        self.proven: list[ProvenRange] = []
        self.unproven: list[UnprovenRange] = []
        self.end_offset = source.base_offset
        """One more than the highest offset with a valid entry."""
        self.topic_count = 0
        """One more than the highest topic id of a proven record."""
        self.source = source
        self._byte_sources = byte_sources
        for ordinal, entries in source.chunks(source.first_ordinal, source.first_ordinal + source.count):
            self._add(ordinal, entries)

    def _add(self, ordinal: int, entries: Entries) -> None:
        first = self.source.base_offset + ordinal
        found = self.source.seal.valid(entries, ordinal).astype(np.int16)
        for number, byte_source in enumerate(self._byte_sources):
            missing = np.flatnonzero(found == NO_BYTES)
            if len(missing):
                found[missing[byte_source.holds(entries[missing])]] = PROVEN + number
        valid = np.flatnonzero(found)
        if len(valid):
            self.end_offset = first + int(valid[-1]) + 1
        self.topic_count = max(self.topic_count, topics_used(entries["topic"][found >= PROVEN]))
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
    """Yield the index ranges [start, end) of equal adjacent values."""
    edges = np.flatnonzero(np.diff(found)) + 1
    starts = [0, *edges.tolist()]
    return zip(starts, [*edges.tolist(), len(found)], strict=True)
