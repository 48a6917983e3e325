"""Counts of one log, or of all logs of a store."""

from typing import NamedTuple

from timestone.metrics.histogram import Histogram


class LogCounts(NamedTuple):
    """Counts since a log was opened."""

    appended_records: int
    appended_bytes: int
    """Payloads with their headers."""
    writes: Histogram
    """Durations of writes to the page cache, one for each group of batches that were written together."""
    flushes: Histogram
    """Durations of flushes (fdatasync), one for all appends that share it."""


class Durations:
    """Durations of the writes and flushes of all logs, of deleted ones as well."""

    def __init__(self) -> None:
        self.writes = Histogram()
        self.flushes = Histogram()

    def add(self, counts: "LogCounts | Durations") -> None:
        """Add those of one log, or of several."""
        self.writes.add(counts.writes)
        self.flushes.add(counts.flushes)
