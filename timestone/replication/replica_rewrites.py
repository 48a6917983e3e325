"""Rewriting of the segments of a replica: compression and compaction, which each replica does for itself.

Only what was shown is rewritten: nothing of it is ever cut, and a record that may be cut replaces no other one.
A tombstone goes once no replica has a record that it deletes."""

from timestone.index import Trailer
from timestone.replication.upkept_replica import UpkeptReplica
from timestone.segment import Segment
from timestone.upkeep.segment_rewrites import Rewrites
from timestone.writing.segment_swap import SegmentSwap


class ReplicaRewrites(Rewrites):
    """As `Rewrites`, for one replica."""

    _log: UpkeptReplica
    tombstone_limit = 0
    """Below it no replica has a record that a later one of its topic replaces."""

    def segments(self) -> list[Segment]:
        """Return the segments that may be rewritten, oldest first. Not the newest one: the committed offset is written
        into it."""
        shown, newest = self._log.end_offset, self._log.segment_list.segments[-1:]
        return [one for one in super().segments() if one.end_offset <= shown and one not in newest]

    def tombstones_below(self, offset: int) -> int:
        """Return the offset below which tombstones may be removed. offset: below it they are old enough."""
        return min(offset, self.tombstone_limit)

    def replace(self, segment: Segment, replacement: SegmentSwap, trailer: Trailer) -> bool:
        """Replace the files of a segment; see `Rewrites.replace`."""
        if segment.trailer is None or trailer.removed_count > segment.trailer.removed_count:
            with self.lock:
                self._log.names_used.compact(segment)
        return super().replace(segment, replacement, trailer)
