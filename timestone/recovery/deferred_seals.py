"""Segments that an earlier owner left unclosed and that are served before they are flushed and sealed.

Opening a store verifies their records, so they can be read at once. Until `DeferredSeals.settle` has flushed and sealed
them, they are only as durable as their checkpoints state, and no record may be appended behind them
(docs/decisions/0021-leftovers.md)."""

from collections.abc import Callable, Sequence

from timestone.index import Trailer
from timestone.recovery.segment_report import SegmentScan, State


class DeferredSeals:
    """Verified but unsealed segments of one log. `settle` is called under the write lock of the log."""

    def __init__(self, scans: Sequence[SegmentScan], settle: Callable[[], None]) -> None:
        """scans: the segments in offset order, at least one. settle: makes all of them durable and sets the trailer of
        each that could be sealed."""
        self._scans = tuple(scans)
        self._settle = settle

    @property
    def synced_offset(self) -> int:
        """Return the offset below which every record is durable."""
        first = self._scans[0]
        return first.base_offset + min(first.watermark, first.count)

    def settle(self) -> dict[int, Trailer | None]:
        """Make the segments durable. Return the trailer of each by base offset; None for one that could not be sealed.

        Raises OSError when nothing changed and a retry may succeed; LogFailed when a flush failed, so that the contents
        of the disk are unknown."""
        self._settle()
        return {scan.base_offset: scan.trailer for scan in self._scans}


def may_wait(scan: SegmentScan) -> bool:
    """Return whether the segment is whole and only lacks its seal, as after kill -9.

    A later scan of such a segment, by another process or after another crash, gives the same result. A segment with a
    torn tail, with damage or with anything to report is repaired at once."""
    return (
        scan.state is State.UNCLOSED
        and scan.count > 0
        and not scan.reason
        and not scan.superseded
        and scan.frames is None
        and scan.segment_file_bytes == scan.segment_bytes
    )
