"""`df.write` and `df.writeStream`: rows appended to a log, exactly once.

Each task stages its rows in the store's inbox and tells the driver where; nothing of them counts until the driver, in
`commit`, hands all of them over as one posting. So a task that failed half-way, ran twice or was overtaken by its
speculative twin leaves nothing behind. The owner of the store appends a posting once by its name, which for a stream
is the query's id and the number of the batch: a batch that is run again is not appended again.

Spark makes writers anew in every process. They hold nothing but options.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import timestone
from pyspark_timestone.errors import SinkFailed
from pyspark_timestone.jvm.worker_heap import freeze_worker_heap
from pyspark_timestone.jvm.worker_process import end_quietly
from pyspark_timestone.options.columns import arrow_schema
from pyspark_timestone.writing.frames import batches_of_rows, frames
from pyspark_timestone.writing.sink_options import SinkOptions
from timestone.spool.format import Posting
from timestone.spool.producer import Poster

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Where Spark keeps them for tasks. Both outlive a restart of the query."""


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What one task has written."""

    task: int
    part: str
    group: str
    query_id: str = ""


class TimestoneWriter(DataSourceArrowWriter):
    """One batch write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._group = secrets.token_hex(16)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a worker."""
        return _stage(self._options, iterator, self._group)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs in the driver, once all tasks have staged."""
        # Without ids that the user gives, a write that is repeated, by Spark or by the user, is another write.
        producer, number = self._options.transaction or (self._group, 0)
        _post(self._options, messages, producer, number, remembered=self._options.transaction is not None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs in the driver after a task has failed for good."""
        _discard(self._options, messages)


class TimestoneStreamWriter(DataSourceStreamWriter):
    """Writer of one streaming query for Spark 4.0, which hands over rows; `arrow_stream_sink.py` is for later ones."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Stage the rows of one task. Runs in a worker."""
        return self.stage(batches_of_rows(iterator, arrow_schema(self._schema)))

    def stage(self, batches: "Iterator[pa.RecordBatch]") -> Staged:
        """Stage the rows of one task, named so that a batch that is run again is known."""
        query_id, batch = _property(_QUERY_ID), _property(_BATCH_ID)
        return _stage(self._options, batches, f"{query_id}-{batch}", query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append what all tasks have staged. Runs in the driver."""
        query_id = next((one.query_id for one in _staged(messages)), "")
        _post(self._options, messages, query_id, batchId, remembered=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard what was staged. Runs in the driver after a task has failed for good."""
        _discard(self._options, messages)


def _property(name: str) -> str:
    context = TaskContext.get()
    value = context.getLocalProperty(name) if context is not None else None
    if not value:
        raise SinkFailed(
            f"Spark does not tell the task its {name}, without which a batch cannot be known again"
        )
    return value


def _stage(
    options: SinkOptions, iterator: "Iterator[pa.RecordBatch]", group: str, query_id: str = ""
) -> Staged:
    end_quietly()
    freeze_worker_heap()
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    part = Poster(options.path, timestone.open).stage(group, frames(iterator, options.topic, options.flags))
    return Staged(task, part, group, query_id)


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    """The parts in the order of Spark's partitions."""
    return sorted((one for one in messages if isinstance(one, Staged)), key=lambda one: one.task)


def _post(
    options: SinkOptions,
    messages: list[WriterCommitMessage | None],
    producer: str,
    number: int,
    *,
    remembered: bool,
) -> None:
    end_quietly()
    staged = _staged(messages)
    if not staged:
        return
    poster = Poster(options.path, timestone.open)
    parts = tuple(one.part for one in staged)
    posting = Posting(options.log, options.partition, producer, number, parts, remembered)
    poster.post(posting, timeout_s=options.timeout_s)
    for group in {one.group for one in staged}:
        poster.discard_group(group)


def _discard(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    Poster(options.path, timestone.open).discard(one.part for one in _staged(messages))
