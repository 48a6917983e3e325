"""Reading data files as Spark's frames, and writing frames as data files."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import TypeAlias

from deltalake import Schema
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_timestone.offsets import LogPartition, SourceOffset

from .data_file import DESCRIBED, TABLE, DataFile, Target, described, reader, writer
from .tables import Table
from .warehouse import Warehouse, Work

SETTINGS = {
    # Days are in UTC.
    "spark.sql.session.timeZone": "UTC",
    # A timestamp is a moment: as a type without a zone, it would accept no text with a zone.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Files are given by name; listing them needs no job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # A cached frame, too, gets as few partitions as its rows need. Otherwise a cluster, whose default is 200, would
    # write so many files for each batch.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # For each row that it sends to Python, Spark adds up the bytes of the batch so far. For a column of lists, that
    # takes longer the more rows the batch has: with ten thousand, the default, most of the time of writing bronze.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}


Step: TypeAlias = Callable[[str], None]
"""Called with what begins now, in words for the user."""


def in_silence(step: str) -> None:
    """Step that is not shown."""


RECORD = ("log", "partition", "offset")
"""Columns that name a record for good."""


def of_partition(key: LogPartition) -> Column:
    """Return the condition for records of a partition."""
    return (f.col("log") == key.log) & (f.col("partition") == key.partition)


def below(offset: SourceOffset) -> Column:
    """Return the condition for records before `offset`."""
    reached = [of_partition(key) & (f.col("offset") < at) for key, at in offset.positions.items()]
    return reduce(Column.__or__, reached, f.lit(False))


class Frames:
    """Tables of a warehouse in one Spark session."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, step: Step = in_silence) -> None:
        """`step` is called with the name of each table before rows of it are computed and written."""
        self.spark = spark
        self._step = step
        self._warehouse = warehouse
        for key, value in SETTINGS.items():
            spark.conf.set(key, value)

    def create_tables(self) -> None:
        """Create tables and columns that are missing. Raises OldTables, TableFailed."""
        schemas = {one.name: Schema.from_json(_schema(one).json()) for one in self._warehouse.tables.all()}
        self._warehouse.create(schemas)

    def read(self, table: Table, files: Sequence[DataFile]) -> DataFrame:
        """Return the rows of `files`, committed or not. Columns that a file lacks, because they were added later, are
        null."""
        schema = _schema(table)
        if not files:
            nothing = [f.lit(None).cast(one.dataType).alias(one.name) for one in schema]
            return self.spark.range(0).select(*nothing)
        location = self._warehouse.root.child(table.name)
        if location.folder is None:
            # Spark as it comes from PyPI has no client of object storage.
            paths = self.spark.createDataFrame(
                [(one.path, one.value) for one in files], "path string, value string"
            )
            read = reader(
                location, location.options(), to_arrow_schema(schema, timezone="UTC"), table.partition_column
            )
            return paths.repartition(min(len(files), self._tasks), "path").mapInArrow(read, schema)
        # Explicit: Spark would otherwise open files to infer a schema, and use that of the first for all.
        source = self.spark.read.schema(schema).option("basePath", location.uri)
        return source.parquet(*(f"{location.uri}/{one.path}" for one in files))

    def write(self, table: Table, rows: DataFrame, work: Work, *, step: str | None = None) -> list[DataFile]:
        """Write `rows` as files of `table`, from the tasks directly to where they stay. step: its text, by default the
        name of the table."""
        self._step(step or table.name)
        chosen = rows.select(*[f.col(one.name).cast(one.dataType) for one in _schema(table)])
        return self._written(chosen, [work.target(table)], work)

    def write_each(self, tables: Sequence[Table], rows: DataFrame, work: Work) -> list[DataFile]:
        """Write each row as one of the table that its column TABLE names; rows of other tables are left out. One pass,
        so nothing is computed twice or kept."""
        self._step(", ".join(one.name for one in tables))
        schemas = [_schema(one) for one in tables]
        types = {one.name: one.dataType for schema in schemas for one in schema}
        chosen = rows.select(TABLE, *[f.col(name).cast(kind).alias(name) for name, kind in types.items()])
        targets = [
            replace(work.target(table), columns=tuple(schema.names))
            for table, schema in zip(tables, schemas, strict=True)
        ]
        return self._written(chosen, targets, work)

    def _written(self, rows: DataFrame, targets: Sequence[Target], work: Work) -> list[DataFile]:
        written = rows.mapInArrow(writer(*targets), DESCRIBED).collect()
        return work.collect([described(one.asDict()) for one in written])

    @cached_property
    def _tasks(self) -> int:
        return self.spark.sparkContext.defaultParallelism


def _schema(table: Table) -> StructType:
    schema = StructType.fromDDL(table.ddl)
    assert isinstance(schema, StructType)
    return schema
