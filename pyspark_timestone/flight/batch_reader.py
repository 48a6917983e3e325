"""`spark.read` over Arrow Flight: one plan in the driver, then a task for each endpoint."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_timestone.flight.client import Ends, FlightTask, ends, records, tasks
from pyspark_timestone.flight.options import FlightOptions
from pyspark_timestone.jvm.worker_process import with_errors_in_one_line
from pyspark_timestone.options.columns import arrow_schema


def first_offset(options: FlightOptions, log: str, found: Ends) -> int:
    """Return where a read of a log begins."""
    if isinstance(options.starting, str):
        return found.start if options.starting == "earliest" else found.end
    return options.starting[log]


@with_errors_in_one_line
class FlightReader(DataSourceReader):
    """Reads logs of a server between two bounds."""

    def __init__(self, options: FlightOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks; runs in the driver."""
        options, ranges = self._options, {}
        for log, found in ends(options).items():
            end = found.end if isinstance(options.ending, str) else options.ending[log]
            ranges[log] = (first_offset(options, log, found), end)
        return tasks(options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task; runs in a worker."""
        # Spark creates one task if there is nothing to read.
        if not isinstance(partition, FlightTask):
            return iter(())
        return records(partition, self._options, arrow_schema(self._schema))
