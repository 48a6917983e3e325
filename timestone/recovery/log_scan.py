"""Read-only scan of all segments of one log: which records exist, and at which offset the log continues.

One segment alone does not distinguish a torn tail from damage, nor an interrupted rewrite from a finished one. Its
neighbours do:

- Segments are flushed from the oldest to the newest. If a later segment has durable records, records missing before it
  are damage. If none has, they are a torn tail, and the later segments are dropped too, because their records would
  follow a gap.
- When two segments hold the same offsets, the one of the higher epoch was written after a failed flush
  (timestone/writing/fsync_failover.py). It is used if it is whole."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from timestone.config import SEGMENT_ENTRIES_MAX
from timestone.disk.files import Files
from timestone.recovery.segment_report import SegmentScan, State
from timestone.recovery.segment_scan import examine


def scan_log(
    files: Files,
    folder: Path,
    bases: Sequence[int],
    log_id: int,
    topic_count: int,
    progress: Callable[[int, int], None],
) -> list[SegmentScan]:
    """Return the scan of every segment of a log, in order of base offset. topic_count: the number of names in the topic
    dictionary, see `examine`. `progress` is called with the number of segments scanned and the number of all, before
    the first and after each. Raises UnsupportedFormat, OSError."""
    scans: list[SegmentScan] = []  # newest first: the later segments decide what a bad record means
    durable = False
    progress(0, len(bases))
    for base in reversed(bases):
        look = functools.partial(examine, files, folder, base, log_id, topic_count=topic_count)
        scan = look()
        _settle_overlaps(scan, scans)
        later = next((one for one in reversed(scans) if not one.superseded), None)
        if later is not None and scan.trailer is None and later.epoch > scan.epoch:
            scan = look(most_count=later.base_offset - base)
        if later is not None and _is_cut_before(scan, later):
            if durable:
                scan = look(expected_count=later.base_offset - base)
            else:
                _take_out(scans)
        durable = durable or scan.watermark > 0
        scans.append(scan)
        progress(len(scans), len(bases))
    return scans[::-1]


class Continuation(NamedTuple):
    """Next offset and epoch of a log: after every record that a reader may have seen."""

    next_offset: int
    epoch: int
    jumps: bool
    """Records that readers have seen may be lost, so their offsets are skipped and the epoch is incremented."""


def continuation(scans: Sequence[SegmentScan], next_offset: int, epoch: int, boot_id: bytes) -> Continuation:
    """Return where the log continues. next_offset, epoch: lower bounds; boot_id: of the running system."""
    shown, lost = next_offset, False
    for before, scan in zip((None, *scans), scans, strict=False):
        next_offset = max(next_offset, scan.end_offset)
        epoch = max(epoch, scan.epoch)
        if scan.unborn and before is not None and scan.base_offset > before.end_offset:
            lost = True  # the records before it are gone
        if scan.is_clean or scan.unborn or scan.superseded:
            continue
        # Without a checkpoint the number of its records is unknown: assume the maximum of a segment.
        ceiling = scan.checkpoint.ceiling if scan.checkpoint else 0
        shown = max(shown, ceiling or scan.base_offset + SEGMENT_ENTRIES_MAX)
        same_boot = scan.header is not None and scan.header.boot_id == boot_id and any(boot_id)
        lost = lost or scan.loss_proven or not same_boot
    if lost:
        return Continuation(max(next_offset, shown), epoch + 1, True)
    return Continuation(next_offset, epoch, False)


def replica_continuation(
    scans: Sequence[SegmentScan], next_offset: int, epoch: int, boot_id: bytes
) -> Continuation:
    """Return where a replicated log continues: behind its last record, because the other replicas have what is missing.
    next_offset: where it begins, for one without a segment."""
    ends = [(scan.end_offset, scan.epoch) for scan in scans if scan.serves]
    return Continuation(*(ends[-1] if ends else (next_offset, 0)), jumps=False)


def topics_in_use(scans: Sequence[SegmentScan]) -> int:
    """Return one more than the highest topic id of any record."""
    return max((scan.topic_count for scan in scans), default=0)


def _settle_overlaps(scan: SegmentScan, later: Sequence[SegmentScan]) -> None:
    """Mark the later segments whose records `scan` also holds: remains of an interrupted rewrite, or segments that a
    finished rewrite superseded. `later` begins with the newest."""
    for one in reversed(later):
        if one.base_offset >= scan.end_offset:
            break
        if not one.serves or one.epoch < scan.epoch:
            one.superseded, one.loss_proven, one.state = True, False, State.ORPHAN
            one.reason = f"segment {scan.base_offset} has its records"


def _take_out(later: Sequence[SegmentScan]) -> None:
    """Exclude segments that follow a torn tail and were never durable."""
    for scan in later:
        if scan.superseded:
            continue
        scan.state, scan.loss_proven = State.ORPHAN, True
        if not scan.reason:  # a damaged one may have been durable
            scan.reason = "it follows a torn tail and was never durable"
            scan.never_durable = True


def _is_cut_before(scan: SegmentScan, later: SegmentScan) -> bool:
    """Return whether records are missing between two neighbours. A gap between epochs is intended."""
    if scan.trailer is not None or scan.header is None or later.header is None:
        return False
    return scan.epoch == later.epoch and scan.end_offset < later.base_offset
