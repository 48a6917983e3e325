"""After a failed fsync: write what was not yet durable once more, into a new segment.

Linux marks pages clean when writing them back failed, so asking the same file again would succeed and prove
nothing (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). The records are
still in memory. A new segment takes them from the first offset that was not durable; the old one, from there
on, is superseded: readers and recovery let the segment with the higher base offset win."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from timestone import names
from timestone.entries import ENTRY
from timestone.entry_seal import EntrySeal
from timestone.files import Files
from timestone.index import IndexHeader
from timestone.segment_writer import SegmentWriter
from timestone.tail import TailRun


def rewrite(files: Files, folder: Path, header: IndexHeader, runs: Sequence[TailRun]) -> SegmentWriter:
    """A new segment that starts at `header.base_offset` and holds `runs`, durably.

    Raises OSError, FailedFlush or HalfWritten when the disk refuses this too; the records are then not
    durable."""
    writer = SegmentWriter(files, folder, header)
    try:
        for run in runs:
            writer.write(run.data, _moved(run, writer.seal, writer.count, writer.size_bytes))
        writer.raise_ceiling(writer.end_offset)
        writer.flush(writer.count)
        writer.note_synced(writer.count, writer.size_bytes)
    except BaseException:
        writer.close()
        raise
    return writer


def put_pair_aside(files: Files, folder: Path, base_offset: int) -> None:
    """Rename the files of a segment none of which is durable, because the new one needs their names."""
    taken = set(files.names(folder))
    for path in (names.index_path(folder, base_offset), names.segment_path(folder, base_offset)):
        files.rename(path, names.lost_path(path, taken))


def _moved(run: TailRun, seal: EntrySeal, ordinal: int, position: int) -> bytes:
    entries = np.frombuffer(run.entries, dtype=ENTRY).copy()
    entries["position"] = entries["position"].astype(np.int64) + (position - run.position)
    seal.close(entries, ordinal)
    return entries.tobytes()
