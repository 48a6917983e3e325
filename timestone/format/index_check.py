"""Check of the parts of an index file that no record depends on, for verification of a whole store.

Readers work without a damaged header, checkpoint or summary, so nothing else would detect a change there."""

from collections.abc import Callable
from pathlib import Path

from timestone.errors import UnsupportedFormat
from timestone.index import (
    COMMITTED_BYTES,
    COMMITTED_POSITIONS,
    INDEX_HEADER_BYTES,
    SLOT_BYTES,
    SLOT_POSITIONS,
    SUMMARY,
    TRAILER_BYTES,
    Checkpoint,
    DamagedIndex,
    IndexHeader,
    Trailer,
)
from timestone.kernel.entries import HEADER_BYTES, entry_position
from timestone.kernel.loops import crc32c

Read = Callable[[int, int], bytes]
"""Read bytes by position and length."""


def damaged_parts(read: Read, path: Path, trailer: Trailer | None) -> list[str]:
    """Return a sentence for each damaged part. trailer: the expected trailer of a sealed index; None for a growing
    one, of which a crash may leave one slot torn."""
    page = read(0, HEADER_BYTES)
    found = _header_page(page, path, sealed=trailer is not None)
    if trailer is None:
        return found
    summary = read(entry_position(trailer.entry_count), trailer.summary_count * SUMMARY.itemsize)
    if crc32c(summary) != trailer.summary_crc:
        found.append("the topic summary of the index does not match its checksum")
    try:
        # One byte more than expected: a longer file is damaged too.
        if Trailer.decode(read(trailer.file_bytes - TRAILER_BYTES, TRAILER_BYTES + 1), path) != trailer:
            found.append("the trailer of the index is not the one that was written")
    except (DamagedIndex, UnsupportedFormat):
        found.append("the trailer of the index does not match its checksum")
    return found


def _header_page(page: bytes, path: Path, *, sealed: bool) -> list[str]:
    found = []
    used = [(0, INDEX_HEADER_BYTES), *((at, at + SLOT_BYTES) for at in SLOT_POSITIONS)]
    try:
        if IndexHeader.decode(page, path).is_replicated:
            used += [(at, at + COMMITTED_BYTES) for at in COMMITTED_POSITIONS]
    except (DamagedIndex, UnsupportedFormat) as error:
        found.append(f"the header page of the index: {error}")
    slots = [page[at : at + SLOT_BYTES] for at in SLOT_POSITIONS]
    if sealed and any(slot.strip(b"\0") and not Checkpoint.holds(slot) for slot in slots):
        found.append("a checkpoint of the index does not match its checksum")
    ends = [start for start, _ in used[1:]] + [HEADER_BYTES]
    if any(page[end:start].strip(b"\0") for (_, end), start in zip(used, ends, strict=True)):
        found.append("the header page of the index is not empty where it should be")
    return found
