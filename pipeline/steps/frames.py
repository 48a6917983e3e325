"""Reading data files as Spark's frames, and writing frames as data files."""

from collections.abc import Callable, Mapping, Sequence
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

from ..delta.data_file import (
    DESCRIBED,
    RECORD,
    TABLE,
    DataFile,
    Read,
    Target,
    described,
    picker,
    reader,
    rewriter,
    writer,
)
from ..delta.tables import Table
from ..delta.warehouse import Warehouse, Work

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
        schema = _schema(table, *columns)
        if not files:
            nothing = [f.lit(None).cast(one.dataType).alias(one.name) for one in schema]
            return self.spark.range(0).select(*nothing)
        location = self._warehouse.root.child(table.name)
        if location.folder is None:
            # Spark as it comes from PyPI has no client of object storage.
            return self._paths(files).mapInArrow(self._reader(table, *columns), schema)
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

    def fetch(self, table: Table, files: Sequence[DataFile], *columns: str) -> pa.Table:
        """Return some columns of `files`, read by this process."""
        paths = pa.RecordBatch.from_pylist([{"path": one.path, "value": one.value} for one in files])
        return pa.Table.from_batches(
            self._reader(table, *columns)(iter([paths])), _arrow_schema(_schema(table, *columns))
        )

    def in_tasks(
        self,
        function: Callable[[Read, pa.Schema], Read],
        table: Table,
        files: Sequence[DataFile],
        *columns: str,
        found: str = "",
    ) -> DataFrame:
        """Return the rows that `function` makes, in tasks, of some columns of `files`, by default all. It gets what
        reads them, and their schema. found: columns of the result, by default those of the table."""
        schema = _schema(table, *columns)
        read = function(self._reader(table, *columns), _arrow_schema(schema))
        return self._paths(files).mapInArrow(read, found or schema)

    def find(
        self,
        function: Callable[[Read, pa.Schema], Read],
        sources: Sequence[tuple[Table, Sequence[DataFile]]],
        *columns: str,
        found: str,
    ) -> pa.Table:
        """Return the rows that `function` finds in tasks of one job, as `in_tasks`, in files of several tables."""
        parts = [
            self.in_tasks(function, table, files, *columns, found=found) for table, files in sources if files
        ]
        return (
            reduce(DataFrame.union, parts).toArrow() if parts else _arrow_schema(_fields(found)).empty_table()
        )

    def move(
        self,
        named: pa.Table,
        source: tuple[Table, Sequence[DataFile]],
        target: Table,
        records: tuple[Table, Sequence[DataFile]],
        work: Work,
        given: Mapping[str, str],
    ) -> list[DataFile]:
        """Write the files of `source` without the rows that `named` names as RECORD, and these as rows of `target`:
        with the other columns of `named`, the values `given`, and what `records` has of them. From file to file in
        Python: passing Java would take longer than all the rest."""
        table, files = source
        kept = self._paths(files).mapInArrow(rewriter(work.target(table), named), DESCRIBED)
        table, files = records
        schema = _arrow_schema(_schema(target))
        here = {table.raw.get(name, name): name for name in _schema(table).names}
        columns = [here[name] for name in schema.names if name in here and name not in named.column_names]
        pick = picker(self._reader(table, *RECORD, *columns), named, schema, given, table.raw)
        moved = self._paths(files).mapInArrow(_both(pick, writer(work.target(target))), DESCRIBED)
        return self._described(kept.union(moved), work)

    def _reader(self, table: Table, *columns: str) -> Read:
        location = self._warehouse.root.child(table.name)
        schema = _arrow_schema(_schema(table, *columns))
        return reader(location, location.options(), schema, table.partition_column)

    def _paths(self, files: Sequence[DataFile]) -> DataFrame:
        rows = [(one.path, one.value) for one in files]
        context = self.spark.sparkContext
        tasks = max(1, min(len(files), context.defaultParallelism))
        return self.spark.createDataFrame(context.parallelize(rows, tasks), "path string, value string")

    def tasks_for(self, count: int, *, of: int = _TASK_ROWS) -> int:
        """Return how many tasks up to `count` rows are worth, with at least `of` rows each; each task writes a file."""
        return max(1, min(count // of, self.spark.sparkContext.defaultParallelism))

    def _described(self, written: DataFrame, work: Work) -> list[DataFile]:
        return work.collect([described(one.asDict()) for one in written.collect()])


def _schema(table: Table, *columns: str) -> StructType:
    schema = _fields(table.ddl)
    return StructType([one for one in schema if one.name in columns]) if columns else schema


def _fields(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def _both(first: Read, then: Read) -> Read:
    return lambda batches: then(first(batches))


def _arrow_schema(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
