"""Verification of one sealed segment from the disk, in slices.

Reads with pread, never through a mapping: an unreadable page is then an error instead of the end of the process.
Opens its own two files, so it takes no place in the segment cache of readers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from timestone.compressed.frame_cache import DecodedFrames
from timestone.compressed.frame_table import FRAME_BYTES_MAX
from timestone.compressed.framed_bytes import FramedBytes, FramedFile, open_framed
from timestone.disk.files import Files
from timestone.format.index_check import damaged_parts
from timestone.index import TRAILER_BYTES, Trailer
from timestone.kernel.entries import HEADER_BYTES
from timestone.reading.segment_cache import SegmentCache
from timestone.recovery.record_verifier import (
    NO_BYTES,
    NO_ENTRY,
    REASONS,
    ByteSource,
    EntrySource,
    RawFile,
    UnprovenRange,
)
from timestone.segment import Segment
from timestone.writing.segment_swap import SegmentSwap

_REWRITTEN_SLICE_BYTES = 1 << 20


class NotProven(Exception):
    """New files of a segment failed verification, so it keeps its old ones."""


class SegmentCheck:
    """Check of one segment; complete when `slices` is exhausted."""

    def __init__(self, files: Files, segment: Segment, *, index_path: Path | None = None) -> None:
        """index_path: of an index that has not replaced the old one yet. Raises FileNotFoundError if the segment was
        deleted."""
        assert segment.trailer is not None
        self.segment = segment
        self.damaged: list[UnprovenRange] = []
        """Ranges of damaged offsets by chunk; empty ranges for damage that affects no record."""
        self._trailer = segment.trailer
        self._files = files
        self._index = RawFile(files, index_path or segment.index_path, lambda count: None)
        self._data = RawFile(files, segment.segment_path, lambda count: None)

    def slices(self, slice_bytes: int) -> Iterator[int]:
        """Check the segment; yields the bytes read by each slice, about `slice_bytes` at most unless one record is
        larger. Raises OSError if the files cannot be read at all."""
        try:
            # The parts of the index that no record depends on.
            for reason in damaged_parts(self._index.read, self._index.path, self._trailer):
                self._note_page(reason)
            yield HEADER_BYTES + TRAILER_BYTES
            base, seal = self.segment.base_offset, self.segment.seal
            count = self._trailer.entry_count
            source = EntrySource(self._index, seal, base, 0, HEADER_BYTES, 0, count, False)
            data = ByteSource(self._data, 0, self._open_framed())
            seen = 0
            for ordinal, entries in source.chunks(0, count):
                valid = seal.valid(entries, ordinal)
                seen = ordinal + len(entries)
                self._note(base + np.flatnonzero(~valid) + ordinal, NO_ENTRY)
                yield entries.nbytes
                ordinals = np.flatnonzero(valid)
                lengths = np.cumsum(entries["length"][ordinals], dtype=np.int64)
                start = 0
                while start < len(ordinals):
                    before = int(lengths[start - 1]) if start else 0
                    end = max(start + 1, int(np.searchsorted(lengths, before + slice_bytes, side="right")))
                    chosen = ordinals[start:end]
                    holds = data.holds(entries[chosen])
                    self._note(base + chosen[~holds] + ordinal, NO_BYTES)
                    yield int(lengths[end - 1]) - before
                    start = end
            if seen < count:
                self.damaged.append(
                    UnprovenRange(base + seen, base + count, "the index file ends before them")
                )
            for number, reason in sorted(data.framed.damage.items() if data.framed else ()):
                self._note_page(f"frame {number} of {self._data.path.name}: {reason}")
            for file in (self._index, self._data):
                if file.unreadable:
                    self._note_page(
                        f"the disk will not read {len(file.unreadable)} pages of {file.path.name}"
                    )
        finally:
            self._index.close()
            self._data.close()

    def _open_framed(self) -> FramedBytes | None:
        """Return the reader of a compressed segment file; None for an uncompressed one."""
        trailer = self._trailer
        if trailer.frames is None:
            return None
        file = FramedFile(self._data.read, self._data.size_bytes, trailer.log_id, trailer.base_offset)
        framed, wrong = open_framed(
            self._files,
            self._data.path.parent,
            file,
            DecodedFrames(FRAME_BYTES_MAX),
            trailer.frames,
            trailer.segment_bytes,
        )
        if wrong:
            self._note_page(wrong)
        return framed

    def _note_page(self, reason: str) -> None:
        base = self.segment.base_offset
        self.damaged.append(UnprovenRange(base, base, reason))

    def _note(self, offsets: "np.ndarray[tuple[int], np.dtype[np.int64]]", found: int) -> None:
        if len(offsets) == 0:
            return
        edges = np.flatnonzero(np.diff(offsets) > 1) + 1
        for run in np.split(offsets, edges):
            self.damaged.append(UnprovenRange(int(run[0]), int(run[-1]) + 1, REASONS[found]))


def check_rewritten(files: Files, old: Segment, trailer: Trailer, new: SegmentSwap) -> Iterator[int]:
    """Read the prepared files of a segment back, before they replace the old ones, and yield the bytes of each slice.
    trailer: of the new index. Raises NotProven, OSError."""
    folder, opened = old.segment_path.parent, SegmentCache(1)
    copy = Segment(files, folder, old.base_offset, trailer.log_id, opened, trailer=trailer)
    check = SegmentCheck(files, copy, index_path=new.new_index_path)
    yield from check.slices(_REWRITTEN_SLICE_BYTES)
    if check.damaged:
        raise NotProven(f"offset {check.damaged[0].first}: {check.damaged[0].reason}")
