"""Reading data files as Spark's frames, and writing frames as data files."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
from deltalake import Schema
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from pyspark_timestone.offsets import LogPartition, SourceOffset

from .data_file import DESCRIBED, TABLE, DataFile, Target, described, reader, rewriter, writer
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
LEAST_RECORDS = 50_000
"""Records of a task: reading and writing them takes as long as starting one, and each task writes a file."""
_TASK_ROWS = 250_000
"""Of a task that aggregates: less is done before another has begun."""

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
        self._step, self._begun = step, ""
        self._warehouse = warehouse
        for key, value in SETTINGS.items():
            spark.conf.set(key, value)

    def begin(self, step: str) -> None:
        """Call the step with what begins now, usually the name of a table; once, if it has several parts."""
        if step != self._begun:
            self._begun = step
            self._step(step)

    def create_tables(self) -> None:
        """Create tables and columns that are missing. Raises OldTables, TableFailed."""
        schemas = {one.name: Schema.from_json(_schema(one).json()) for one in self._warehouse.tables.all()}
        self._warehouse.create(schemas)

    def read(self, table: Table, files: Sequence[DataFile], *columns: str) -> DataFrame:
        """Return the rows of `files`, committed or not; of them some columns, by default all. Columns that a file
        lacks, because they were added later, are null."""
        schema = _schema(table)
        if columns:
            schema = StructType([one for one in schema if one.name in columns])
        if not files:
            nothing = [f.lit(None).cast(one.dataType).alias(one.name) for one in schema]
            return self.spark.range(0).select(*nothing)
        location = self._warehouse.root.child(table.name)
        if location.folder is None:
            # Spark as it comes from PyPI has no client of object storage.
            read = reader(
                location, location.options(), to_arrow_schema(schema, timezone="UTC"), table.partition_column
            )
            return self._paths(files).mapInArrow(read, schema)
        # Explicit: Spark would otherwise open files to infer a schema, and use that of the first for all.
        source = self.spark.read.schema(schema).option("basePath", location.uri)
        return source.parquet(*(f"{location.uri}/{one.path}" for one in files))

    def write(self, table: Table, rows: DataFrame, work: Work, *, step: str | None = None) -> list[DataFile]:
        """Write `rows` as files of `table`, from the tasks directly to where they stay. step: its text, by default the
        name of the table."""
        self.begin(step or table.name)
        chosen = rows.select(*[f.col(one.name).cast(one.dataType) for one in _schema(table)])
        return self._described(chosen.mapInArrow(writer(work.target(table)), DESCRIBED), work)

    def write_each(self, tables: Sequence[Table], rows: DataFrame, work: Work) -> list[DataFile]:
        """Write each row as one of the table that its column TABLE names, and as one of a table with `raw`; rows of
        other tables are left out. One pass, so nothing is computed twice or kept."""
        self.begin(", ".join(one.name for one in tables))
        types: dict[str, DataType] = {}
        targets: list[Target] = []
        for table in tables:
            schema = _schema(table)
            columns = {one.name: table.raw.get(one.name, one.name) for one in schema}
            types |= {columns[one.name]: one.dataType for one in schema}
            targets.append(replace(work.target(table), columns=columns, whole=bool(table.raw)))
        chosen = rows.select(TABLE, *[f.col(name).cast(kind).alias(name) for name, kind in types.items()])
        return self._described(chosen.mapInArrow(writer(*targets), DESCRIBED), work)

    def write_others(
        self, table: Table, files: Sequence[DataFile], gone: pa.Table, work: Work, *, step: str
    ) -> list[DataFile]:
        """Write the rows of `files` but those that `gone` names by its columns. From file to file in Python: passing
        Java would take longer than all the rest."""
        self.begin(step)
        return self._described(
            self._paths(files).mapInArrow(rewriter(work.target(table), gone), DESCRIBED), work
        )

    def _paths(self, files: Sequence[DataFile]) -> DataFrame:
        rows = [(one.path, one.value) for one in files]
        context = self.spark.sparkContext
        tasks = min(len(files), context.defaultParallelism)
        return self.spark.createDataFrame(context.parallelize(rows, tasks), "path string, value string")

    def tasks_for(self, count: int, *, of: int = _TASK_ROWS) -> int:
        """Return how many tasks up to `count` rows are worth, with at least `of` rows each; each task writes a file."""
        return max(1, min(count // of, self.spark.sparkContext.defaultParallelism))

    def _described(self, written: DataFrame, work: Work) -> list[DataFile]:
        return work.collect([described(one.asDict()) for one in written.collect()])


def _schema(table: Table) -> StructType:
    schema = StructType.fromDDL(table.ddl)
    assert isinstance(schema, StructType)
    return schema
