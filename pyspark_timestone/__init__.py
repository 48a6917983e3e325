"""Timestone's logs as Spark DataFrames: `spark.read.format("timestone").load("data")`, and `readStream`.

Spark imports every top-level module called `pyspark_*` when it first meets a format it does not know, in a process
of its own, and takes its `DefaultSource`. One of them failing to import disables them all. So this file stays tiny:
it imports nothing but PySpark's own interface. numpy, Arrow and the engine are imported where they are used, in the
methods.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource", "register"]

# ruff: noqa: PLC0415


class DefaultSource(DataSource):
    """The data source `timestone`, as Spark sees it."""

    @classmethod
    def name(cls) -> str:
        """What `format(…)` is given."""
        return "timestone"

    def schema(self) -> "StructType":
        """The columns; fewer with the options `columns` and `includeHeaders`."""
        from pyspark_timestone.columns import source_schema
        from pyspark_timestone.options import columns_option

        return source_schema(columns_option(self.options))

    def reader(self, schema: "StructType") -> DataSourceReader:
        """For `spark.read`. Raises InvalidOption, SchemaMismatch."""
        from pyspark_timestone.batch_reader import TimestoneReader
        from pyspark_timestone.columns import check_schema
        from pyspark_timestone.options import read_options

        check_schema(schema)
        return TimestoneReader(read_options(self.options, streaming=False), schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        """For `spark.readStream`. Raises InvalidOption, SchemaMismatch."""
        from pyspark_timestone.columns import check_schema
        from pyspark_timestone.options import read_options
        from pyspark_timestone.stream_reader import TimestoneStreamReader

        check_schema(schema)
        return TimestoneStreamReader(read_options(self.options, streaming=True), schema)


def register(spark: "SparkSession") -> None:
    """Make `format("timestone")` known to `spark` without Spark's own search.

    The way out when another, broken `pyspark_*` package on the machine keeps Spark from finding any of them.
    """
    spark.dataSource.register(DefaultSource)
