"""Rewriting of one sealed segment without removed records, in slices, and verification of the result before it replaces
the old files.

Decides which bytes stay and what an index entry becomes. `compaction.py` chooses the records, `segment_swap.py`
exchanges the files.

The entry of a removed record stays in place, without topic and bytes and marked as removed. So the ordinal of a
record is still its offset minus the base offset, for every reader, check and repair."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from timestone.disk.files import Files
from timestone.index import IndexHeader, Trailer
from timestone.kernel.entries import ENTRY, HEADER_BYTES, NO_TOPIC, Entries
from timestone.record import FLAG_REMOVED
from timestone.segment import Run, Segment
from timestone.upkeep.segment_check import check_rewritten
from timestone.writing.sealing import SegmentFacts, write_index
from timestone.writing.segment_swap import SegmentSwap

_CHUNK_ENTRIES = 1 << 16
_SLICE_BYTES = 1 << 20

Mask = npt.NDArray[np.bool_]


class CompactedCopy:
    """New files of a segment without some of its records. Complete when `slices` is exhausted; then commit the swap.
    Always call `close`."""

    def __init__(self, files: Files, segment: Segment, removed: Mask) -> None:
        """removed: whether each ordinal is removed, those already removed included. Raises OSError."""
        assert segment.trailer is not None
        assert len(removed) == segment.count
        self.trailer = segment.trailer
        """Trailer of the new index, once written."""
        self._files = files
        self._segment = segment
        self._removed = removed
        self._pair = segment.pair()
        self.replacement = SegmentSwap(files, segment.segment_path.parent, segment.trailer)

    def close(self) -> None:
        """Remove the new files, unless they were committed."""
        self.replacement.discard()

    def slices(self) -> Iterator[int]:
        """Do the work; yields the bytes of each slice. Raises CorruptRecord or NotProven if a record of the
        segment or the copy fails verification, DamagedIndex for a damaged header page, OSError."""
        ordinal, position = 0, 0
        while ordinal < self._segment.count:
            run = self._segment.read(ordinal, max_records=_CHUNK_ENTRIES, max_bytes=_SLICE_BYTES)
            kept = _kept_bytes(run, ~self._removed[ordinal : ordinal + len(run.entries)])
            self._files.write_all(self.replacement.segment_fd, kept, position)
            position += len(kept)
            ordinal += len(run.entries)
            yield len(run.data)
        self._segment_bytes = position
        self.trailer = self.replacement.prepare(self._write_index)
        yield from check_rewritten(self._files, self._segment, self.trailer, self.replacement)

    def _write_index(self, fd: int) -> Trailer:
        old = self.trailer
        page = bytes(self._pair.index_map[:HEADER_BYTES])
        header = IndexHeader.decode(page, self._segment.index_path)
        facts = SegmentFacts(old.entry_count, self._segment_bytes, self.replacement.generation)
        return write_index(
            self._files, fd, header, self._entries(), facts, page, old.sealed_us, recovered=old.recovered
        )

    def _entries(self) -> Iterator[Entries]:
        """Yield the entries of the copy in chunks."""
        end = 0
        for first in range(0, self._segment.count, _CHUNK_ENTRIES):
            last = min(first + _CHUNK_ENTRIES, self._segment.count)
            entries = np.array(self._segment.mapped_entries(self._pair, first, last))
            gone = self._removed[first:last]
            entries["flags"][gone] = FLAG_REMOVED
            entries["topic"][gone] = NO_TOPIC
            for column in ("length", "header_length", "data_crc"):
                entries[column][gone] = 0
            made = self._segment.seal.placed(entries.tobytes(), ordinal=first, position=end)
            end += int(entries["length"].sum(dtype=np.int64))
            yield np.frombuffer(made, dtype=ENTRY)


def _kept_bytes(run: Run, kept: Mask) -> bytes:
    """Return the bytes of the kept records of a run, concatenated."""
    starts = run.entries["position"].astype(np.int64) - run.position
    ends = starts + run.entries["length"]
    if kept.all() and (starts[1:] == ends[:-1]).all():
        return run.data[int(starts[0]) : int(ends[-1])] if len(starts) else b""
    # Adjacent kept records are one slice.
    begins = np.flatnonzero(kept & ~np.concatenate([[False], kept[:-1] & (starts[1:] == ends[:-1])]))
    finishes = np.flatnonzero(kept & ~np.concatenate([kept[1:] & (starts[1:] == ends[:-1]), [False]]))
    pieces = zip(starts[begins].tolist(), ends[finishes].tolist(), strict=True)
    return b"".join([run.data[start:end] for start, end in pieces])
