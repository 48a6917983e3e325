"""Bytes of the records of a segment, read from its compressed file by position in the segment.

Decides which frames a range needs. A frame that does not decode is replaced by its decodable prefix and zeros, which
match no checksum of a record: a damaged frame costs its own records, and readers detect it like any other damage.
Knows no records."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from timestone.compressed.frame_cache import DecodedFrames, MissingDictionary, new_owner
from timestone.compressed.frame_table import (
    TAG_BYTES,
    DamagedTable,
    FrameTable,
    FrameTag,
    Read,
    decode_table,
    frame_count,
    table_bytes,
    walk,
)
from timestone.compressed.zstd import DamagedFrame, FrameDecoder
from timestone.disk.files import Files
from timestone.index import FrameLayout
from timestone.kernel.loops import crc32c

_AHEAD = 16
"""Maximum frames fetched by one read of the file: 4 MiB raw."""


@dataclass(frozen=True, slots=True)
class FramedFile:
    """Compressed segment file with its read function."""

    read: Read
    file_bytes: int
    log_id: int
    base_offset: int


class FramedBytes:
    """Raw bytes of a compressed file. Thread-safe if `read` of the file is."""

    def __init__(
        self,
        file: FramedFile,
        table: FrameTable,
        layout: FrameLayout,
        decoder: FrameDecoder | None,
        frames: DecodedFrames,
    ) -> None:
        self.table = table
        self.layout = layout
        self.damage: dict[int, str] = {}
        """Damage of the frames read so far, by number, including damage that affects no record."""
        self._file = file
        self.decoder = decoder
        """None if the dictionary is missing; every frame is damaged then."""
        self._frames = frames
        self._owner = new_owner()

    @property
    def size_bytes(self) -> int:
        """Return the end of the positions that the file holds or once held."""
        return self.table.raw_bytes

    def read(self, position: int, length_bytes: int) -> bytes:
        """Return bytes from a position, fewer at the end, with zeros for those that cannot be decoded. Raises
        OSError."""
        end = min(position + length_bytes, self.size_bytes)
        if position >= end:
            return b""
        size = self.table.frame_bytes
        first, last = position // size, (end - 1) // size
        pieces = list(self._raw(first, last))
        pieces[-1] = pieces[-1][: end - last * size]
        pieces[0] = pieces[0][position - first * size :]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def damage_in(self, position: int, length_bytes: int) -> str:
        """Return the damage found in a frame of these bytes; empty if none is known."""
        size = self.table.frame_bytes
        for number in range(position // size, (position + length_bytes - 1) // size + 1):
            if reason := self.damage.get(number):
                return f"frame {number} of the file: {reason}"
        return ""

    def _raw(self, first: int, last: int) -> Iterator[bytes]:
        """Yield the frames [first, last] decoded; neighbours are fetched together."""
        positions, sizes = self.table.positions, self.table.sizes
        block, start = b"", 0
        for number in range(first, last + 1):
            raw = self._frames.get(self._owner, number)
            if raw is None:
                at, size = int(positions[number]), int(sizes[number])
                if size and not start <= at <= at + size <= start + len(block):
                    stop = min(last, number + _AHEAD - 1)
                    start, end = at, max(at + size, int(positions[stop] + sizes[stop]))
                    block = self._file.read(start, min(end - start, _AHEAD * self.table.frame_bytes * 2))
                raw = self._decoded(
                    number, memoryview(block)[at - start :][:size] if size else memoryview(b"")
                )
                if number == last:  # a sequential reader begins its next read there
                    self._frames.put(self._owner, number, raw)
            yield raw

    def _decoded(self, number: int, stored: memoryview) -> bytes:
        frame_bytes = self.table.frame_bytes
        raw_bytes = min(frame_bytes, self.table.raw_bytes - number * frame_bytes)
        tag = FrameTag.decode(stored)
        frame = stored[TAG_BYTES:]
        reason = self._mismatch(number, tag, frame)
        raw = b""
        if self.decoder is not None and len(frame):
            try:
                raw = self.decoder.decode(frame, raw_bytes)
            except DamagedFrame as error:
                reason = reason or str(error)
                raw = self.decoder.decode_partly(frame, raw_bytes)
        if reason:
            self.damage[number] = reason
        return raw if len(raw) == raw_bytes else raw.ljust(raw_bytes, b"\0")

    def _mismatch(self, number: int, tag: FrameTag | None, frame: memoryview) -> str:
        """Return what the checksums show to be wrong."""
        if not self.table.sizes[number]:
            return "it was not found"
        if self.decoder is None:
            return "its dictionary is missing or damaged"
        if tag is None:
            return "its tag does not hold"
        mine = (self._file.log_id, self._file.base_offset, number)
        if (tag.log_id, tag.base_offset, tag.number) != mine:
            return "it belongs elsewhere"
        return "" if tag.stored_crc == crc32c(frame) else "its bytes do not match its tag"


def open_framed(
    files: Files,
    folder: Path,
    file: FramedFile,
    frames: DecodedFrames,
    layout: FrameLayout | None,
    raw_bytes: int = 0,
) -> tuple[FramedBytes, str]:
    """Open a compressed file. Return its raw bytes, and what is wrong with its seek table or dictionary; neither
    costs a record while tags and another copy are intact. layout, raw_bytes: as the index states them; None if only
    the tags can tell. Raises OSError, UnsupportedFormat."""
    wrong = "the index does not say how it was compressed"
    table = None
    if layout is not None:
        raw = _table_of(file, frame_count(raw_bytes, layout.frame_bytes))
        try:
            if crc32c(raw) != layout.table_crc:
                raise DamagedTable("it does not match its checksum")
            table = decode_table(
                raw, frame_bytes=layout.frame_bytes, raw_bytes=raw_bytes, file_bytes=file.file_bytes
            )
            wrong = ""
        except DamagedTable as error:
            wrong = f"the seek table: {error}"
    if table is None:
        table, tags = walk(
            file.read, file.file_bytes, log_id=file.log_id, base_offset=file.base_offset, raw_bytes=raw_bytes
        )
        if layout is None:
            layout = FrameLayout(
                table.frame_bytes,
                max((tag.dictionary for tag in tags), default=0),
                crc32c(_table_of(file, len(table.sizes))),
            )
    assert layout is not None
    decoder: FrameDecoder | None = None
    try:
        decoder = frames.decoder(files, folder, file.log_id, layout.dictionary)
    except MissingDictionary as error:
        wrong = str(error)
    return FramedBytes(file, table, layout, decoder, frames), wrong


def _table_of(file: FramedFile, count: int) -> bytes:
    size = table_bytes(count)
    return file.read(max(0, file.file_bytes - size), size)
