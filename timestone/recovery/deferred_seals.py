"""What the last owner of a log did not flush or did not close, and this one has not made durable yet.

Opening a store has looked at it and proven it, so it can be served. It counts as no more durable than its checkpoint
says until `settle` has flushed and sealed it, and nothing may come to lie behind it before that
(docs/decisions/0021-leftovers.md)."""

from collections.abc import Callable, Sequence

from timestone.index import Trailer
from timestone.recovery.segment_report import Finding, State


class Leftovers:
    """Segments of one log that wait. The log's write lock is held by whoever settles."""

    def __init__(self, findings: Sequence[Finding], settle: Callable[[], None]) -> None:
        """findings: those that wait, in order, at least one. settle: makes all of them durable, and sets the trailers
        of those that could be sealed."""
        self._findings = tuple(findings)
        self._settle = settle

    @property
    def synced_offset(self) -> int:
        """Everything below it is durable already."""
        first = self._findings[0]
        return first.base_offset + min(first.watermark, first.count)

    def settle(self) -> dict[int, Trailer | None]:
        """Make them durable, and return the trailer of each by its base offset; None for one that could not be sealed.
        Raises OSError: they still wait, try again; LogFailed: nobody knows what
        the disk holds."""
        self._settle()
        return {finding.base_offset: finding.trailer for finding in self._findings}


def may_wait(finding: Finding) -> bool:
    """Is it what kill -9 leaves, or a power loss that took nothing of it? Then another look at it, in another process
    or after another crash, finds the same. What has something to be cut off, put aside or said is repaired at once."""
    return (
        finding.state is State.UNCLOSED
        and finding.count > 0
        and not finding.reason
        and not finding.superseded
        and finding.frames is None
        and finding.segment_file_bytes == finding.segment_bytes
    )
