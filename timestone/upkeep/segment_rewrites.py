"""Exclusive access to the files of a log's sealed segments, and the moment in which new files replace old ones.

What belongs here: one rewriter a segment, one deletion or replacement at a time, and the wait of readers for it.
Contents are written by `compression.py` and `compaction.py`; the order on the disk is in `segment_swap.py`."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from timestone.format.deleted_files import DeletedFiles
from timestone.index import Trailer
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.segment_list import SegmentList
from timestone.segment import Segment
from timestone.upkeep.maintenance import Maintenance
from timestone.writing.segment_swap import SegmentSwap

_LONGEST_WAIT_S = 5.0


class RewrittenLog(Protocol):
    """Log whose sealed segments can be exchanged for rewritten ones."""

    @property
    def segment_list(self) -> SegmentList: ...

    def exchange(self, segment: Segment, trailer: Trailer) -> None: ...


class RewritingStore(Protocol):
    """Parts that the logs of a store share for rewriting."""

    open_segments: SegmentCache
    deleted_files: DeletedFiles
    maintenance: Maintenance


class Rewrites:
    """Rewriting of the sealed segments of one log. Any thread may call."""

    def __init__(self, log: RewrittenLog, store: RewritingStore) -> None:
        self._log = log
        self._store = store
        self._claims: dict[int, object] = {}
        self.lock = threading.Lock()
        """Held while files of sealed segments are renamed and until the segment list follows."""

    def segments(self) -> list[Segment]:
        """Return the segments that may be rewritten, oldest first."""
        return self._log.segment_list.sealed()

    def tombstones_below(self, offset: int) -> int:
        """Return the offset below which tombstones may be removed. offset: below it they are old enough."""
        return offset

    def is_claimed(self, segment: Segment) -> bool:
        """Return whether a segment is being rewritten."""
        return segment.base_offset in self._claims

    @contextmanager
    def claim(self, segment: Segment) -> Iterator[bool]:
        """Claim a segment for rewriting, unless another caller has: two rewrites of one segment would overwrite each
        other's files. False if it is claimed, or was rewritten or deleted since the caller read the segment list: the
        new files would have the names of existing ones."""
        me = object()
        try:
            mine = self._claims.setdefault(segment.base_offset, me) is me
            yield mine and segment in self._log.segment_list.segments
        finally:
            if self._claims.get(segment.base_offset) is me:
                del self._claims[segment.base_offset]

    def replace(self, segment: Segment, replacement: SegmentSwap, trailer: Trailer) -> bool:
        """Replace the files of a sealed segment by prepared ones; return False if it is no longer in the log. trailer:
        of the new index. Raises OSError: the old files stay in use."""
        with self.lock:
            if segment not in self._log.segment_list.segments:
                return False
            unneeded = replacement.commit()
            self._log.exchange(segment, trailer)
        self._store.open_segments.forget(segment)
        self._store.deleted_files.add(unneeded)
        self._store.maintenance.expect(self._store.deleted_files.unlink_due)
        return True

    def is_current(self, segment: Segment) -> bool:
        """Return whether a segment is still in the segment list. For callers that did not find its files: waits until
        no renaming is under way, because new files are in place shortly before the list follows."""
        self.settle()
        return segment in self._log.segment_list.segments

    def settle(self) -> None:
        """Wait while files are being renamed. For a reader that did not find one; the wait is limited, because the
        renaming may wait for a lock that the reader's caller holds."""
        if self.lock.acquire(timeout=_LONGEST_WAIT_S):
            self.lock.release()
