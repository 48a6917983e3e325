"""`spark.read`: one plan, made when the DataFrame is first used, then tasks.

No `pushFilters`: in Spark 4.3 what one query pushed down leaks into others of the same DataFrame, and they return
too few rows. Filters come as an option of each scan, from `DefaultSource.java`, which also leaves out columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.jvm.worker_heap import freeze_worker_heap
from pyspark_timestone.jvm.worker_process import with_errors_in_one_line
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options.bounds import Unmatched
from pyspark_timestone.options.columns import arrow_schema
from pyspark_timestone.options.read_options import ReadOptions
from pyspark_timestone.reading.continuity import Continuity
from pyspark_timestone.reading.scan import ScanTask, plan, scan
from pyspark_timestone.reading.store_view import SourceLog, chosen_logs

if TYPE_CHECKING:
    import pyarrow as pa


@with_errors_in_one_line
class TimestoneReader(DataSourceReader):
    """Reads the chosen logs between two bounds."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks; runs in the driver. Every record below the end is synced, so the tasks find it in any
        case."""
        freeze_worker_heap()
        options = self._options
        with chosen_logs(options, options.selection) as chosen:
            ranges = [] if options.nothing else batch_ranges(options, chosen.views)
            pruned = [options.pushed.pruned(one, chosen.views[one.log]) for one in ranges]
            return plan([one for one in pruned if one.start < one.end], chosen.views, options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Read the records of a task; runs in a worker."""
        # Spark requires at least one task and creates one if there is nothing to read.
        if not isinstance(partition, ScanTask):
            return iter(())
        return scan(partition, self._options, arrow_schema(self._schema))


def batch_ranges(options: ReadOptions, logs: Mapping[LogPartition, SourceLog]) -> list[OffsetRange]:
    """Return the ranges that a batch with these options reads from the current logs. Raises DataLoss, InvalidOption."""
    continuity = Continuity(options.fail_on_data_loss)
    if options.ranges is not None:
        origins = options.ranges.origins
        return [continuity.planned(one, origins.get(one.log), logs[one.log]) for one in options.ranges.ranges]
    for bound in (options.starting, options.ending):
        bound.refuse_others(logs)
    return [_between(options, key, log, continuity) for key, log in logs.items()]


def _between(options: ReadOptions, key: LogPartition, log: SourceLog, continuity: Continuity) -> OffsetRange:
    starting, ending = options.starting, options.ending
    if options.unmatched_start is Unmatched.ERROR:
        starting.refuse_unmatched(key, log)
    start, end = starting.offset_in(key, log), ending.offset_in(key, log)
    if end < start and starting.explicit and ending.explicit:
        raise InvalidOption(
            f"invalid {ending.option}: expected an end of {key} from the start {start} on, got {end}"
        )
    wanted = OffsetRange(key, start, max(start, end))
    if not (starting.explicit or ending.explicit):
        return wanted
    return continuity.planned(wanted, None, log)
