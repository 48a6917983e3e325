"""Tasks: ranges of offsets of one log, planned in the driver and read as Arrow batches in Spark's Python workers.

A task yields exactly the records it was planned for or fails: fewer rows than planned would be a silent loss.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_timestone.flight.remote_store import RemoteLog
from pyspark_timestone.jvm.worker_heap import freeze_worker_heap, keep_worker_heap
from pyspark_timestone.jvm.worker_process import end_quietly, errors_in_one_line
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.read_options import ReadOptions
from pyspark_timestone.payload.columns import PayloadColumns
from pyspark_timestone.reading.arrow import record_batch
from pyspark_timestone.reading.continuity import Continuity
from pyspark_timestone.reading.kafka_layout import kafka_columns
from pyspark_timestone.reading.planning import cut, within
from pyspark_timestone.reading.store_view import SourceLog, source_view
from timestone import LogView
from timestone.errors import CorruptRecord, UnknownLog
from timestone.reading.batch import Batch

BATCH_RECORDS = 1 << 16
"""Large batches: passing one to Spark has a fixed cost. Below 16,000 rows it reduces the rows/s."""
BATCH_BYTES = 16 << 20
"""Memory of a task is about three times this. At least one record, so a larger one still passes."""


_PLACE = {False: {"log", "partition", "offset"}, True: {"topic", "partition", "offset"}}
"""Columns that say where a record is; with the layout of Kafka, the topic is the log."""


class ScanTask(InputPartition):
    """Task as sent to a worker: a range, and the id of the log for which it was planned."""

    def __init__(self, range: OffsetRange, log_id: int, state: str | None = None) -> None:
        """state: of the log when it was planned, where states are kept (`LogView.state`)."""
        super().__init__(range)
        self.range = range
        self.log_id = log_id
        self.state = state


def plan(
    ranges: Sequence[OffsetRange], logs: Mapping[LogPartition, SourceLog], options: ReadOptions
) -> list[InputPartition]:
    """Return the tasks that read `ranges`. The same ranges give the same tasks; segments without the topics get none.
    Raises DataLoss for offsets of segments that are damaged as a whole or missing; with `failOnDataLoss=false` it
    warns."""
    continuity = Continuity(options.fail_on_data_loss)
    spans: dict[LogPartition, tuple[int, int]] = {}
    """Around all ranges of a log: there may be several."""
    for one in ranges:
        start, end = spans.get(one.log, (one.start, one.end))
        spans[one.log] = min(start, one.start), max(end, one.end)
        for first, following in logs[one.log].lost_offsets(one.start, one.end):
            continuity.lost(
                f"{one.log}: offsets {first} to {following - 1} are lost: no segment has them any more"
            )
    bounds = {
        key: logs[key].segments_with(options.topics, *span)
        if options.topics
        else logs[key].segment_bounds(*span)
        for key, span in spans.items()
    }
    pieces = cut(ranges, bounds, largest=options.records_per_task, least_count=options.partition_count)
    return [ScanTask(piece, logs[piece.log].id, logs[piece.log].state) for piece in pieces]


def scan(task: ScanTask, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range that match the topic filters of `options`, with the columns of `schema`. Raises
    DataLoss for records that are no longer there, CorruptRecord for a damaged one; with `failOnDataLoss=false` both are
    skipped with a warning."""
    with errors_in_one_line():
        yield from _scan(task, options, schema)


def _scan(task: ScanTask, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    end_quietly()
    freeze_worker_heap()
    keep_worker_heap()
    continuity = Continuity(options.fail_on_data_loss)
    key = task.range.log
    with source_view(options) as view:
        try:
            log = view.log_as_of(*key, task.state)
        except UnknownLog:
            continuity.missing([key])
            return
        if log.id != task.log_id:
            continuity.lost(f"{key}: the log was deleted and made again while it was read")
            return
        if isinstance(log, RemoteLog):
            damaged = None if continuity.fail else continuity.lost

            def older(view: LogView, part: OffsetRange) -> Iterator[pa.RecordBatch]:
                for batch in _batches(view, part, options.topics, continuity):
                    if batch:
                        yield record_batch(batch, schema, {})

            for part in _present(log, task.range, continuity):
                yield from log.record_batches(part, options.topics, schema, damaged, older)
            return
        payloads = None if options.payload is None else PayloadColumns(options.payload, schema, task.range)
        with contextlib.nullcontext() if payloads is None else contextlib.closing(payloads):
            counted = _reads_no_record(options, schema)
            for part in _present(log, task.range, continuity):
                if counted and _is_dense(log, part):
                    yield from _places(part, schema)
                    continue
                for batch in _batches(log, part, options.topics, continuity):
                    batch, added = (batch, {}) if payloads is None or not batch else payloads.of(batch)
                    if options.kafka_layout:
                        added = kafka_columns(batch, schema.names)
                    if batch:
                        yield record_batch(batch, schema, added)
            if payloads is not None:
                payloads.finish()


def _reads_no_record(options: ReadOptions, schema: pa.Schema) -> bool:
    """Return whether the index of a segment has all that is asked for. What skips damaged records has to read them."""
    return (
        options.fail_on_data_loss
        and options.payload is None
        and not options.topics
        and _PLACE[options.kafka_layout].issuperset(schema.names)
    )


def _is_dense(log: LogView, part: OffsetRange) -> bool:
    """Return whether each offset of the range is that of a record, according to the ends of the indexes."""
    return not log.look_up(
        lambda segments: any(one.may_have_removed for one in segments.within(part.start, part.end))
    )


def _places(part: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield log, partition and offset of the records of a range without reading any."""
    for start in range(part.start, part.end, BATCH_RECORDS):
        count = min(BATCH_RECORDS, part.end - start)
        made = {
            "offset": pa.array(np.arange(start, start + count, dtype=np.int64)),
            "partition": pa.repeat(pa.scalar(part.log.partition, pa.int32()), count),
        }
        arrays = [made[name] if name in made else pa.repeat(part.log.log, count) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _present(log: SourceLog, wanted: OffsetRange, continuity: Continuity) -> list[OffsetRange]:
    """Return the parts of the range that segments hold: all of it, or the loss is reported."""
    parts = within(wanted, log.segment_bounds(wanted.start, wanted.end))
    missing = wanted.end - wanted.start - sum(part.end - part.start for part in parts)
    if missing:
        continuity.lost(
            f"{wanted.log}: {missing} of the {wanted.end - wanted.start} records of the planned offsets"
            f" [{wanted.start}, {wanted.end}) are gone; the log holds [{log.start_offset}, {log.end_offset})"
        )
    return parts


def _batches(
    log: LogView, wanted: OffsetRange, topics: tuple[str, ...], continuity: Continuity
) -> Iterator[Batch]:
    reader = log.reader(wanted.start, topics=topics or None)
    while reader.offset < wanted.end:
        # Stopping at the end keeps a rare topic from being searched for in the rest of the log.
        left = wanted.end - reader.offset
        try:
            batch = reader.read(max_records=min(BATCH_RECORDS, left), max_bytes=BATCH_BYTES, max_scan=left)
        except CorruptRecord as error:
            if continuity.fail:
                raise
            continuity.lost(str(error))
            reader.seek(error.next_offset)
            continue
        # With a filter, the matches may be after the end: those belong to another task.
        yield batch if reader.offset <= wanted.end else batch.select(batch.offsets < wanted.end)
