"""What readers see of a log, and how they wait for more. Twins of the classes with these names in `_kernel.pyx`."""

from typing import Any


class ParkedWaiters:
    """Waiters of a log that an append may wake."""


class ShownSegments:
    """Segments of a log, by base offset; the last one may grow."""


class ShownSegment:
    """Offsets of a segment that readers see."""

    base_offset: int
    count: int
    """Number of published records; only increases."""


class Published:
    """Records of a log that readers see."""

    _tail: Any
    """A `PreparedTail`."""
    _end: Any
    """A `PreparedEnd`."""
    _commit: Any
    """A `PreparedCommit`."""
    _compacted_to: int
    """Records below this offset may have been removed from segments."""
    _active_segment: Any
    """A `PreparedLog`."""
    wakeups: Any
    """`ParkedWaiters`."""

    def append_now(self, write_batch: Any, woken: list[Any] | None = None) -> range | None:
        """Append a small write batch at level `written` in the caller's thread, and return its offsets; None if the
        append might wait for the disk or for a lock: then `submit` the batch.

        For event loops, which are spared two hand-overs between threads (docs/decisions/0016-direct-writes.md). woken:
        takes the readers that the append wakes, for the caller to wake, also after an error. Errors: see `append`."""
        write_batch.check(self._end.active_segment._record_bytes, len(self._end.topics._names))
        return None

    def single(self, offset: int) -> tuple[int, int, int, int, bytes] | None:
        """Return the record at `offset` if it is the last one, was appended by itself and is still in memory: offset,
        topic id, flags, size of the header block, and stored bytes. None otherwise, also of a closed log."""
        return None

    def published(self, run: Any, write_batch: Any, end_offset: int, woken: list[Any] | None = None) -> None:
        """Make records visible, the tail cache first, so that a reader that sees the new end finds them there. Wakes
        parked readers, or adds what `Wakeups.published` returns to `woken`."""
        self._tail.add(run)
        wakeups, growing = self.wakeups, self._active_segment.segment_list.segments[-1]
        with wakeups.lock:
            self._end_offset = end_offset
            growing.count = end_offset - growing.base_offset
            found = wakeups.published(run.base_offset, write_batch.topic_ids) if wakeups.parked else ()
        if woken is not None:
            woken += found
        elif found:
            wakeups.wake(found)


class ReaderCursor:
    """Place of a reader in its log."""

    def park(self) -> bool:
        """Register for the next append that concerns this reader, at no cost while it waits. Return False if there
        already is something to read. After True, `on_wake` is called exactly once, or `wait` returns."""
        return self._park()

    def _park(self) -> bool:
        """Park any reader; the compiled `park` does not call it for one that has parked before."""
        raise NotImplementedError
