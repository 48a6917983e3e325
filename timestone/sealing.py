"""Turning a growing index into a sealed one: the same entries, a topic summary, a trailer; in one file that
appears whole.

Used by the log when it rolls and closes, and by recovery. The order is the promise: the segment was flushed
before, the new index is written beside the old one, flushed, renamed over it, and the directory is flushed. A
crash anywhere leaves either the growing index or the sealed one, both valid, and perhaps a `.tmp` that the
next open removes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from timestone import names
from timestone.crc import crc32c
from timestone.entries import ENTRY, ENTRY_BYTES, Entries
from timestone.entry_seal import EntrySeal
from timestone.files import Files
from timestone.index import (
    HEADER_BYTES,
    TRAILER_BYTES,
    Checkpoint,
    FrameLayout,
    IndexHeader,
    TopicCounts,
    Trailer,
    entry_position,
)
from timestone.record import FLAG_REMOVED

_CHUNK_ENTRIES = 1 << 15
"""1 MiB: stays in the caches, and in memory that is used again. Each takes the interpreter from the appends that go on
meanwhile some twenty times, whatever its size."""


def read_entries(files: Files, index_fd: int, count: int) -> Iterator[Entries]:
    """The first `count` entries of an index file as they are, in chunks; stops early where the file ends."""
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
    """Replace the growing index of a flushed segment by a sealed one; durable when it returns.

    last: the newest checkpoint of the growing index. generation, stored_bytes, frames: of the segment file; a growing
    one is never rewritten, but recovery also seals a rewritten segment whose trailer is damaged. On OSError the
    growing index is as it was, and sealing can be tried again."""
    path = names.index_path(folder, header.base_offset)
    temporary = path.with_name(path.name + names.TEMPORARY_SUFFIX)
    try:
        files.unlink(temporary)  # what an earlier try has left: this folder has one sealer
    except FileNotFoundError:
        pass
    source = files.open(path)
    try:
        with files.new_file(temporary) as target:
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
    finally:
        files.close(source)
    files.rename(temporary, path)
    files.sync_directory(folder)
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

    seal = EntrySeal(header.log_id, header.base_offset)
    crc, ordinal, headed, removed, first_us, last_us = 0, 0, 0, 0, 0, 0
    topics = TopicCounts()
    for entries in chunks:
        raw = np.ascontiguousarray(entries).view(np.uint8).data
        files.write_all(target, raw, entry_position(ordinal))
        crc = crc32c(raw, crc)
        # Only recovery can meet damaged entries; their columns must not reach the summary.
        good = entries[seal.valid(entries, ordinal)] if recovered else entries
        if len(good):
            first_us = first_us or int(good["timestamp_us"][0])
            last_us = int(good["timestamp_us"][-1])
            headed += int(np.count_nonzero(good["header_length"]))
            gone = (good["flags"] & FLAG_REMOVED) != 0
            removed += int(np.count_nonzero(gone))
            topics.add((good[~gone] if gone.any() else good)["topic"], ordinal)
        ordinal += len(entries)
    summary = topics.summary()
    summary_raw = summary.tobytes()
    trailer = Trailer(
        log_id=header.log_id,
        base_offset=header.base_offset,
        entry_count=count,
        segment_bytes=segment_bytes,
        first_timestamp_us=first_us,
        last_timestamp_us=last_us,
        sealed_us=now_us,
        summary_count=len(summary),
        summary_crc=crc32c(summary_raw),
        entries_crc=crc,
        headed_count=headed,
        stored_bytes=segment_bytes,
        removed_count=removed,
        recovered=recovered,
    )
    files.write_all(target, summary_raw, entry_position(count))
    return trailer
