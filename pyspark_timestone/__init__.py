"""Timestone's logs as Spark DataFrames: `spark.read.format("timestone").load("data")`, and `readStream`.

Spark imports every top-level module called `pyspark_*` when it first meets a format it does not know, in a process of
its own, and takes its `DefaultSource`. If one of them fails to import, all of them are gone. So importing this does
nothing at all; `DefaultSource` and `register` are fetched from `source` when they are used. That also lets `session`
report a missing PySpark in one line.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_timestone.source import DefaultSource as DefaultSource
    from pyspark_timestone.source import register as register


def __getattr__(name: str) -> Any:
    if name in ("DefaultSource", "register"):
        from pyspark_timestone.jvm.requirements import require_spark_version  # noqa: PLC0415

        require_spark_version()
        from pyspark_timestone import source  # noqa: PLC0415

        return getattr(source, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
