"""How far a stream is behind its logs, under the names of Spark's Kafka source.

Spark has no place for the metrics of a source in Python: `metrics` is always empty in its progress. But the offsets are
there, the newest that was seen among them, so a listener can tell."""

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
    """Of one query, when it planned a batch."""

    query: str
    """Its name, or its id when it has none."""
    batch: int
    behind: Mapping[LogPartition, int]
    """Records that were in the log and in no batch; all of a log that the query has not met yet."""

    @property
    def metrics(self) -> dict[str, str]:
        """`minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest` of all partitions, as text
        like in Kafka's progress; empty while there are none."""
        counts = list(self.behind.values())
        if not counts:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(counts)),
            "maxOffsetsBehindLatest": str(max(counts)),
            "avgOffsetsBehindLatest": str(sum(counts) / len(counts)),
        }


def lag_of(progress: StreamingQueryProgress) -> Lag | None:
    """The lag that a progress tells of, `query.lastProgress` or a listener's; None where no source is Timestone's."""
    behind: dict[LogPartition, int] = {}
    ours = False
    for source in progress.sources:
        try:
            read, newest = _positions(source.endOffset), _positions(source.latestOffset)
        except (InvalidOffsets, TypeError, ValueError):
            continue  # somebody else's
        ours = True
        behind.update((key, max(0, end - read.get(key, 0))) for key, end in newest.items())
    return Lag(progress.name or str(progress.id), progress.batchId, behind) if ours else None


class LagListener(StreamingQueryListener):
    """Tells the lag of every Timestone stream of a session after each batch:
    `spark.streams.addListener(LagListener(print))`."""

    def __init__(self, told: Callable[[Lag], None]) -> None:
        """`told` is called in a thread of Spark's. What it raises goes into Spark's log and no further."""
        self._told = told

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """After each batch, and now and then without one."""
        lag = lag_of(event.progress)
        if lag is not None:
            self._told(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """There was nothing new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Its last lag has been told."""


def _positions(text: str) -> Mapping[LogPartition, int]:
    """Raises TypeError, ValueError and InvalidOffsets for what is no text of a Timestone offset."""
    data: Any = json.loads(text)
    if not isinstance(data, dict) or "#" not in data:
        raise ValueError("offsets of another source")
    return SourceOffset.from_json(data).positions
