"""Segment cache: limits the number of open sealed segments, so that a store with a year of segments does not run out
of descriptors or mappings."""

import threading
from collections import OrderedDict

from timestone.compressed.frame_cache import DecodedFrames
from timestone.segment import Segment


class SegmentCache:
    """Most recently read segments of a store; the least recent beyond the limit closes its files. A running read
    keeps the files open until its end (`OpenPair`), so eviction is never an error."""

    def __init__(self, limit: int, frames: DecodedFrames | None = None) -> None:
        """frames: cache of decoded frames of compressed segments."""
        self.frames = frames or DecodedFrames()
        self._limit = limit
        self._recent: OrderedDict[int, Segment] = OrderedDict()
        self._last: Segment | None = None
        self._lock = threading.Lock()

    def used(self, segment: Segment) -> None:
        """Note a read. Cheap if the same segment is read again."""
        if segment is self._last:
            return
        with self._lock:
            self._last = segment
            self._recent[id(segment)] = segment
            self._recent.move_to_end(id(segment))
            evicted = self._recent.popitem(last=False)[1] if len(self._recent) > self._limit else None
        if evicted is not None:
            evicted.release()

    def forget(self, segment: Segment) -> None:
        """Close a segment that was replaced or deleted."""
        with self._lock:
            self._recent.pop(id(segment), None)
            if self._last is segment:
                self._last = None
        segment.release()

    def clear(self) -> None:
        with self._lock:
            segments = list(self._recent.values())
            self._recent.clear()
            self._last = None
        self.frames.clear()
        for segment in segments:
            segment.release()
