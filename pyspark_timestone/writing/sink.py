"""Sink of `df.write` and `df.writeStream`: appends rows to a log exactly once.

Each task stages its rows in the inbox of the store, itself or through a server, and reports the parts to the driver.
They have no effect until the driver, in `commit`, posts all of them, as one posting for each log. So a task that
failed, ran twice or was overtaken by a speculative copy leaves nothing behind. The owner of the store appends a posting
once by its name, which for a stream is the id of the query and the number of the batch: a repeated batch is not
appended again.

Spark creates writers again in every process. They hold only options."""

import itertools
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_timestone.errors import InvalidRow, SinkFailed
from pyspark_timestone.jvm.worker_heap import freeze_worker_heap
from pyspark_timestone.jvm.worker_process import end_quietly, with_errors_in_one_line
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.columns import arrow_schema
from pyspark_timestone.writing.frames import frames
from pyspark_timestone.writing.rows import batches_of_rows, rows_by_log
from pyspark_timestone.writing.sink_options import SinkOptions
from pyspark_timestone.writing.spools import OpenPart, Spool, spool_of
from timestone.spool.format import Frame, Posting

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of tasks with these ids. Both outlive a restart of the query."""


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """Parts written by one task."""

    task: int
    parts: tuple[tuple[LogPartition, str], ...]
    """In order; several of one log if the task writes to many logs."""
    group: str
    query_id: str = ""


@with_errors_in_one_line
class TimestoneWriter(DataSourceArrowWriter):
    """Writer of one batch write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._group = secrets.token_hex(16)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Stage the rows of one task. Runs in a worker."""
        return _stage(self._options, iterator, self._group)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Post the parts of all tasks. Runs in the driver."""
        # Without ids of the user, a repeated write is a new write.
        producer, number = self._options.transaction or (self._group, 0)
        remembered = self._options.transaction is not None
        _post(self._options, messages, producer, number, remembered=remembered, begins=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the parts. Runs in the driver after a task has finally failed."""
        _discard(self._options, messages)


@with_errors_in_one_line
class TimestoneStreamWriter(DataSourceStreamWriter):
    """Writer of one streaming query for Spark 4.0, which hands over rows; `arrow_stream_sink.py` is for later ones."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Stage the rows of one task. Runs in a worker."""
        return self.stage(batches_of_rows(iterator, arrow_schema(self._schema)))

    def stage(self, batches: "Iterator[pa.RecordBatch]") -> Staged:
        """Stage the rows of one task, named so that a repeated batch is recognised."""
        query_id, batch = _property(_QUERY_ID), _property(_BATCH_ID)
        return _stage(self._options, batches, f"{query_id}-{batch}", query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append what all tasks have staged. Runs in the driver."""
        query_id = next((one.query_id for one in _staged(messages)), "")
        # Where the log is a column, the first batches of a query may have no row.
        begins = self._options.log is None
        _post(self._options, messages, query_id, batchId, remembered=True, begins=begins)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard the parts. Runs in the driver after a task has finally failed."""
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
    options: SinkOptions, batches: "Iterable[pa.RecordBatch]", group: str, query_id: str = ""
) -> Staged:
    end_quietly()
    freeze_worker_heap()
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    rows = rows_by_log(batches, options.log, options.partition, kafka_layout=options.kafka_layout)
    spool = spool_of(options.target)
    try:
        parts = _write_parts(spool, group, frames(rows, options.topic, options.flags, spool.record_bytes()))
    except InvalidRow as error:
        raise InvalidRow(f"Spark's partition {task}, {error}") from None
    return Staged(task, parts, group, query_id)


def _write_parts(
    spool: Spool, group: str, chosen: Iterable[tuple[LogPartition, Frame]]
) -> tuple[tuple[LogPartition, str], ...]:
    """Stage frames, those of a log in one part unless there are very many logs. Leaves nothing behind on an error."""
    made: list[tuple[LogPartition, OpenPart]] = []
    try:
        with ExitStack() as stack:
            open_parts: dict[LogPartition, OpenPart] = {}
            for log, frame in chosen:
                if log not in open_parts:
                    if len(open_parts) == spool.open_parts_most:
                        stack.close()
                        open_parts.clear()
                    open_parts[log] = stack.enter_context(spool.new_part(group, log))
                    made.append((log, open_parts[log]))
                open_parts[log].add(frame)
    except BaseException:
        spool.discard(_named(made))
        raise
    return tuple(_named(made))


def _named(parts: Iterable[tuple[LogPartition, OpenPart]]) -> list[tuple[LogPartition, str]]:
    return [(log, name) for log, part in parts for name in part.names]


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    """Return the parts in the order of Spark's partitions."""
    return sorted((one for one in messages if isinstance(one, Staged)), key=lambda one: one.task)


def _post(
    options: SinkOptions,
    messages: list[WriterCommitMessage | None],
    producer: str,
    number: int,
    *,
    remembered: bool,
    begins: bool,
) -> None:
    end_quietly()
    staged = _staged(messages)
    if not staged:
        return
    # A log named by an option is created even without rows.
    parts: dict[LogPartition, list[str]] = {}
    if options.log is not None:
        parts[LogPartition(options.log, options.partition)] = []
    for log, name in itertools.chain.from_iterable(one.parts for one in staged):
        parts.setdefault(log, []).append(name)
    spool = spool_of(options.target)
    for log in sorted(parts):
        posting = Posting(*log, producer, number, tuple(parts[log]), remembered)
        spool.post(posting, timeout_s=options.timeout_s, begins=begins)
    for group in {one.group for one in staged}:
        spool.discard_group(group)


def _discard(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    spool = spool_of(options.target)
    spool.discard(part for one in _staged(messages) for part in one.parts)
    for group in {one.group for one in _staged(messages)}:
        spool.discard_group(group)
