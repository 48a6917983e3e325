"""The end of a sealed segment as a segment of its own, for a bucket whose history ends in the middle of it.

The segments of two replicas need not have the same boundaries, so what one leader has uploaded may end inside a segment
of the next one. What that is missing is uploaded as if a segment had begun there: the same records and offsets, so that
readers of a bucket know nothing of it, with positions and checksums of entries of their own."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from timestone.disk.files import Files
from timestone.errors import CorruptLog
from timestone.index import COMMITTED_POSITIONS, DamagedIndex, IndexHeader, Trailer, committed_slot
from timestone.kernel.entries import ENTRY, HEADER_BYTES, Entries
from timestone.kernel.entry_checksum import EntrySeal
from timestone.segment import RUN_RECORDS, Segment
from timestone.writing.sealing import SegmentFacts, write_index

from ..buckets.bucket import PIECE_BYTES
from .upload import SegmentChanged, file_pieces


class SegmentTail:
    """The records of a sealed segment from an offset on. Only the new index is written, to a file without a name."""

    def __init__(self, files: Files, folder: Path, segment: Segment, first: int) -> None:
        """folder: of the log, where the new index takes 32 bytes a record. first: offset of a record, not the first one
        of the segment. Raises SegmentChanged when the files were replaced or deleted, CorruptRecord,
        CorruptLog, OSError."""
        assert segment.trailer is not None
        assert segment.base_offset < first < segment.end_offset
        self.epoch = segment.epoch
        self._files, self._segment = files, segment
        self._skipped = first - segment.base_offset
        self._index = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `close`
        try:
            self.trailer = self._write_index(segment.trailer)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._index.close()

    def segment(self) -> Iterator[bytes]:
        """Yield the pieces of the segment, without compression."""
        ordinal = self._skipped
        while ordinal < self._segment.count:
            try:
                run = self._segment.read(ordinal, max_records=RUN_RECORDS, max_bytes=PIECE_BYTES)
            except FileNotFoundError:
                raise SegmentChanged(f"{self._segment.segment_path} was replaced or deleted") from None
            begin = int(run.entries["position"][0]) - run.position
            yield run.data[begin : begin + int(run.entries["length"].sum(dtype="u8"))]
            ordinal += len(run.entries)

    def index(self) -> Iterator[bytes]:
        """Yield the pieces of the index."""
        return file_pieces(
            self._files, self._index.fileno(), self.trailer.file_bytes, self._segment.base_offset
        )

    def _write_index(self, whole: Trailer) -> Trailer:
        segment, first = self._segment, self._segment.base_offset + self._skipped
        try:
            page = self._files.read_part(segment.index_path, HEADER_BYTES)
            header = IndexHeader.decode(page, segment.index_path)._replace(base_offset=first)
        except FileNotFoundError:
            raise SegmentChanged(f"{segment.index_path} was replaced or deleted") from None
        except DamagedIndex as error:
            raise CorruptLog(segment.index_path, str(error)) from None
        slot = committed_slot(segment.end_offset, whole.log_id, first)
        page = (bytes(COMMITTED_POSITIONS[0]) + slot).ljust(HEADER_BYTES, b"\0")
        facts = SegmentFacts(segment.count - self._skipped, segment.bytes_between(first, segment.end_offset))
        return write_index(
            self._files,
            self._index.fileno(),
            header,
            self._entries(whole.log_id),
            facts,
            page,
            whole.sealed_us,
        )

    def _entries(self, log_id: int) -> Iterator[Entries]:
        """Yield the entries of the tail in chunks."""
        segment, ordinal = self._segment, self._skipped
        seal = EntrySeal(log_id, segment.base_offset + self._skipped)
        position = 0
        while ordinal < segment.count:
            entries = segment.read_entries(ordinal, min(ordinal + RUN_RECORDS, segment.count))
            made = seal.placed(entries.tobytes(), ordinal=ordinal - self._skipped, position=position)
            yield np.frombuffer(made, dtype=ENTRY)
            ordinal += len(entries)
            position += int(entries["length"].sum(dtype=np.int64))
