"""Segments made for a test, without a log around them."""

from collections.abc import Sequence
from pathlib import Path

from timestone.disk.files import Files
from timestone.index import IndexHeader, Trailer
from timestone.kernel.entries import NO_TOPIC
from timestone.reading.segment_cache import SegmentCache
from timestone.segment import Segment
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import WriteBatch

LOG_ID = 77


def make_segment(
    folder: Path,
    payloads: Sequence[bytes],
    *,
    base_offset: int = 0,
    topics: Sequence[int] | int = NO_TOPIC,
    first_us: int = 1000,
    step_us: int = 10,
    sealed: bool = True,
    open_segments: SegmentCache | None = None,
) -> Segment:
    """Make a segment with one record a payload, appended `step_us` apart; sealed, or growing without an owner."""
    files = Files()
    writer = SegmentWriter(files, folder, IndexHeader(LOG_ID, base_offset, 1, 0, bytes(16)))
    for number, payload in enumerate(payloads):
        topic = topics if isinstance(topics, int) else topics[number]
        write_batch = WriteBatch([payload], topic)
        now_us = first_us + number * step_us
        writer.write_batch_at(write_batch, now_us)
    trailer: Trailer | None = writer.seal_files(2000) if sealed else None
    writer.close()
    return Segment(
        files,
        folder,
        base_offset,
        LOG_ID,
        open_segments or SegmentCache(8),
        count=len(payloads),
        trailer=trailer,
    )
