"""What the segments of one log prove together: which records are there, and where it continues. Reads only; changes
nothing.

A segment alone does not tell a torn tail from damage, nor a rewrite that was cut short from one that was finished. Its
neighbours do:

- A flush goes through the segments from the oldest on. So in front of one that has something durable, what is missing
  is damage. In front of one that has not, it is a torn tail, and what lies behind it goes as well: it would be
  records behind a hole.
- Of two that have records of the same offsets, the one of the higher epoch was written after a failed flush
  (timestone/writing/fsync_failover.py) and counts, if it is whole."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from timestone.config import SEGMENT_ENTRIES_MAX
from timestone.disk.files import Files
from timestone.recovery.segment_report import Finding, State
from timestone.recovery.segment_scan import examine


class LogExamination:
    """The examination of one log folder."""

    def __init__(self, files: Files, folder: Path, log_id: int, topic_count: int) -> None:
        """topic_count: how many topics the log's dictionary has, see `examine`."""
        self._files = files
        self._folder = folder
        self._log_id = log_id
        self._topic_count = topic_count

    def run(self, bases: Sequence[int], progress: Callable[[int, int], None]) -> list[Finding]:
        """Every segment, in order of its base offset. `progress` is called with how many have been examined and how
        many there are, before the first and after each. Raises UnsupportedFormat, OSError."""
        findings: list[Finding] = []  # newest first, because the later ones say what a bad record means
        durable = False
        progress(0, len(bases))
        for base in reversed(bases):
            finding = self._examine(base)
            _settle_overlaps(finding, findings)
            later = next((one for one in reversed(findings) if not one.superseded), None)
            if later is not None and finding.trailer is None and later.epoch > finding.epoch:
                finding = self._examine(base, most_count=later.base_offset - base)
            if later is not None and _is_cut_before(finding, later):
                if durable:
                    finding = self._examine(base, expected_count=later.base_offset - base)
                else:
                    _take_out(findings)
            durable = durable or finding.watermark > 0
            findings.append(finding)
            progress(len(findings), len(bases))
        return findings[::-1]

    def _examine(self, base: int, *, expected_count: int = 0, most_count: int | None = None) -> Finding:
        return examine(
            self._files,
            self._folder,
            base,
            self._log_id,
            topic_count=self._topic_count,
            expected_count=expected_count,
            most_count=most_count,
        )


class Continuation(NamedTuple):
    """Where a log continues: behind everything that was ever shown to a reader."""

    next_offset: int
    epoch: int
    jumps: bool
    """Offsets may be gone that readers have seen, so the next ones are left out and the epoch rises."""


def continuation(findings: Sequence[Finding], next_offset: int, epoch: int, boot_id: bytes) -> Continuation:
    """Where the log of these segments continues. next_offset, epoch: at least these; boot_id: of now."""
    shown, lost = next_offset, False
    for before, finding in zip((None, *findings), findings, strict=False):
        next_offset = max(next_offset, finding.end_offset)
        epoch = max(epoch, finding.epoch)
        if finding.unborn and before is not None and finding.base_offset > before.end_offset:
            lost = True  # it would have been next to records that are gone
        if finding.state is State.SEALED or finding.unborn or finding.superseded:
            continue
        # Without a checkpoint, nobody knows how many records it had: as many as fit into any segment.
        ceiling = finding.checkpoint.ceiling if finding.checkpoint else 0
        shown = max(shown, ceiling or finding.base_offset + SEGMENT_ENTRIES_MAX)
        same_boot = finding.header is not None and finding.header.boot_id == boot_id and any(boot_id)
        lost = lost or finding.loss_proven or not same_boot
    if lost:
        return Continuation(max(next_offset, shown), epoch + 1, True)
    return Continuation(next_offset, epoch, False)


def topics_in_use(findings: Sequence[Finding]) -> int:
    """One more than the highest topic id of any record."""
    return max((finding.topic_count for finding in findings), default=0)


def _settle_overlaps(finding: Finding, later: Sequence[Finding]) -> None:
    """Mark the later segments whose records `finding` has: the rest of a rewrite that was cut short, or what a finished
    one has superseded. `later` begins with the newest."""
    for one in reversed(later):
        if one.base_offset >= finding.end_offset:
            break
        if not one.serves or one.epoch < finding.epoch:
            one.superseded, one.loss_proven, one.state = True, False, State.ORPHAN
            one.reason = f"segment {finding.base_offset} has its records"


def _take_out(later: Sequence[Finding]) -> None:
    """Serve nothing of segments that lie behind a torn tail and were never durable."""
    for finding in later:
        if finding.superseded:
            continue
        finding.state, finding.loss_proven = State.ORPHAN, True
        if not finding.reason:  # else it is damaged, and what may have been durable cannot be known
            finding.reason = "it follows a torn tail and was never durable"
            finding.never_durable = True


def _is_cut_before(finding: Finding, later: Finding) -> bool:
    """Are there records missing between two neighbours? Between epochs a gap is meant to be."""
    if finding.trailer is not None or finding.header is None or later.header is None:
        return False
    return finding.epoch == later.epoch and finding.end_offset < later.base_offset
