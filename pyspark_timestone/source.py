"""Data source as Spark sees it: a class in a package whose name begins with `pyspark_`.

Imports only PySpark's interface at the top; numpy, Arrow and the engine are imported by the methods that need them,
because only Spark's interface is certain to exist when Spark looks for sources."""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from pyspark_timestone.jvm.worker_process import end_quietly, with_errors_in_one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# ruff: noqa: PLC0415

# Here, because the process that looks for sources imports this and does nothing else.
end_quietly()


@with_errors_in_one_line
class DefaultSource(DataSource):
    """The data source `timestone`."""

    def __init__(self, options: Any) -> None:
        """Check the requirements. Raises MissingRequirement here, because later Spark would only report that a
        worker has ended."""
        from pyspark_timestone.jvm.requirements import require
        from pyspark_timestone.jvm.worker_heap import freeze_worker_heap

        require("pyarrow", "numpy")
        super().__init__(options)
        freeze_worker_heap()

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "timestone"

    def schema(self) -> "StructType | str":
        """Return the columns; fewer with the options `columns` and `includeHeaders`, others with `payload`.

        Raises InvalidOption already for options that only the reader uses: Spark calls this in `load`."""
        from pyspark_timestone.jvm.worker_heap import freeze_worker_heap
        from pyspark_timestone.options.read_options import refuse_invalid, schema_option

        refuse_invalid(self.options)
        schema = schema_option(self.options)
        # Once more: the options have imported the engine.
        freeze_worker_heap()
        return schema

    def reader(self, schema: "StructType") -> DataSourceReader:
        """Return the reader for `spark.read`. Raises InvalidOption, SchemaMismatch."""
        from pyspark_timestone.options.read_options import read_options
        from pyspark_timestone.reading.batch_reader import TimestoneReader

        options = read_options(self.options, streaming=False)
        options.check_schema(schema)
        return TimestoneReader(options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        """Return the reader for `spark.readStream`. When first used, it raises SchemaMismatch, and InvalidOption for
        what `schema` did not check: options of batches alone, or all of them if the user gave a schema."""
        from pyspark_timestone.errors import SparkSourceError
        from pyspark_timestone.reading.refused_reader import RefusedStreamReader

        try:
            return self._stream_reader(schema)
        except SparkSourceError as error:
            return RefusedStreamReader(error)

    def _stream_reader(self, schema: "StructType") -> DataSourceStreamReader:
        from pyspark_timestone.jvm.requirements import ADMISSION_CONTROL_SPARK, spark_version
        from pyspark_timestone.options.read_options import read_options

        options = read_options(self.options, streaming=True)
        options.check_schema(schema)
        if spark_version() >= ADMISSION_CONTROL_SPARK:
            from pyspark_timestone.reading.admission_control import LimitedStreamReader

            return LimitedStreamReader(options, schema)
        from pyspark_timestone.reading.stream_reader import UnlimitedStreamReader

        options.refuse_limits()
        return UnlimitedStreamReader(options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        """Return the writer for `df.write`. Raises InvalidOption, SchemaMismatch."""
        from pyspark_timestone.errors import InvalidOption
        from pyspark_timestone.writing.sink import TimestoneWriter
        from pyspark_timestone.writing.sink_options import check_columns, sink_options

        if overwrite:
            raise InvalidOption("invalid mode: expected append, got overwrite: a log can only be appended to")
        options = sink_options(self.options, streaming=False)
        check_columns(schema, options)
        return TimestoneWriter(options)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer for `df.writeStream`. Raises InvalidOption, SchemaMismatch."""
        from pyspark_timestone.errors import InvalidOption
        from pyspark_timestone.jvm.requirements import ARROW_STREAM_SINK_SPARK, spark_version
        from pyspark_timestone.writing.sink_options import check_columns, sink_options

        if overwrite:
            raise InvalidOption(
                "invalid outputMode: expected append, got complete: a log can only be appended to"
            )
        options = sink_options(self.options, streaming=True)
        check_columns(schema, options)
        if spark_version() >= ARROW_STREAM_SINK_SPARK:
            from pyspark_timestone.writing.arrow_stream_sink import ArrowStreamWriter

            return ArrowStreamWriter(options, schema)
        from pyspark_timestone.writing.sink import TimestoneStreamWriter

        return TimestoneStreamWriter(options, schema)


def register(spark: "SparkSession", *, scans: bool = True) -> None:
    """Register `format("timestone")` in `spark` without Spark's search, which fails if the machine has another,
    broken `pyspark_*` package, and with `scans` make batch scans pass columns.

    A client of Spark Connect cannot do the second: its server needs the jar of `jvm/jar.py`."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.utils import is_remote

    from pyspark_timestone.jvm.columnar import hand_over_columns

    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        # Spark 4.0 refuses the name of a source that it has found by itself: this one.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    if scans and not is_remote():
        hand_over_columns(spark)
