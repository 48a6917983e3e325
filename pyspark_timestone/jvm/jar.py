"""Jar with the class for columnar scans, for sessions that are started elsewhere: `spark.jars`.

A program, `python -m pyspark_timestone.jvm.jar FILE`. Spark compiles the class, as for `spark_session()`."""

import sys
from pathlib import Path

from pyspark_timestone.errors import JavaFailed, MissingRequirement, SparkSourceError
from pyspark_timestone.jvm.columnar import COLUMNAR_SPARK, compiled, write_jar
from pyspark_timestone.jvm.java import find_java
from pyspark_timestone.jvm.requirements import require, spark_version

# ruff: noqa: PLC0415 - importable without PySpark, so that a missing requirement can be reported.


def make_jar(path: Path) -> None:
    """Write the jar for the Spark that this Python imports. Raises MissingRequirement, JavaFailed, OSError."""
    require("pyspark")
    if spark_version() < COLUMNAR_SPARK:
        raise MissingRequirement(
            "unsupported Spark {}.{}: expected {}.{} or newer, for which the class is made".format(
                *spark_version(), *COLUMNAR_SPARK
            )
        )
    from py4j.protocol import Py4JError
    from pyspark.version import __version__

    from pyspark_timestone.jvm.gateway import Gateway

    gateway = Gateway(find_java(), {})
    try:
        jvm = gateway.py4j.jvm
        write_jar(path, compiled(jvm, jvm.java.lang.Thread.currentThread().getContextClassLoader()))
    except Py4JError as error:
        raise JavaFailed(f"Spark {__version__}: {error}") from None
    finally:
        gateway.close()


def main() -> None:
    """Write the jar that the command line names."""
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".jar"):
        sys.exit("usage: python -m pyspark_timestone.jvm.jar FILE.jar")
    try:
        make_jar(Path(sys.argv[1]))
    except (SparkSourceError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
