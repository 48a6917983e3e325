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
from dataclasses import replace
from pathlib import Path

import numpy as np

from timestone.disk.files import Files
from timestone.format import names
from timestone.index import (
    COMMITTED_POSITIONS,
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


def read_entries(files: Files, index_fd: int, count: int) -> Iterator[Entries]:
    """Yield the first `count` entries of an index file unchecked, in chunks; fewer if the file ends before."""
    ordinal = 0
    while ordinal < count:
        raw = files.pread(
            index_fd, min(_CHUNK_ENTRIES, count - ordinal) * ENTRY_BYTES, entry_position(ordinal)
        )
        whole = len(raw) // ENTRY_BYTES
        if whole == 0:
            return
        yield np.frombuffer(raw, dtype=ENTRY, count=whole)
        ordinal += whole


def seal_index(
    files: Files,
    header: IndexHeader,
    folder: Path,
    *,
    count: int,
    segment_bytes: int,
    last: Checkpoint | None,
    now_us: int,
    generation: int = 0,
    stored_bytes: int | None = None,
    frames: FrameLayout | None = None,
    recovered: bool = False,
) -> Trailer:
    """Replace the growing index of a flushed segment by a sealed copy; durable on return.

    last: the newest checkpoint of the growing index. generation, stored_bytes, frames: of the segment file; a growing
    one is never rewritten, but recovery also seals a rewritten segment whose trailer is damaged. On OSError the growing
    index is unchanged, and the call can be repeated."""
    path = names.index_path(folder, header.base_offset)
    temporary = names.with_suffix(path, names.TEMPORARY_SUFFIX)
    try:
        files.unlink(temporary)  # of an earlier try: this folder has one sealer
    except FileNotFoundError:
        pass
    with files.opened(path) as source, files.new_file(temporary) as target:
        chunks = read_entries(files, source, count)
        plain = write_entries(
            files, target, header, chunks, count, segment_bytes, last, now_us, recovered=recovered
        )
        trailer = replace(
            plain,
            generation=generation,
            stored_bytes=segment_bytes if stored_bytes is None else stored_bytes,
            frames=frames,
        )
        files.write_all(target, trailer.encode(), trailer.file_bytes - TRAILER_BYTES)
        if header.is_replicated:
            slots = files.pread(source, HEADER_BYTES - COMMITTED_POSITIONS[0], COMMITTED_POSITIONS[0])
            files.write_all(target, slots, COMMITTED_POSITIONS[0])
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
    for entries in read_entries(files, index_fd, count):
        contents.add(entries)
    if contents.count < count:
        raise OSError(errno.EIO, f"the index ends after {contents.count} of its {count} entries")
    trailer, summary = contents.trailer(count, segment_bytes, now_us)
    # Room after the trailer, too: it must not be at the end of the file before it is durable.
    size, needed = files.size(index_fd), trailer.file_bytes + TRAILER_BYTES
    if size < needed:
        files.reserve(index_fd, size, needed)
    files.write_all(index_fd, summary + trailer.encode(), entry_position(count))
    files.fdatasync(index_fd)
    files.truncate(index_fd, trailer.file_bytes)
    files.fdatasync(index_fd)
    return trailer


def write_entries(
    files: Files,
    target: int,
    header: IndexHeader,
    chunks: Iterable[Entries],
    count: int,
    segment_bytes: int,
    last: Checkpoint | None,
    now_us: int,
    *,
    recovered: bool = False,
) -> Trailer:
    """Write all of a sealed index but its trailer, and return the trailer of a segment file that was never rewritten.
    chunks: the `count` entries. last: the newest checkpoint so far. Raises OSError."""
    ceiling = last.ceiling if last else header.base_offset + count
    final = Checkpoint(
        (last.sequence if last else 0) + 1, count, segment_bytes, max(ceiling, header.base_offset + count)
    )
    page = bytearray(header.encode().ljust(HEADER_BYTES, b"\0"))
    slot = final.encode(header.log_id, header.base_offset)
    page[final.position : final.position + len(slot)] = slot
    files.write_all(target, page, 0)

    contents = _Contents(header, recovered=recovered)
    for entries in map(np.ascontiguousarray, chunks):
        files.write_all(target, entries.view(np.uint8).data, entry_position(contents.count))
        contents.add(entries)
    trailer, summary = contents.trailer(count, segment_bytes, now_us)
    files.write_all(target, summary, entry_position(count))
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

    def trailer(self, count: int, segment_bytes: int, now_us: int) -> tuple[Trailer, bytes]:
        """Return the trailer, for a segment file of `count` records that was never rewritten, and the topic summary
        before it."""
        rows = self._topics.summary()
        summary = rows.tobytes()
        trailer = Trailer(
            log_id=self._header.log_id,
            base_offset=self._header.base_offset,
            entry_count=count,
            segment_bytes=segment_bytes,
            first_timestamp_us=self._first_us,
            last_timestamp_us=self._last_us,
            sealed_us=now_us,
            summary_count=len(rows),
            summary_crc=crc32c(summary),
            entries_crc=self._crc,
            headed_count=self._headed,
            stored_bytes=segment_bytes,
            removed_count=self._removed,
            recovered=self._recovered,
        )
        return trailer, summary
