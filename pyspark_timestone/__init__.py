"""Timestone's logs as Spark DataFrames: `spark.read.format("timestone").load("data")`, and `readStream`.

Spark imports every top-level module called `pyspark_*` when it first meets a format it does not know, in a process
of its own, and takes its `DefaultSource`. If one of them fails to import, all of them are gone. So this stays tiny,
and what it imports does as little.
"""

from pyspark_timestone.source import DefaultSource, register

__all__ = ["DefaultSource", "register"]
