"""Data files as Spark's frames, and frames as data files."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from .data_file import DataFile
from .tables import Table
from .warehouse import Warehouse, Work

SETTINGS = {
    # Days are those of UTC.
    "spark.sql.session.timeZone": "UTC",
    # A timestamp is a moment: as one without a zone no text with a zone would be one.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Other readers refuse the default, and its files do not say which times they hold.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Files are given by name. Looking each of them up is no work for a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # A kept frame, too, gets as few partitions as its rows need. Else a cluster, whose default is 200, would make so
    # many files of each batch.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}


class Frames:
    """The tables of a warehouse in one Spark session."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self.spark = spark
        self._warehouse = warehouse
        for key, value in SETTINGS.items():
            spark.conf.set(key, value)

    def read(self, table: Table, files: Sequence[DataFile], work: Work | None = None) -> DataFrame:
        """Rows of `files`, which `work` has just written, or else are part of the table.

        Columns that a file does not have, because they were added to the schema later, are null.
        """
        if not files:
            nothing = [f.lit(None).cast(one.dataType).alias(one.name) for one in self._schema(table)]
            return self.spark.range(0).select(*nothing)
        if work is None:
            base, paths = self._warehouse.base(table.name), self._warehouse.paths(files)
        else:
            folder = work.folder_of(table).absolute()
            base, paths = str(folder), [str(folder / one.path) for one in files]
        # The schema is ours: Spark would else open files to find one, and take the first for all.
        return self.spark.read.schema(table.ddl).option("basePath", base).parquet(*paths)

    def write(self, table: Table, rows: DataFrame, work: Work) -> list[DataFile]:
        """Write `rows` as files of `table` into `work`."""
        writer = rows.select(*self._schema(table).names).write.mode("append")
        if table.partition_column:
            writer = writer.partitionBy(table.partition_column)
        before = len(work.files)
        writer.parquet(str(work.folder_of(table)))
        work.collect(table)
        return work.files[before:]

    def _schema(self, table: Table) -> StructType:
        schema = StructType.fromDDL(table.ddl)
        assert isinstance(schema, StructType)
        return schema
