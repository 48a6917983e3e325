"""Turning a growing index into a sealed one: the same entries, a topic summary, a trailer.

Used by the log when it rolls and closes (`seal_in_place`), and by recovery (`seal_index`), after the segment was
flushed. A crash at any point leaves either a growing index or a sealed one, both valid.

In place, because the entries need not move: summary and trailer are written after them, where a growing index has room,
and flushed. Only then the file is cut after the trailer, which makes it a sealed one: a trailer counts only at the end
of its file. Until then recovery finds valid entries followed by invalid ones, as after a torn append that was never
acknowledged.

Recovery writes a copy instead, to a file that appears whole: its segment may have arbitrary bytes after the last valid
entry, and pages that a failed flush may have lost. A crash leaves a `.tmp` at most, which the next open removes."""

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timestone.disk.files import Files
from timestone.format import names
from timestone.index import (
    COMMITTED_POSITIONS,
    SLOT_BYTES,
    TRAILER_BYTES,
    Checkpoint,
    FrameLayout,
    IndexHeader,
    TopicCounts,
    Trailer,
)
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES, Entries, entry_position
from timestone.kernel.entry_checksum import EntrySeal
from timestone.kernel.loops import crc32c
from timestone.record import FLAG_REMOVED

_CHUNK_ENTRIES = 1 << 15
"""1 MiB: fits the caches, and is memory that is used again. Each chunk takes the interpreter from concurrent appends
some twenty times, regardless of its size."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Facts of a segment file for its index. Recovery alone seals a rewritten one, when its trailer is damaged."""

    count: int
    """Number of its records, removed ones included."""
    segment_bytes: int
    """Size of the records as appended."""
    generation: int = 0
    stored_bytes: int | None = None
    """Size of the file, if it is not that of the records."""
    frames: FrameLayout | None = None


def read_entries(files: Files, index_fd: int, count: int) -> Iterator[tuple[int, Entries]]:
    """Yield the first `count` entries of an index file unchecked, in chunks, each with its first ordinal; fewer if the
    file ends before."""
    ordinal = 0
    while ordinal < count:
        raw = files.pread(
            index_fd, min(_CHUNK_ENTRIES, count - ordinal) * ENTRY_BYTES, entry_position(ordinal)
        )
        whole = len(raw) // ENTRY_BYTES
        if whole == 0:
            return
        yield ordinal, np.frombuffer(raw, dtype=ENTRY, count=whole)
        ordinal += whole


def seal_index(
    files: Files,
    header: IndexHeader,
    folder: Path,
    facts: SegmentFacts,
    now_us: int,
    *,
    recovered: bool = False,
) -> Trailer:
    """Replace the growing index of a flushed segment by a sealed copy; durable on return. On OSError the growing index
    is unchanged, and the call can be repeated."""
    path = names.index_path(folder, header.base_offset)
    temporary = names.with_suffix(path, names.TEMPORARY_SUFFIX)
    files.discard(temporary)  # of an earlier try: this folder has one sealer
    with files.opened(path) as source, files.new_file(temporary) as target:
        page = files.pread(source, HEADER_BYTES, 0)
        chunks = (entries for _, entries in read_entries(files, source, facts.count))
        trailer = write_index(files, target, header, chunks, facts, page, now_us, recovered=recovered)
    files.rename(temporary, path)
    files.sync_directory(folder)
    return trailer


def seal_in_place(
    files: Files, index_fd: int, header: IndexHeader, *, count: int, segment_bytes: int, now_us: int
) -> Trailer:
    """Turn a growing index into a sealed one; durable on return.

    Its `count` entries and their records are durable; bytes after them have no effect. Other processes may have it
    mapped, and read no further than its entries. On OSError it is still a growing index, or a sealed one that a power
    loss may turn back into a growing one, and the call can be repeated."""
    contents = _Contents(header)
    for _, entries in read_entries(files, index_fd, count):
        contents.add(entries)
    if contents.count < count:
        raise OSError(errno.EIO, f"the index ends after {contents.count} of its {count} entries")
    trailer, summary = contents.trailer(SegmentFacts(count, segment_bytes), now_us)
    # Room after the trailer, too: it must not be at the end of the file before it is durable.
    size, needed = files.size(index_fd), trailer.file_bytes + TRAILER_BYTES
    if size < needed:
        files.reserve(index_fd, size, needed)
    files.write_all(index_fd, summary + trailer.encode(), entry_position(count))
    files.fdatasync(index_fd)
    files.truncate(index_fd, trailer.file_bytes)
    files.fdatasync(index_fd)
    return trailer


def write_index(
    files: Files,
    target: int,
    header: IndexHeader,
    chunks: Iterable[Entries],
    facts: SegmentFacts,
    page: bytes,
    now_us: int,
    *,
    recovered: bool = False,
) -> Trailer:
    """Write a sealed index to an empty file, and return its trailer. chunks: the entries. page: header page of the
    index that it replaces, with the newest checkpoint so far, and in a replicated log with the committed offset.
    recovered: some entries may be damaged. Raises OSError."""
    last = Checkpoint.latest(page, header.log_id, header.base_offset)
    end_offset = header.base_offset + facts.count
    ceiling = max(last.ceiling if last else 0, end_offset)
    final = Checkpoint((last.sequence if last else 0) + 1, facts.count, facts.segment_bytes, ceiling)
    fresh = bytearray(header.encode().ljust(HEADER_BYTES, b"\0"))
    fresh[final.position : final.position + SLOT_BYTES] = final.encode(header.log_id, header.base_offset)
    if header.is_replicated:
        fresh[COMMITTED_POSITIONS[0] :] = page[COMMITTED_POSITIONS[0] :]
    files.write_all(target, fresh, 0)

    contents = _Contents(header, recovered=recovered)
    for entries in map(np.ascontiguousarray, chunks):
        files.write_all(target, entries.view(np.uint8).data, entry_position(contents.count))
        contents.add(entries)
    trailer, summary = contents.trailer(facts, now_us)
    files.write_all(target, summary + trailer.encode(), entry_position(facts.count))
    return trailer


class _Contents:
    """Contents of the trailer of an index, computed from chunks of its entries."""

    def __init__(self, header: IndexHeader, *, recovered: bool = False) -> None:
        self.count = 0
        self._header = header
        self._seal = EntrySeal(header.log_id, header.base_offset)
        self._recovered = recovered
        self._crc = self._headed = self._removed = self._first_us = self._last_us = 0
        self._topics = TopicCounts()

    def add(self, entries: Entries) -> None:
        """Add the next entries, in the order of the index and contiguous in memory."""
        self._crc = crc32c(entries.view(np.uint8).data, self._crc)
        # Only recovery can meet damaged entries; their columns must not reach the summary.
        good = entries[self._seal.valid(entries, self.count)] if self._recovered else entries
        if len(good):
            self._first_us = self._first_us or int(good["timestamp_us"][0])
            self._last_us = int(good["timestamp_us"][-1])
            self._headed += int(np.count_nonzero(good["header_length"]))
            gone = (good["flags"] & FLAG_REMOVED) != 0
            self._removed += int(np.count_nonzero(gone))
            self._topics.add((good[~gone] if gone.any() else good)["topic"], self.count)
        self.count += len(entries)

    def trailer(self, facts: SegmentFacts, now_us: int) -> tuple[Trailer, bytes]:
        """Return the trailer, and the topic summary before it."""
        rows = self._topics.summary()
        summary = rows.tobytes()
        trailer = Trailer(
            log_id=self._header.log_id,
            base_offset=self._header.base_offset,
            entry_count=facts.count,
            segment_bytes=facts.segment_bytes,
            first_timestamp_us=self._first_us,
            last_timestamp_us=self._last_us,
            sealed_us=now_us,
            summary_count=len(rows),
            summary_crc=crc32c(summary),
            entries_crc=self._crc,
            headed_count=self._headed,
            stored_bytes=facts.segment_bytes if facts.stored_bytes is None else facts.stored_bytes,
            generation=facts.generation,
            frames=facts.frames,
            removed_count=self._removed,
            recovered=self._recovered,
        )
        return trailer, summary
