"""The compiled append to prepared files in readable Python: a reference for tests."""

from collections import deque
from collections.abc import Callable
from typing import Any

from timestone.kernel import prepared
from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES
from timestone.kernel.prepared import Budget, Columns, PreparedTail, StoredPieces, StoredRun

__all__ = ["Budget", "Columns", "PreparedLog", "PreparedSegment", "PreparedTail", "StoredPieces", "StoredRun"]


class PreparedSegment(prepared.PreparedSegment):
    """Files of a segment."""

    base_offset: int
    count: int
    size_bytes: int
    created_us: int
    _durable_ceiling: int

    def write_prepared(self, write_batch: Columns, timestamp_us: int) -> bytes | None:
        """Write a batch and return its entries, if that takes two writes to prepared files and nothing else. Return
        None if nothing happened. Raises what `_write_with_entries` raises, which the compiled one calls only for test
        doubles."""
        count, size_bytes = self.count + write_batch.count, self.size_bytes + write_batch.size_bytes
        if (
            HEADER_BYTES + count * ENTRY_BYTES > self._reserved
            or size_bytes > self._ahead
            or self.base_offset + count > self._durable_ceiling
        ):
            return None
        return self._write_with_entries(write_batch, timestamp_us)

    def _write_with_entries(self, write_batch: Any, timestamp_us: int) -> bytes:
        """Write a batch by calls of `Files`."""
        raise NotImplementedError


class PreparedLog(prepared.PreparedLog):
    """End of a log."""

    next_offset: int
    unsynced_bytes: int
    _writer: Any
    _last_timestamp_us: int
    _segment_bytes: int
    _segment_entries: int
    _roll_age_us: int
    _unsynced_runs: deque[Any]
    _now_us: Callable[[], int]
    _run_type: type[Any]

    def write_prepared(self, write_batch: Columns) -> Any:
        """Write a batch and return its run, if that takes two writes to prepared files and nothing else. Return None
        if nothing happened: the segment has no record yet, is full or old, or its files are not prepared. The
        result of `_half_written` after an error."""
        writer = self._writer
        if writer is None or not writer.count:
            return None
        now_us = max(self._now_us(), self._last_timestamp_us)
        if (
            writer.size_bytes + write_batch.size_bytes > self._segment_bytes
            or writer.count + write_batch.count > self._segment_entries
            or now_us - writer.created_us >= self._roll_age_us
        ):
            return None
        position = writer.size_bytes
        try:
            entries = writer.write_prepared(write_batch, now_us)
        except Exception as error:
            return self._half_written(write_batch, error)
        if entries is None:
            return None
        end_offset = self.next_offset + write_batch.count
        run = self._run_type(self.next_offset, end_offset, entries, write_batch.stored, position)
        self._last_timestamp_us = now_us
        self._unsynced_runs.append(run)
        self.unsynced_bytes += write_batch.size_bytes + len(entries)
        self.next_offset = end_offset
        return run

    def _half_written(self, write_batch: Any, error: Exception) -> Any:
        """Write a batch after an error of its segment, elsewhere, or raise the error."""
        raise NotImplementedError
