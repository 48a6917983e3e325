"""Rewriting of one sealed segment in compressed form, in slices, and verification of the result before it replaces the
old files.

Reads, encodes, writes and checks. `compression.py` chooses the segment, `segment_swap.py` exchanges the files,
`frame_table.py` has the format.

The last step reads the new files back and checks every record. If a record fails in the source or the copy, the
segment keeps its old files: compression never makes damage worse."""

from collections.abc import Iterator

from timestone.compressed.frame_table import FRAME_BYTES, FrameTag, encode_table, frame_count
from timestone.compressed.zstd import FrameEncoder
from timestone.disk.files import Files
from timestone.index import TRAILER_BYTES, FrameLayout, Trailer
from timestone.kernel.loops import crc32c
from timestone.recovery.record_verifier import RawFile
from timestone.segment import Segment
from timestone.upkeep.segment_check import check_rewritten
from timestone.writing.segment_swap import SegmentSwap

_SLICE_FRAMES = 4


class CompressedCopy:
    """Compressed files of a segment. Complete when `slices` is exhausted; then commit the swap. Always call `close`."""

    def __init__(self, files: Files, segment: Segment, encoder: FrameEncoder, dictionary: int = 0) -> None:
        """dictionary: number of the one that the encoder uses. Raises OSError."""
        assert segment.trailer is not None
        self.trailer = segment.trailer
        """Trailer of the new index, once written."""
        self._files = files
        self._segment = segment
        self._encoder = encoder
        self._dictionary = dictionary
        self._source = RawFile(files, segment.segment_path, lambda count: None)
        self.replacement = SegmentSwap(files, segment.segment_path.parent, segment.trailer)

    def close(self) -> None:
        """Remove the new files, unless they were committed."""
        self._source.close()
        self.replacement.discard()

    def slices(self) -> Iterator[int]:
        """Do the work; yields the raw bytes of each slice. Raises NotProven, OSError."""
        tags: list[FrameTag] = []
        position, raw_bytes = 0, self.trailer.segment_bytes
        count = frame_count(raw_bytes, FRAME_BYTES)
        for first in range(0, count, _SLICE_FRAMES):
            length = min(_SLICE_FRAMES * FRAME_BYTES, raw_bytes - first * FRAME_BYTES)
            raw = memoryview(self._source.read(first * FRAME_BYTES, length))
            pieces = []
            for number in range(first, min(first + _SLICE_FRAMES, count)):
                at = (number - first) * FRAME_BYTES
                frame = self._encoder.encode(raw[at : at + FRAME_BYTES])
                tags.append(self._tag(number, len(raw[at : at + FRAME_BYTES]), frame))
                pieces += [tags[-1].encode(), frame]
            block = b"".join(pieces)
            self._files.write_all(self.replacement.segment_fd, block, position)
            position += len(block)
            yield length
        table = encode_table(tags)
        self._files.write_all(self.replacement.segment_fd, table, position)
        layout = FrameLayout(FRAME_BYTES, self._dictionary, crc32c(table))
        self.trailer = self.trailer._replace(
            generation=self.replacement.generation,
            stored_bytes=position + len(table),
            frames=layout,
        )
        self.replacement.prepare(self._write_index)
        yield from check_rewritten(self._files, self._segment, self.trailer, self.replacement)

    def _tag(self, number: int, raw_bytes: int, frame: bytes) -> FrameTag:
        return FrameTag(
            self.trailer.log_id,
            self.trailer.base_offset,
            number,
            FRAME_BYTES,
            raw_bytes,
            len(frame),
            crc32c(frame),
            self._dictionary,
        )

    def _write_index(self, fd: int) -> Trailer:
        """Copy the entries and the summary, and append the new trailer."""
        with self._files.opened(self._segment.index_path) as source:
            end = self.trailer.file_bytes - TRAILER_BYTES
            self._files.copy_bytes(source, fd, 0, end)
        self._files.write_all(fd, self.trailer.encode(), end)
        return self.trailer
