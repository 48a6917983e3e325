"""Result of scanning one segment, and its description in a sentence."""

import enum
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from timestone.index import Checkpoint, FrameLayout, IndexHeader, Trailer


class State(enum.StrEnum):
    """State of a segment."""

    SEALED = "sealed"
    CLOSED = "closed"
    """Not sealed, whole and durable: its owner has closed it, and the next one continues it."""
    UNCLOSED = "unclosed"
    """Not sealed, and whole: of a running owner, or after kill -9."""
    TORN = "torn"
    """Not sealed, with bytes after the last verified record."""
    DAMAGED = "damaged"
    """Durable bytes fail their checksum or are missing."""
    ORPHAN = "orphan"
    """One file of the pair is missing or belongs to another segment: no record can be read."""


def durable_count(trailer: Trailer | None, checkpoint: Checkpoint | None) -> int:
    """Return the ordinal below which the records of a segment were durable."""
    newest = trailer or checkpoint
    return newest.entry_count if newest is not None else 0


@dataclass(slots=True)
class SegmentScan:
    """Scan of one segment. Its offsets are [base_offset, base_offset + count)."""

    base_offset: int
    state: State
    reason: str = ""
    header: IndexHeader | None = None
    checkpoint: Checkpoint | None = None
    trailer: Trailer | None = None
    count: int = 0
    """Number of records to serve, damaged ones included."""
    segment_bytes: int = 0
    """Size of those records in the segment."""
    index_file_bytes: int = 0
    segment_file_bytes: int = 0
    damaged: list[int] = field(default_factory=list)
    """Ordinals below `count` whose record is damaged."""
    lost_count: int = 0
    """Number of entries after `count` that look like records."""
    lost_bytes: int = 0
    """Bytes of the segment after the last served record."""
    missing_bytes: int = 0
    """Bytes that the index refers to and the segment file lacks."""
    named_topics: int = 0
    """Number of distinct topics of a sealed segment."""
    topic_count: int = 0
    """One more than the highest topic id in use."""
    first_timestamp_us: int = 0
    last_timestamp_us: int = 0
    loss_proven: bool = False
    """Set when a killed process cannot explain what is missing."""
    never_durable: bool = False
    """Set when the segment follows a torn tail, so that a power loss explains its loss."""
    unborn: bool = False
    """Set when its creation was interrupted: the header is flushed before any record, so it held none."""
    generation: int = 0
    """Generation of the scanned segment file."""
    frames: FrameLayout | None = None
    """Frames of a compressed segment file; None for an uncompressed one."""
    removed_count: int = 0
    """Number of records that compaction removed, as counted by the trailer or among the scanned entries."""
    superseded: bool = False
    """Set when the owner rewrote the records into another segment after a failed flush (writing/fsync_failover.py)."""

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def is_clean(self) -> bool:
        """Return whether its owner has closed or sealed it."""
        return self.state in (State.SEALED, State.CLOSED)

    @property
    def serves(self) -> bool:
        """Return whether there are records to serve."""
        return self.count > 0 and self.state is not State.ORPHAN

    @property
    def epoch(self) -> int:
        """Epoch in the header; 0 without a header."""
        return self.header.epoch if self.header else 0

    def trailer_for_readers(self, log_id: int) -> Trailer | None:
        """Return the trailer. For a rewritten segment whose trailer is damaged, return one made from the scan: without
        topics, and with every record possibly removed."""
        if self.trailer is not None or not self.generation:
            return self.trailer
        return Trailer(
            log_id=log_id,
            base_offset=self.base_offset,
            entry_count=self.count,
            segment_bytes=self.segment_bytes,
            first_timestamp_us=self.first_timestamp_us,
            last_timestamp_us=self.last_timestamp_us,
            sealed_us=0,
            summary_count=0,
            summary_crc=_NO_SUMMARY,
            entries_crc=0,
            headed_count=self.count,
            stored_bytes=self.segment_file_bytes,
            generation=self.generation,
            frames=self.frames,
            removed_count=self.count,
            recovered=True,
        )

    def lost_range(self, following: int) -> tuple[int, int] | None:
        """Return the offsets [first, end) lost as a range, of which no single record can be reported as corrupt; None
        if there are none. following: the base offset of the next segment, or the next offset of the log."""
        if not self.reason or self.superseded or self.never_durable or self.unborn:
            return None
        if self.state is State.ORPHAN or not self.count:
            return (self.base_offset, following) if following > self.base_offset else None
        durable = min(self.base_offset + self.watermark, following)
        return (self.end_offset, durable) if durable > self.end_offset else None

    def lost_behind(self, next_offset: int, epoch: int) -> tuple[int, int] | None:
        """Return the offsets [first, end) of missing segments after this one, the last; None if there are none.
        next_offset, epoch: where the log continues by the catalogue.

        A power loss cannot remove such segments: the directory entries of a segment are durable before its first
        record, and the epoch is incremented whenever records that readers have seen are lost."""
        if not self.is_clean or self.header is None or self.header.epoch != epoch:
            return None
        if self.header.is_replicated:
            return None  # the catalogue has where a replica was to begin again
        return (self.end_offset, next_offset) if next_offset > self.end_offset else None

    @property
    def promised_offset(self) -> int:
        """Offset below which its records were durable, as far as its files tell, and may have been acknowledged; 0
        without an index, which an interrupted cut removes first."""
        return self.base_offset + max(self.watermark, 1) if self.index_file_bytes else 0

    @property
    def watermark(self) -> int:
        """Return the ordinal below which records were durable."""
        return durable_count(self.trailer, self.checkpoint)


_NO_SUMMARY = 1
"""Wrong checksum of an empty summary (0 is right), so that readers skip no segment by it."""


def describe(scan: SegmentScan) -> str:
    """Return a sentence about a segment that was not closed cleanly."""
    where = f"segment {scan.base_offset}"
    if scan.unborn:
        return f"{where} removed: its creation was cut short, it never held a record"
    if scan.state is State.ORPHAN:
        return f"{where} put aside: {scan.reason} ({scan.lost_bytes} bytes)"
    parts = [f"{where} was not closed: kept {scan.count} records"]
    if scan.lost_bytes or scan.lost_count:
        parts.append(f"cut {scan.lost_count} records and {scan.lost_bytes} bytes behind them")
    if scan.reason:
        parts.append(scan.reason)
    return ", ".join(parts)


_FEW = 3


def described(notes: Iterable[str | SegmentScan]) -> tuple[str, ...]:
    """Return a sentence for each note or segment. Many whole segments in a row share one sentence: a process killed
    while it appends faster than the disk flushes leaves dozens."""
    told: list[str] = []
    for whole, group in itertools.groupby(notes, key=_is_whole):
        members = list(group)
        scans = [one for one in members if isinstance(one, SegmentScan)]
        if whole and len(scans) > _FEW:
            count = sum(scan.count for scan in scans)
            first, last = scans[0].base_offset, scans[-1].base_offset
            told.append(
                f"segments {first} to {last}, {len(scans)} of them, were not closed: kept all {count} records"
            )
        else:
            told += [describe(one) if isinstance(one, SegmentScan) else one for one in members]
    return tuple(told)


def _is_whole(note: str | SegmentScan) -> bool:
    return (
        isinstance(note, SegmentScan)
        and note.state is State.UNCLOSED
        and note.count > 0
        and not (note.reason or note.lost_bytes or note.lost_count)
    )
