"""Who may rename the files of a log's sealed segments, and the moment in which new ones take the place of old ones.

What belongs here: one rewriter a segment, one deletion or replacement at a time, and the wait of readers for it. What
is written is up to `compression.py` and `compaction.py`, in which order on the disk to `replacement.py`."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from timestone.format.deleted_files import DeletedFiles
from timestone.index import Trailer
from timestone.reading.segment_cache import OpenSegments
from timestone.reading.segment_list import History
from timestone.segment import Segment
from timestone.upkeep.maintenance import Maintenance
from timestone.writing.segment_swap import Replacement

_LONGEST_WAIT_S = 5.0


class RewrittenLog(Protocol):
    """A log whose sealed segments can be exchanged for rewritten ones."""

    @property
    def history(self) -> History: ...

    def exchange(self, segment: Segment, trailer: Trailer) -> None: ...


class RewritingStore(Protocol):
    """What the logs of a store share for that."""

    open_segments: OpenSegments
    deleted_files: DeletedFiles
    maintenance: Maintenance


class Rewrites:
    """The rewriting of one log's sealed segments. Any thread may call."""

    def __init__(self, log: RewrittenLog, store: RewritingStore) -> None:
        self._log = log
        self._store = store
        self._claims: dict[int, object] = {}
        self.lock = threading.Lock()
        """Held while files of sealed segments are renamed and the history follows, by whoever does that."""

    def is_claimed(self, segment: Segment) -> bool:
        """Somebody is rewriting this segment now."""
        return segment.base_offset in self._claims

    @contextmanager
    def claim(self, segment: Segment) -> Iterator[bool]:
        """Rewrite a segment, unless another caller does: two replacements of one segment would take each other's
        files. False when it is not free, or was rewritten or deleted since the caller looked at it: the files that
        would be made have the names of those that are there now."""
        me = object()
        try:
            mine = self._claims.setdefault(segment.base_offset, me) is me
            yield mine and segment in self._log.history.segments
        finally:
            if self._claims.get(segment.base_offset) is me:
                del self._claims[segment.base_offset]

    def replace(self, segment: Segment, replacement: Replacement, trailer: Trailer) -> bool:
        """Let prepared files take the place of a sealed segment's; False when it is no longer in the log. `trailer`
        is that of the new index. Raises OSError: the old files serve on."""
        with self.lock:
            if segment not in self._log.history.segments:
                return False
            unneeded = replacement.commit()
            self._log.exchange(segment, trailer)
        self._store.open_segments.forget(segment)
        self._store.deleted_files.add(unneeded)
        self._store.maintenance.expect(self._store.deleted_files.unlink_due)
        return True

    def is_current(self, segment: Segment) -> bool:
        """Is this segment still the log's? For whoever did not find its files as they were: asks once none are being
        renamed, because new ones are in place an instant before the log says so."""
        self.settle()
        return segment in self._log.history.segments

    def settle(self) -> None:
        """Wait while files are being renamed. For a reader that did not find one; not without end, because the
        renaming may wait for a lock that the reader's caller holds."""
        if self.lock.acquire(timeout=_LONGEST_WAIT_S):
            self.lock.release()
