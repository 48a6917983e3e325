"""Fragments of the files of one base offset, as sources of proofs. Distinguishes whole files from cut-off pieces and
finds the original position of a piece.

A recovery quarantines whole files, or the tails that it cuts off (`.lost`); the trailer of the sealed segment states
the position of the cut. Without that trailer, the position of a piece is found by trial: an entry is valid for one
ordinal only."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timestone.compressed.frame_cache import DecodedFrames
from timestone.compressed.frame_table import FRAME_BYTES_MAX, TAG_BYTES, is_framed
from timestone.compressed.framed_bytes import FramedBytes, FramedFile, open_framed
from timestone.disk.files import Files
from timestone.errors import UnsupportedFormat
from timestone.format import names
from timestone.format.deleted_files import deleted_up_to
from timestone.index import TRAILER_BYTES, Checkpoint, DamagedIndex, IndexHeader, Trailer
from timestone.kernel import loops
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES
from timestone.kernel.entry_checksum import EntrySeal
from timestone.recovery.record_verifier import CHUNK_ENTRIES, ByteSource, EntrySource, RawFile
from timestone.recovery.segment_scan import read_trailer

_TRIED_ENTRIES = 8
"""Number of entries of a piece that are tried to find its position."""
_ORDINALS_MAX = 1 << 23


@dataclass(frozen=True, slots=True)
class IndexPages:
    """Valid fixed parts of an index file."""

    file: RawFile
    aside: bool
    header: IndexHeader | None
    checkpoint: Checkpoint | None
    trailer: Trailer | None


class SegmentFragments:
    """Fragments of the segment of one base offset."""

    def __init__(self, base_offset: int, log_id: int) -> None:
        self.base_offset = base_offset
        self.indexes: list[IndexPages] = []
        self.segments: list[RawFile] = []
        self.framed: dict[Path, FramedBytes] = {}
        """Readers of the compressed segment files."""
        self.has_index = False
        """Whether an index exists under its own name, not only in quarantine."""
        self.has_segment = False
        self.notes: list[str] = []
        self._log_id = log_id
        self._seal = EntrySeal(log_id, base_offset)

    def add_index(self, file: RawFile, *, aside: bool) -> None:
        """Add an index file, or the tail of one."""
        self.has_index = self.has_index or not aside
        try:
            self.indexes.append(self._pages(file, aside))
        except UnsupportedFormat as error:
            self.notes.append(str(error))

    def add_segment(self, file: RawFile, *, aside: bool) -> None:
        """Add a segment file, or the tail of one. The one under its own name is tried first."""
        self.has_segment = self.has_segment or not aside
        self.segments.insert(len(self.segments) if aside else 0, file)

    @property
    def own(self) -> IndexPages | None:
        """Return the index under its own name."""
        return next((pages for pages in self.indexes if not pages.aside), None)

    @property
    def files(self) -> list[RawFile]:
        """Return all files."""
        return [*self.segments, *(pages.file for pages in self.indexes)]

    def entry_sources(self) -> list[EntrySource]:
        """Return each index as a source of entries, without pieces whose position is unknown."""
        cut = self._cut()
        sources = []
        for pages in self.indexes:
            whole = self._source(pages, HEADER_BYTES, 0)
            if not pages.aside or pages.header or pages.checkpoint or _holds_any(whole):
                sources.append(whole)
                continue
            ordinals = ([cut.entry_count] if cut else []) + self._found_ordinals(pages.file)
            pieces = (self._source(pages, 0, ordinal) for ordinal in ordinals)
            piece = next((piece for piece in pieces if _holds_any(piece)), None)
            if piece is not None:
                sources.append(piece)
        return sources

    def byte_sources(self, entry_sources: Iterable[EntrySource]) -> list[ByteSource]:
        """Return each segment file as a source of bytes, for every position where it may have begun."""
        cut = self._cut()
        shifts = {cut.segment_bytes} if cut else set()
        for source in entry_sources:
            if source.first_ordinal:
                for ordinal, entries in source.chunks(source.first_ordinal, source.first_ordinal + 1):
                    if source.seal.valid(entries, ordinal)[0]:
                        shifts.add(int(entries["position"][0]))
        return [
            ByteSource(file, shift, self.framed.get(file.path))
            for file in self.segments
            for shift in (0, *(sorted(shifts - {0}) if self._may_be_piece(file) else ()))
        ]

    def _may_be_piece(self, file: RawFile) -> bool:
        return names.parse_aside(file.path.name) is not None and file.path not in self.framed

    def close(self) -> None:
        """Close the descriptors."""
        for file in self.files:
            file.close()

    def _pages(self, file: RawFile, aside: bool) -> IndexPages:
        page = file.read(0, HEADER_BYTES)
        try:
            header = IndexHeader.decode(page, file.path)
            mine = (header.log_id, header.base_offset) == (self._log_id, self.base_offset)
        except DamagedIndex:
            header, mine = None, False
        return IndexPages(
            file,
            aside,
            header if mine else None,
            Checkpoint.latest(page, self._log_id, self.base_offset),
            read_trailer(file.read, file.size_bytes, file.path, self._log_id, self.base_offset),
        )

    def _cut(self) -> Trailer | None:
        """Return the trailer of the segment that a recovery has cut; None if none has."""
        return self.own.trailer if self.own else None

    def _source(self, pages: IndexPages, position: int, first_ordinal: int) -> EntrySource:
        room = max(0, pages.file.size_bytes - position) // ENTRY_BYTES
        return EntrySource(
            pages.file,
            self._seal,
            self.base_offset,
            pages.header.epoch if pages.header else 0,
            position,
            first_ordinal,
            pages.trailer.entry_count if pages.trailer and not first_ordinal else room,
            pages.aside,
        )

    def _found_ordinals(self, file: RawFile) -> list[int]:
        """Return the possible ordinals of the first entry of a piece, by trial."""
        raw = file.read(0, file.size_bytes // ENTRY_BYTES * ENTRY_BYTES)
        entries = np.frombuffer(raw, dtype=ENTRY)
        for place in np.flatnonzero(entries["timestamp_us"] > 0)[:_TRIED_ENTRIES].tolist():
            ordinal = self._ordinal_of(raw[place * ENTRY_BYTES : (place + 1) * ENTRY_BYTES])
            if ordinal is not None and ordinal >= place:
                return [ordinal - place]
        return []

    def _ordinal_of(self, entry: bytes) -> int | None:
        copies, crc = entry * CHUNK_ENTRIES, int.from_bytes(entry[28:], "little")
        for first in range(0, _ORDINALS_MAX, CHUNK_ENTRIES):
            crcs = np.frombuffer(loops.entry_crcs(copies, self._seal.salt_crc, first), dtype=np.uint32)
            found = np.flatnonzero(crcs == crc)
            if len(found):
                return first + int(found[0])
        return None


def _holds_any(source: EntrySource) -> bool:
    return any(
        source.seal.valid(entries, ordinal).any()
        for ordinal, entries in source.chunks(source.first_ordinal, source.first_ordinal + source.count)
    )


def fragments_of(
    files: Files, folder: Path, log_id: int, on_read: Callable[[int], None]
) -> dict[int, SegmentFragments]:
    """Return all files of a log folder that may prove a record, by base offset. Raises OSError."""
    found: dict[int, SegmentFragments] = {}
    present = files.names(folder)
    deleted = deleted_up_to(present)
    for name in present:
        base, aside = names.parse_pair_base(name), False
        suffix = names.INDEX_SUFFIX if name.endswith(names.INDEX_SUFFIX) else names.SEGMENT_SUFFIX
        if base is None and (parsed := names.parse_aside(name)) is not None:
            (suffix, base), aside = parsed, True
        if base is None or base <= deleted:
            continue
        fragments = found.setdefault(base, SegmentFragments(base, log_id))
        file = RawFile(files, folder / name, on_read)
        if suffix == names.INDEX_SUFFIX:
            fragments.add_index(file, aside=aside)
        else:
            fragments.add_segment(file, aside=aside)
        file.close()
    for fragments in found.values():
        for file in fragments.segments:
            if names.is_rewritten_segment(file.path.name) or is_framed(file.read(0, TAG_BYTES)):
                _add_framed(files, folder, fragments, file, log_id)
            file.close()
    return dict(sorted(found.items()))


def _add_framed(files: Files, folder: Path, fragments: SegmentFragments, file: RawFile, log_id: int) -> None:
    """Set the reader of a segment file if it is compressed: by an index, otherwise by its tags."""
    framed_file = FramedFile(file.read, file.size_bytes, log_id, fragments.base_offset)
    trailers = (pages.trailer for pages in fragments.indexes)
    trailer = next((trailer for trailer in trailers if trailer and trailer.frames), None)
    layout, raw_bytes = (trailer.frames, trailer.segment_bytes) if trailer else (None, 0)
    try:
        framed, _ = open_framed(files, folder, framed_file, DecodedFrames(FRAME_BYTES_MAX), layout, raw_bytes)
    except UnsupportedFormat as error:
        fragments.notes.append(str(error))
        return
    if not framed.table.sizes.any():
        return  # rewritten, but not compressed
    fragments.framed[file.path] = framed
    if framed.decoder is None:
        fragments.notes.append(
            f"{file.path.name}: its dictionary, number {framed.layout.dictionary}, is missing or damaged"
        )


def log_ids(files: Files, folder: Path, on_read: Callable[[int], None]) -> list[int]:
    """Return the log ids in the indexes of a folder, most frequent first, for a log whose topic dictionary is
    damaged."""
    votes: dict[int, int] = {}
    for name in files.names(folder):
        if not (
            names.INDEX_SUFFIX in name
            and (names.parse_pair_base(name) is not None or names.parse_aside(name))
        ):
            continue
        file = RawFile(files, folder / name, on_read)
        for log_id in _ids_in(file):
            votes[log_id] = votes.get(log_id, 0) + 1
        file.close()
    return sorted(votes, key=lambda one: -votes[one])


def _ids_in(file: RawFile) -> list[int]:
    page = file.read(0, HEADER_BYTES)
    found = []
    try:
        found.append(IndexHeader.decode(page, file.path).log_id)
    except (DamagedIndex, UnsupportedFormat):
        pass
    found += Checkpoint.log_ids(page)
    try:
        found.append(
            Trailer.decode(
                file.read(max(0, file.size_bytes - TRAILER_BYTES), TRAILER_BYTES), file.path
            ).log_id
        )
    except (DamagedIndex, UnsupportedFormat):
        pass
    return found
