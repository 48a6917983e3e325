"""Lag of a stream behind its logs, under the names of Spark's Kafka source.

Spark has no place for metrics of a Python source: `metrics` is always empty in its progress. But the progress has
the offsets, the latest seen included, from which a listener can compute the lag."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pyspark_timestone.errors import InvalidOffsets
from pyspark_timestone.offsets import LogPartition, SourceOffset


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of one query when it planned a batch."""

    query: str
    """Name of the query, or its id if it has none."""
    batch: int
    behind: Mapping[LogPartition, int]
    """Records that are in a log and in no batch yet; all records of a log that the query has not seen."""

    @property
    def metrics(self) -> dict[str, str]:
        """Return `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest` over all
        partitions, as text as in Kafka's progress; empty if there are none."""
        counts = list(self.behind.values())
        if not counts:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(counts)),
            "maxOffsetsBehindLatest": str(max(counts)),
            "avgOffsetsBehindLatest": str(sum(counts) / len(counts)),
        }


def lag_of(progress: StreamingQueryProgress) -> Lag | None:
    """Return the lag in a progress, from `query.lastProgress` or a listener; None if no source is Timestone's."""
    behind: dict[LogPartition, int] = {}
    ours = False
    for source in progress.sources:
        try:
            read, newest = _positions(source.endOffset), _positions(source.latestOffset)
        except (InvalidOffsets, TypeError, ValueError):
            continue  # another source
        ours = True
        behind.update((key, max(0, end - read.get(key, 0))) for key, end in newest.items())
    return Lag(progress.name or str(progress.id), progress.batchId, behind) if ours else None


class LagListener(StreamingQueryListener):
    """Reports the lag of every Timestone stream of a session after each batch:
    `spark.streams.addListener(LagListener(print))`."""

    def __init__(self, told: Callable[[Lag], None]) -> None:
        """told: called in a thread of Spark, which logs its errors."""
        self._told = told

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: no lag is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the lag after each batch, and at intervals without one."""
        lag = lag_of(event.progress)
        if lag is not None:
            self._told(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: there is no new lag."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last lag has been reported."""


def _positions(text: str) -> Mapping[LogPartition, int]:
    """Return the positions in the text of an offset. Raises TypeError, ValueError and InvalidOffsets for other text."""
    data: Any = json.loads(text)
    if not isinstance(data, dict) or "#" not in data:
        raise ValueError("offsets of another source")
    return SourceOffset.from_json(data).positions
