"""Reading data files as Spark's frames, and writing frames as data files."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from .data_file import DataFile
from .tables import Table
from .warehouse import Warehouse, Work

SETTINGS = {
    # Days are in UTC.
    "spark.sql.session.timeZone": "UTC",
    # A timestamp is a moment: as a type without a zone, it would accept no text with a zone.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Other readers refuse the default, whose files do not state which times they hold.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Files are given by name; listing them needs no job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # A cached frame, too, gets as few partitions as its rows need. Otherwise a cluster, whose default is 200, would
    # write so many files for each batch.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}


Step: TypeAlias = Callable[[str], None]
"""Called with what begins now, in words for the user."""


def in_silence(step: str) -> None:
    """Step that is not shown."""


class Frames:
    """Tables of a warehouse in one Spark session."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, step: Step = in_silence) -> None:
        """`step` is called with the name of each table before rows of it are computed and written."""
        self.spark = spark
        self._step = step
        self._warehouse = warehouse
        for key, value in SETTINGS.items():
            spark.conf.set(key, value)

    def read(self, table: Table, files: Sequence[DataFile], work: Work | None = None) -> DataFrame:
        """Return the rows of `files`, which `work` has just written, or which are part of the table. Columns that a
        file lacks, because they were added to the schema later, are null."""
        if not files:
            nothing = [f.lit(None).cast(one.dataType).alias(one.name) for one in self._schema(table)]
            return self.spark.range(0).select(*nothing)
        if work is None:
            base, paths = self._warehouse.base(table.name), self._warehouse.paths(files)
        else:
            folder = work.folder_of(table).absolute()
            base, paths = str(folder), [str(folder / one.path) for one in files]
        # Explicit: Spark would otherwise open files to infer a schema, and use that of the first for all.
        return self.spark.read.schema(table.ddl).option("basePath", base).parquet(*paths)

    def write(self, table: Table, rows: DataFrame, work: Work, *, step: str | None = None) -> list[DataFile]:
        """Write `rows` as files of `table` into `work`. step: its text, by default the name of the table."""
        writer = rows.select(*self._schema(table).names).write.mode("append")
        if table.partition_column:
            writer = writer.partitionBy(table.partition_column)
        before = len(work.files)
        self._step(step or table.name)
        writer.parquet(str(work.folder_of(table)))
        work.collect(table)
        return work.files[before:]

    def _schema(self, table: Table) -> StructType:
        schema = StructType.fromDDL(table.ddl)
        assert isinstance(schema, StructType)
        return schema
