"""Failover after a failed fsync: rewrites the records that are not durable into a new segment.

Linux marks pages clean when writing them back failed, so a second fsync of the same file would succeed and prove
nothing (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). The records are still in
memory. A new segment of the next epoch takes them from the first offset that was not durable. The old segments are
superseded from there on: readers and recovery prefer the higher epoch.

The new segment gets its name when it is complete and flushed, and only then are superseded segments put aside, so a
crash at any point leaves every record in one or the other. If both begin at the same offset, the new files replace
the old ones one by one: their records lie at the same positions, so either index fits either segment file."""

from collections.abc import Sequence
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names
from timestone.format.quarantine import Quarantine
from timestone.index import IndexHeader
from timestone.reading.tail_cache import TailRun
from timestone.writing.segment_writer import SegmentWriter


def rewrite(files: Files, folder: Path, header: IndexHeader, runs: Sequence[TailRun]) -> SegmentWriter:
    """Write a new segment that starts at `header.base_offset` and holds `runs`, durable and under its final name.

    Raises OSError, FailedFlush or HalfWritten if this fails too; the records are then not durable."""
    for path in (
        names.index_path(folder, header.base_offset),
        names.segment_path(folder, header.base_offset),
    ):
        files.discard(names.with_suffix(path, names.TEMPORARY_SUFFIX))
    writer = SegmentWriter(files, folder, header, suffix=names.TEMPORARY_SUFFIX)
    try:
        for run in runs:
            place = {"ordinal": writer.count, "position": writer.size_bytes}
            writer.write(run.stored, writer.seal.placed(run.entries, **place))
        writer.raise_ceiling(writer.end_offset)
        writer.flush(writer.count)
        writer.note_synced(writer.count, writer.size_bytes)
        writer.take_name()
    except BaseException:
        writer.close()
        raise
    return writer


def put_pair_aside(files: Files, folder: Path, base_offset: int) -> None:
    """Rename the files of a segment whose records another segment has now."""
    lost_files = Quarantine(files, folder)
    lost_files.keep(names.index_path(folder, base_offset))
    lost_files.keep(names.segment_path(folder, base_offset))
