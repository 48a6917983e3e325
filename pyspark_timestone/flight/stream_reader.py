"""`spark.readStream` over Arrow Flight: offsets of each micro-batch, which the checkpoint of the query keeps.

A batch that is planned again reads the same offsets, and a ticket gives the same records: a table that takes each batch
once has each record once."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_timestone.errors import DataLoss
from pyspark_timestone.flight.batch_reader import first_offset
from pyspark_timestone.flight.client import FlightTask, ends, records, tasks
from pyspark_timestone.flight.options import FlightOptions
from pyspark_timestone.jvm.worker_process import with_errors_in_one_line
from pyspark_timestone.options.columns import arrow_schema


@with_errors_in_one_line
class FlightStreamReader(DataSourceStreamReader):
    """Reader of logs of a server. An offset is the next one of each log: `{"telemetry": 4711}`."""

    def __init__(self, options: FlightOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def initialOffset(self) -> dict[str, int]:
        """Return where a query without a checkpoint begins."""
        options = self._options
        return {log: first_offset(options, log, found) for log, found in ends(options).items()}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        """Return the durable end of each log."""
        return {log: found.end for log, found in ends(self._options).items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Plan a batch; runs in the driver. Raises DataLoss for a log that has fewer records than were read."""
        for log in end:
            if end[log] < start.get(log, 0):
                raise DataLoss(
                    f"log {log!r} ends at {end[log]}, and the query has read up to {start[log]}: it is another log of "
                    "that name"
                )
        return tasks(self._options, {log: (start.get(log, 0), end[log]) for log in end})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task; runs in a worker."""
        if not isinstance(partition, FlightTask):
            return iter(())
        return records(partition, self._options, arrow_schema(self._schema))

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the checkpoint of the query has the progress."""
