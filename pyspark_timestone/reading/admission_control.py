"""Limits on a micro-batch and the trigger AvailableNow, as requested by Spark 4.2 and later."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_timestone.jvm.worker_process import with_errors_in_one_line
from pyspark_timestone.offsets import LogPartition, Positions, SourceOffset
from pyspark_timestone.options.read_options import ReadOptions
from pyspark_timestone.reading.batch_limits import Patience, end_within
from pyspark_timestone.reading.store_view import ChosenLogs, chosen_logs
from pyspark_timestone.reading.stream_reader import Logs, TimestoneStreamReader


@with_errors_in_one_line
class LimitedStreamReader(TimestoneStreamReader, SupportsTriggerAvailableNow):
    """Reader of the chosen logs for Spark 4.2 and later."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._patience = Patience(options.limits)
        self._limit: ReadLimit = ReadAllAvailable()
        """Limit of the batch that is being planned."""
        self._target: Positions | None = None
        """With the trigger AvailableNow: the end of the run."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits, which is all that Spark takes; every limit of the options is applied here."""
        limits = self._options.limits
        if limits.most_records is not None:
            return ReadMaxRows(limits.most_records)
        if limits.most_bytes is not None:
            return ReadMaxBytes(limits.most_bytes)
        return ReadAllAvailable() if limits.least_records is None else ReadMinRows(limits.least_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run: the current end, for any number of batches."""
        with self._present() as chosen:
            self._target = self._newest(chosen.views)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`; see `end_of_batch`."""
        self._limit = limit
        return self.end_of_batch(start)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return how far the logs are, for the progress report."""
        with self._present() as chosen:
            return SourceOffset(self._newest(chosen.views)).to_json()

    def _present(self) -> AbstractContextManager[ChosenLogs]:
        """Return the existing logs, without a warning about missing ones: only `end_of_batch` knows which of them were
        read before."""
        return chosen_logs(self._options, replace(self._options.selection, may_be_missing=True))

    def _newest(self, logs: Logs) -> dict[LogPartition, int]:
        newest = super()._newest(logs)
        if self._target is None:
            return newest
        return {key: min(end, self._target[key]) for key, end in newest.items() if key in self._target}

    def _admitted(self, starts: Positions, ends: Positions, logs: Logs) -> Positions | None:
        # A run that ends at the current end does not wait for more.
        waiting = sum(ends.values()) - sum(starts.values())
        if waiting and self._target is None and self._patience.waits(waiting):
            return None
        if isinstance(self._limit, ReadAllAvailable):
            return ends
        limits = self._options.limits
        if isinstance(self._limit, ReadMaxRows):
            limits = replace(limits, most_records=self._limit.max_rows)
        sizes = {key: logs[key].segment_sizes() for key in ends} if limits.most_bytes is not None else {}
        return end_within(limits, starts, ends, sizes)
