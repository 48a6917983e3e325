"""`spark.read`: one plan, made when the DataFrame is first used, then tasks.

No `pushFilters`: in Spark 4.3 what one query pushed down leaks into others of the same DataFrame, and they return
too few rows. Topics, columns and offsets are pruned by options.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_timestone.arrow import arrow_schema
from pyspark_timestone.continuity import Continuity
from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.options import ReadOptions
from pyspark_timestone.scan import ScanTask, plan, scan
from pyspark_timestone.store_view import chosen_logs

if TYPE_CHECKING:
    import pyarrow as pa

    from timestone import LogView


class TimestoneReader(DataSourceReader):
    """Reads the chosen logs between two bounds."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Runs in the driver. Every record below the end is synced, so the tasks find it whatever happens
        meanwhile."""
        options = self._options
        with chosen_logs(options.path, options.selection) as chosen:
            ranges = [self._range(key, log) for key, log in chosen.views.items()]
            return plan(ranges, chosen.views, options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Runs in a worker."""
        # Spark wants at least one task and makes one up when there is nothing to read.
        if not isinstance(partition, ScanTask):
            return iter(())
        return scan(partition, self._options, arrow_schema(self._schema))

    def _range(self, key: LogPartition, log: "LogView") -> OffsetRange:
        starting, ending = self._options.starting, self._options.ending
        start, end = starting.offset_in(key, log), ending.offset_in(key, log)
        if end < start and starting.explicit and ending.explicit:
            raise InvalidOption(f"{key}: the start {start} lies behind the end {end}")
        wanted = OffsetRange(key, start, max(start, end))
        if not (starting.explicit or ending.explicit):
            return wanted
        return Continuity(self._options.fail_on_data_loss).planned(wanted, None, log)
