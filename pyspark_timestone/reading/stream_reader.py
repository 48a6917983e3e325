"""`spark.readStream`: the offsets of each micro-batch, then the same tasks as a batch read.

Spark keeps one reader in a process of its own for as long as the query runs, and makes others for the workers, which
only call `read`. Every method opens the store again and answers from that and its arguments, so a restarted query gets
the same answers. `admission_control.py` has what Spark 4.2 added: limits, and the trigger AvailableNow.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_timestone.jvm.worker_process import with_errors_in_one_line
from pyspark_timestone.offsets import LogPartition, Origin, Positions, SourceOffset
from pyspark_timestone.options.bounds import Unmatched
from pyspark_timestone.options.columns import arrow_schema
from pyspark_timestone.options.read_options import ReadOptions
from pyspark_timestone.options.selection import Selection
from pyspark_timestone.reading.consumer_group import ConsumerGroup
from pyspark_timestone.reading.continuity import Continuity, origin_of
from pyspark_timestone.reading.scan import ScanTask, plan, scan
from pyspark_timestone.reading.store_view import ChosenLogs, SourceLog, chosen_logs, writable_store

if TYPE_CHECKING:
    import pyarrow as pa

Logs: TypeAlias = Mapping[LogPartition, SourceLog]


@with_errors_in_one_line
class TimestoneStreamReader(DataSourceStreamReader):
    """Reader of the chosen logs, new ones included. Subclasses answer `latestOffset`, which differs by version."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._continuity = Continuity(options.fail_on_data_loss)
        self._group = (
            None
            if options.group is None
            else ConsumerGroup(writable_store(options), options.group, options.pin)
        )

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins. Called several times; `offsets` explains why that is
        harmless."""
        if self._group is not None:
            self._group.join()
        with self._chosen() as chosen:
            self._options.starting.refuse_others(chosen.views)
            positions = {key: self._begin(key, log) for key, log in chosen.views.items()}
            return SourceOffset.first(positions, _origins(chosen.views)).to_json()

    def end_of_batch(self, start: dict[str, Any]) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`: `start` itself, to the letter, when there is nothing to
        read."""
        begin = SourceOffset.from_json(start)
        if self._group is not None:
            self._group.join()
        with self._chosen(begin.positions) as chosen:
            self._continuity.missing(chosen.missing)
            logs = chosen.views
            newest = self._newest(logs)
            starts = {key: self._resume(key, begin, logs[key]) for key in newest}
            # A new log without records needs no batch yet.
            for key in [key for key in newest if key not in begin.positions and newest[key] <= starts[key]]:
                del newest[key], starts[key]
            ends = self._admitted(starts, {key: max(end, starts[key]) for key, end in newest.items()}, logs)
            if ends is None:
                return start
            # A log that is no longer selected keeps its offset, in case it is selected again.
            positions = {**begin.positions, **_out_of_holes(ends, logs)}
            origins = {**begin.origins, **_origins({key: logs[key] for key in ends})}
            return begin.advanced(positions, origins, starts).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the batch from `start` to `end`; the same ones if it is planned again."""
        begin, stop = SourceOffset.from_json(start), SourceOffset.from_json(end)
        ranges = stop.ranges_since(begin)
        if start == end or not ranges:
            return []
        # Planned ranges are read, even if the selection has changed since.
        keys = tuple(one.log for one in ranges)
        with chosen_logs(self._options, Selection(partitions=keys), keys) as chosen:
            self._continuity.missing(chosen.missing)
            there = [one for one in ranges if one.log in chosen.views]
            ranges = [
                self._continuity.planned(one, stop.origins.get(one.log), chosen.views[one.log])
                for one in there
            ]
            return plan(ranges, chosen.views, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Note that the batch ending here is done, which Spark reports when it plans the next one."""
        if self._group is not None:
            self._group.commit(SourceOffset.from_json(end).positions)

    def stop(self) -> None:
        """Let another query have the group's name. Spark ends the process more often than it calls this."""
        if self._group is not None:
            self._group.leave()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Read the records of a task; runs in a worker."""
        assert isinstance(partition, ScanTask)
        return scan(partition, self._options, arrow_schema(self._schema))

    def _chosen(self, known: Iterable[LogPartition] = ()) -> AbstractContextManager[ChosenLogs]:
        return chosen_logs(self._options, self._options.selection, known)

    def _begin(self, key: LogPartition, log: SourceLog) -> int:
        starting = self._options.starting
        if self._options.unmatched_start is Unmatched.ERROR:
            starting.refuse_unmatched(key, log)
        return self._continuity.start(key, starting.offset_in(key, log), None, log)

    def _resume(self, key: LogPartition, begin: SourceOffset, log: SourceLog) -> int:
        if key not in begin.positions:
            return log.start_offset
        return self._continuity.start(key, begin.positions[key], begin.origins.get(key), log)

    def _newest(self, logs: Logs) -> dict[LogPartition, int]:
        # A given end may be ahead of the log; until the log reaches it, the batch ends at the durable end.
        ending = self._options.ending
        return {key: min(ending.offset_in(key, log), log.synced_offset) for key, log in logs.items()}

    def _admitted(self, starts: Positions, ends: Positions, logs: Logs) -> Positions | None:
        """Return how far the batch reads of what there is; None when it has to wait."""
        return ends


@with_errors_in_one_line
class UnlimitedStreamReader(TimestoneStreamReader):
    """Reader for Spark 4.0 and 4.1: each batch reads all existing records.

    These versions do not state where the batch begins whose end they ask for. It begins where the last one ended, and a
    restarted query has its last batch planned before it asks for the end of the next one."""

    _planned: dict[str, Any] | None = None
    """End of the last batch."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the end of the next batch; see `end_of_batch`."""
        self._planned = self.end_of_batch(self._planned or self.initialOffset())
        return self._planned

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the batch from `start` to `end`."""
        self._planned = end
        return super().partitions(start, end)


def _origins(logs: Logs) -> dict[LogPartition, Origin]:
    return {key: origin_of(log) for key, log in logs.items()}


def _out_of_holes(positions: Positions, logs: Logs) -> dict[LogPartition, int]:
    """Move ends out of gaps left by a power loss, where a limit may stop: the proper place to stop is after the gap."""
    holes = {key: logs[key].gap_at(offset) for key, offset in positions.items()}
    return {key: offset if (hole := holes[key]) is None else hole[1] for key, offset in positions.items()}
