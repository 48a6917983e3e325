"""`df.writeStream` for Spark 4.1 and later, which hand the rows over as Arrow batches."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_timestone.writing.sink import TimestoneStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowStreamWriter(TimestoneStreamWriter, DataSourceStreamArrowWriter):
    """Writer of one streaming query."""

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Stage the rows of one task. Runs in a worker."""
        return self.stage(iterator)
