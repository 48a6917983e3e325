"""The data source as Spark meets it: a class in a package whose name begins with `pyspark_`.

Imports nothing but PySpark's own interface at the top; numpy, Arrow and the engine come with the methods that need
them. Only Spark's interface is there for certain when Spark looks for it.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from pyspark_timestone.jvm.worker_process import end_quietly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# ruff: noqa: PLC0415

# Here, because the process that looks for sources imports this and does nothing else.
end_quietly()


class DefaultSource(DataSource):
    """The data source `timestone`, as Spark sees it."""

    def __init__(self, options: Any) -> None:
        """Raises MissingRequirement. Spark makes one before anything else; what needs Arrow comes after, and without it
        all it would say is that a worker has ended."""
        from pyspark_timestone.jvm.requirements import require
        from pyspark_timestone.jvm.worker_heap import freeze_worker_heap

        require("pyarrow", "numpy")
        super().__init__(options)
        freeze_worker_heap()

    @classmethod
    def name(cls) -> str:
        """What `format(…)` is given."""
        return "timestone"

    def schema(self) -> "StructType | str":
        """The columns; fewer with the options `columns` and `includeHeaders`, others with `payload`."""
        from pyspark_timestone.jvm.worker_heap import freeze_worker_heap
        from pyspark_timestone.options.read_options import schema_option

        schema = schema_option(self.options)
        # Once more: the engine has come with the options.
        freeze_worker_heap()
        return schema

    def reader(self, schema: "StructType") -> DataSourceReader:
        """For `spark.read`. Raises InvalidOption, SchemaMismatch."""
        from pyspark_timestone.options.read_options import read_options
        from pyspark_timestone.reading.batch_reader import TimestoneReader

        options = read_options(self.options, streaming=False)
        options.check_schema(schema)
        return TimestoneReader(options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        """For `spark.readStream`. Raises InvalidOption, SchemaMismatch."""
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
        """For `df.write`. Raises InvalidOption, SchemaMismatch."""
        from pyspark_timestone.errors import InvalidOption
        from pyspark_timestone.writing.sink import TimestoneWriter
        from pyspark_timestone.writing.sink_options import check_columns, sink_options

        if overwrite:
            raise InvalidOption("a log is only ever appended to: .mode('append')")
        check_columns(schema)
        return TimestoneWriter(sink_options(self.options, streaming=False))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`. Raises InvalidOption, SchemaMismatch."""
        from pyspark_timestone.errors import InvalidOption
        from pyspark_timestone.jvm.requirements import ARROW_STREAM_SINK_SPARK, spark_version
        from pyspark_timestone.writing.sink_options import check_columns, sink_options

        if overwrite:
            raise InvalidOption("a log is only ever appended to: .outputMode('append')")
        check_columns(schema)
        options = sink_options(self.options, streaming=True)
        if spark_version() >= ARROW_STREAM_SINK_SPARK:
            from pyspark_timestone.writing.arrow_stream_sink import ArrowStreamWriter

            return ArrowStreamWriter(options, schema)
        from pyspark_timestone.writing.sink import TimestoneStreamWriter

        return TimestoneStreamWriter(options, schema)


def register(spark: "SparkSession") -> None:
    """Make `format("timestone")` known to `spark` without Spark's own search.

    The way out when another, broken `pyspark_*` package on the machine keeps Spark from finding any of them.
    """
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        # Spark 4.0 refuses the name of a source that it has found by itself: this one.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
