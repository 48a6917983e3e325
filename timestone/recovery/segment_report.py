"""What one segment turned out to be: the result of an examination, for whoever acts on it or explains it."""

import enum
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from timestone.index import Checkpoint, FrameLayout, IndexHeader, Trailer


class State(enum.StrEnum):
    """What a segment turned out to be."""

    SEALED = "sealed"
    UNCLOSED = "unclosed"
    """Not sealed, and whole: what a running owner or a kill -9 leaves."""
    TORN = "torn"
    """Not sealed, with something behind the last proven record."""
    DAMAGED = "damaged"
    """Something that was durable does not hold any more."""
    ORPHAN = "orphan"
    """One file of the pair is missing, or belongs elsewhere: nothing can be served."""


@dataclass(slots=True)
class Finding:
    """One segment, examined. Offsets are [base_offset, base_offset + count)."""

    base_offset: int
    state: State
    reason: str = ""
    header: IndexHeader | None = None
    checkpoint: Checkpoint | None = None
    trailer: Trailer | None = None
    count: int = 0
    """Records to serve, damaged ones among them included."""
    segment_bytes: int = 0
    """Bytes of the segment that those records take."""
    index_file_bytes: int = 0
    segment_file_bytes: int = 0
    damaged: list[int] = field(default_factory=list)
    """Ordinals below `count` that do not hold."""
    lost_count: int = 0
    """Entries behind `count` that look like records."""
    lost_bytes: int = 0
    """Bytes of the segment behind the last served record."""
    missing_bytes: int = 0
    """Bytes that the index knows and the segment file does not have."""
    named_topics: int = 0
    """Distinct topics of a sealed segment."""
    topic_count: int = 0
    """One more than the highest topic id in use."""
    first_timestamp_us: int = 0
    last_timestamp_us: int = 0
    loss_proven: bool = False
    """More is missing than a killed process can explain."""
    never_durable: bool = False
    """It lies behind a torn tail: a power loss can explain that it goes."""
    unborn: bool = False
    """Its creation was cut short: the header page comes before any record and is flushed, so it never had one."""
    generation: int = 0
    """Of the segment file that was examined."""
    frames: FrameLayout | None = None
    """How that was compressed; None if it was not."""
    removed_count: int = 0
    """Records that compaction has removed, as far as the trailer tells or entries were looked at."""
    superseded: bool = False
    """After a failed flush the owner wrote its records again, into another segment (writing/fsync_failover.py)."""

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def serves(self) -> bool:
        """Does it hold records to serve?"""
        return self.count > 0 and self.state is not State.ORPHAN

    @property
    def has_to_go(self) -> bool:
        """Does it serve nothing although it might, to a later look, by what its neighbours prove then?"""
        return not self.serves and self.header is not None and not self.superseded

    @property
    def epoch(self) -> int:
        """Of its header; 0 without one."""
        return self.header.epoch if self.header else 0

    def trailer_for_readers(self, log_id: int) -> Trailer | None:
        """The trailer; of a segment that was rewritten and whose own does not hold, what readers have to know of it:
        then its topics are not known, and any of its records may have been removed."""
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
        """The offsets [first, end) that damage has taken as a whole, so that no single record of them can be said to be
        corrupt; `following`: where the next segment begins, or the log continues."""
        if not self.reason or self.superseded or self.never_durable or self.unborn:
            return None
        if self.state is State.ORPHAN or not self.count:
            return (self.base_offset, following) if following > self.base_offset else None
        durable = min(self.base_offset + self.watermark, following)
        return (self.end_offset, durable) if durable > self.end_offset else None

    def lost_behind(self, next_offset: int, epoch: int) -> tuple[int, int] | None:
        """The offsets [first, end) of segments that are gone, when this one is the last and the catalogue says where
        the log continues in which epoch. No power loss takes them: the names of a segment are durable before its first
        record, and where records were lost with their durability the epoch rises."""
        if self.state is not State.SEALED or self.header is None or self.header.epoch != epoch:
            return None
        return (self.end_offset, next_offset) if next_offset > self.end_offset else None

    @property
    def watermark(self) -> int:
        """Records below this ordinal were durable."""
        return (
            self.trailer.entry_count
            if self.trailer
            else self.checkpoint.entry_count
            if self.checkpoint
            else 0
        )


_NO_SUMMARY = 1
"""No bytes at all have the checksum 0, so this makes an empty summary a damaged one, by which nothing is left out."""


def describe(finding: Finding) -> str:
    """One sentence about a segment that a clean stop would not have left."""
    where = f"segment {finding.base_offset}"
    if finding.unborn:
        return f"{where} removed: its creation was cut short, it never held a record"
    if finding.state is State.ORPHAN:
        return f"{where} put aside: {finding.reason} ({finding.lost_bytes} bytes)"
    parts = [f"{where} was not closed: kept {finding.count} records"]
    if finding.lost_bytes or finding.lost_count:
        parts.append(f"cut {finding.lost_count} records and {finding.lost_bytes} bytes behind them")
    if finding.reason:
        parts.append(finding.reason)
    return ", ".join(parts)


_FEW = 3


def described(notes: Iterable[str | Finding]) -> tuple[str, ...]:
    """Each segment in a sentence, among others. Of whole ones that follow each other and are many, all in one: who
    appends faster than the disk flushes leaves dozens when he is killed."""
    told: list[str] = []
    for whole, group in itertools.groupby(notes, key=_is_whole):
        members = list(group)
        findings = [one for one in members if isinstance(one, Finding)]
        if whole and len(findings) > _FEW:
            count = sum(finding.count for finding in findings)
            first, last = findings[0].base_offset, findings[-1].base_offset
            told.append(
                f"segments {first} to {last}, {len(findings)} of them, were not closed: kept all {count} records"
            )
        else:
            told += [describe(one) if isinstance(one, Finding) else one for one in members]
    return tuple(told)


def _is_whole(note: str | Finding) -> bool:
    return (
        isinstance(note, Finding)
        and note.state is State.UNCLOSED
        and note.count > 0
        and not (note.reason or note.lost_bytes or note.lost_count)
    )
